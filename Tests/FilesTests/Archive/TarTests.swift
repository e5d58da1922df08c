import AgentTestSupport
import Testing

@testable import Files

struct TarTests {
    static let members: [Member] = [
        .directory("d/"), .file("d/a", "aaaa\n"), .file("empty", mode: 0o600),
        .file("exact", String(repeating: "x", count: 512)),
        .link("d/l", "a"), .link("hard", "d/a", .hardLink), .file("mode", mode: 0o7777),
        .file(String(repeating: "n", count: 100), "100"), .file(String(repeating: "n", count: 101), "101"),
        .file(String(repeating: "p", count: 155) + "/" + String(repeating: "n", count: 100), "prefix"),
        .file(String(repeating: "p", count: 156) + "/" + String(repeating: "n", count: 100), "pax"),
        .directory(String(repeating: "d/", count: 300)),
        .link(String(repeating: "l", count: 200), String(repeating: "t/", count: 400)),
        .file("before 1970", seconds: -5), .file("late", seconds: 1 << 33), .file("é日本", "u"),
    ]

    @Test(arguments: [[100_000], [1], [511, 1], [512], [513], [3, 700, 1]])
    func readsWhatItWrote(pieces: [Int]) throws {
        #expect(try FilesTests.members(of: archive(Self.members), pieces: pieces) == Self.members)
    }

    @Test func anyEntriesComeBack() throws {
        var random = SeededGenerator("tar")
        let alphabet: [UInt8] = Array("ab/.é日".utf8) + [0xFF, 0x80, 0x0A, 0x20, 0x3D]
        func name(_ longest: Int) -> [UInt8] {
            let count = Int.random(in: 1...longest, using: &random)
            return (0..<count).map { _ in alphabet[Int.random(in: 0..<alphabet.count, using: &random)] }
        }
        for _ in 0..<300 {
            var wanted: [Member] = []
            for _ in 0..<Int.random(in: 0...6, using: &random) {
                let kind =
                    [TarEntry.Kind.file, .directory, .symbolicLink, .hardLink, .fifo].randomElement(using: &random)
                    ?? .file
                var entry = TarEntry(kind: kind, name: name([20, 120, 300].randomElement(using: &random) ?? 20))
                // A slash at the end is what a directory has.
                while entry.name.last == UInt8(ascii: "/") { entry.name[entry.name.count - 1] = UInt8(ascii: "x") }
                if kind == .directory { entry.name.append(UInt8(ascii: "/")) }
                if kind == .symbolicLink || kind == .hardLink { entry.target = name(150) }
                entry.mode = UInt32.random(in: 0...0o7777, using: &random)
                entry.seconds = Int.random(in: -1_000_000_000_000...1_000_000_000_000, using: &random)
                var member = Member(entry: entry)
                if kind == .file {
                    member.content = (0..<Int.random(in: 0...1_100, using: &random)).map { _ in
                        UInt8.random(in: 0...255, using: &random)
                    }
                    member.entry.size = member.content.count
                }
                wanted.append(member)
            }
            let pieces = (0..<3).map { _ in Int.random(in: 1...2_000, using: &random) }
            #expect(try FilesTests.members(of: archive(wanted), pieces: pieces) == wanted)
        }
    }

    @Test func numbers() {
        func parse(_ bytes: [UInt8]) -> Int? { TarNumber.parse(bytes[...]) }
        #expect(parse(Array("0000644\0".utf8)) == 0o644)
        #expect(parse(Array("   644 \0".utf8)) == 0o644)
        #expect(parse(Array("77777777777".utf8)) == 0o77777777777)
        #expect(parse([UInt8](repeating: 0, count: 8)) == 0)
        #expect(parse(Array("    \0\0\0\0".utf8)) == 0)
        #expect(parse(Array("0000648\0".utf8)) == nil)
        #expect(parse(Array("-000644\0".utf8)) == nil)
        #expect(parse(Array("64\u{1}".utf8)) == nil)
        #expect(parse([0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1]) == 0x2_0000_0001)
        #expect(parse([UInt8](repeating: 0xFF, count: 12)) == -1)
        #expect(parse([0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFB]) == -5)
        #expect(parse([0x80, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]) == .max)
        #expect(parse([0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0]) == nil)
        #expect(parse([0x81] + [UInt8](repeating: 0, count: 11)) == nil)
        func time(_ text: String) -> [Int]? {
            TarNumber.time(Array(text.utf8)).map { [$0.seconds, $0.nanoseconds] }
        }
        #expect(time("12") == [12, 0])
        #expect(time("12.5") == [12, 500_000_000])
        #expect(time("12.1234567899") == [12, 123_456_789])
        #expect(time("-1.25") == [-2, 750_000_000])
        #expect(time("-1.0") == [-1, 0])
        for bad in ["", "-", "x", "1.x", "1e5", "+1", ".5", "99999999999999999999"] { #expect(time(bad) == nil) }
    }

    @Test func sizesOver8GiBGoIntoAnExtendedHeader() throws {
        for size in [0o77777777777, 0o77777777777 + 1, 1 << 40] {
            var entry = Member.file("big").entry
            entry.size = size
            entry.user = 1 << 30
            let header = TarWriter.header(entry)
            #expect(header.count == 3 * 512)
            var reader = TarReader()
            reader.feed(.init(bytes: header))
            entry.user = 0
            #expect(try reader.next() == .entry(entry))
        }
    }

    /// A header with another type, name and so on; its checksum is right.
    static func header(type: Character, size: Int = 0, name: String = "n") -> [UInt8] {
        var block = TarWriter.header(Member.file(name).entry)
        block[156] = type.asciiValue ?? 0
        block.replaceSubrange(TarBlock.size, with: TarNumber.octal(size, width: 12) ?? [])
        return sealed(block)
    }

    static func sealed(_ block: [UInt8]) -> [UInt8] {
        var block = block
        let sum = TarBlock.sums(block[...]).unsigned
        block.replaceSubrange(TarBlock.checksum, with: (TarNumber.octal(sum, width: 7) ?? []) + [0x20])
        return block
    }

    static func extended(_ records: String, type: Character = "x") -> [UInt8] {
        let bytes = Array(records.utf8)
        return header(type: type, size: bytes.count) + bytes
            + [UInt8](repeating: 0, count: TarBlock.padding(of: bytes.count))
    }

    private func read(_ bytes: [UInt8]) throws -> [Member] { try FilesTests.members(of: bytes) }

    @Test func readsWhatOthersWrite() throws {
        func first(_ bytes: [UInt8]) throws -> TarEntry? { try read(bytes + TarBlock.end).first?.entry }
        // Old files and directories.
        #expect(try first(Self.header(type: "\0", name: "old"))?.kind == .file)
        #expect(try first(Self.header(type: "7"))?.kind == .file)
        #expect(try first(Self.header(type: "0", name: "old/"))?.kind == .directory)
        // What has no content has no content, whatever its size says.
        #expect(try read(Self.header(type: "5", size: 512, name: "d/") + archive([.file("a", "a")])).count == 2)
        // Long names of GNU.
        let long = Self.header(type: "L", size: 5) + Array("long\0".utf8) + [UInt8](repeating: 0, count: 507)
        #expect(try first(long + Self.header(type: "0"))?.name == Array("long".utf8))
        let link = Self.header(type: "K", size: 5) + Array("dest\0".utf8) + [UInt8](repeating: 0, count: 507)
        #expect(try first(link + Self.header(type: "2"))?.target == Array("dest".utf8))
        // Extended headers; one for all entries loses against an entry's own, and an empty value takes it back.
        let global = Self.extended("12 mtime=77\n10 path=g\n", type: "g")
        #expect(try first(global + Self.header(type: "0"))?.seconds == 77)
        #expect(try first(global + Self.header(type: "0"))?.name == Array("g".utf8))
        let own = Self.extended("14 mtime=78.5\n13 comment=x\n8 path=\n")
        let entry = try #require(try first(global + own + Self.header(type: "0")))
        #expect(entry.name == Array("n".utf8))
        #expect(entry.seconds == 78 && entry.nanoseconds == 500_000_000)
        // Only for one entry.
        let two = try read(
            Self.extended("10 path=p\n") + Self.header(type: "0") + Self.header(type: "0") + TarBlock.end)
        #expect(two.map { String(decoding: $0.entry.name, as: UTF8.self) } == ["p", "n"])
        // A size in an extended header.
        let sized =
            Self.extended("10 size=3\n") + Self.header(type: "0") + [1, 2, 3] + [UInt8](repeating: 0, count: 509)
        #expect(try read(sized + TarBlock.end).first?.content == [1, 2, 3])
        // GNU's magic has no prefix: other things are where it would be.
        var gnu = Self.header(type: "0")
        gnu.replaceSubrange(257..<265, with: Array("ustar  \0".utf8))
        gnu.replaceSubrange(345..<348, with: Array("123".utf8))
        #expect(try first(Self.sealed(gnu))?.name == Array("n".utf8))
        // Without the end that is due, and with rubbish behind the end.
        #expect(try read(Self.header(type: "0")).count == 1)
        #expect(try read(Self.header(type: "0") + TarBlock.end + [1, 2, 3]).count == 1)
    }

    @Test func refusesWhatItCannotRead() throws {
        func refusal(_ bytes: [UInt8]) -> String? { failure { _ = try read(bytes) } }
        let whole = archive([.file("a", "abc")])
        #expect(refusal([]) == "the archive is empty: not even the end of one is there")
        #expect(refusal(Array(whole.prefix(100))) == "the archive is cut off behind byte 100")
        #expect(refusal(Array(whole.prefix(514))) == "the archive is cut off behind byte 514")
        #expect(refusal(Array(whole.prefix(515))) == "the archive is cut off behind byte 515")
        #expect(refusal(Array(whole.prefix(1_024))) == nil)
        #expect(
            refusal([UInt8](repeating: 0x41, count: 512))
                == "this is not a tar archive, neither plain nor compressed with gzip")
        let hint = "; send a tar archive that is plain or compressed with gzip"
        #expect(refusal(Array("BZh91AY".utf8)) == "this is an archive compressed with bzip2" + hint)
        #expect(
            refusal([0x28, 0xB5, 0x2F, 0xFD] + [UInt8](repeating: 1, count: 600))
                == "this is an archive compressed with zstd" + hint)
        #expect(refusal(Array("PK\u{3}\u{4}".utf8)) == "this is a zip archive" + hint)
        // The name of a tar archive's first file may begin like them.
        #expect(refusal(archive([.file("BZh91", "abc")])) == nil)
        var broken = archive([.file("a"), .file("b")])
        broken[512] ^= 1
        #expect(refusal(broken) == "the archive is damaged before byte 1024: the checksum of a header is wrong")
        #expect(refusal(Self.header(type: "S")) == "archive entry \"n\": type \"S\" is not supported")
        #expect(refusal(Self.header(type: "M")) == "archive entry \"n\": type \"M\" is not supported")
        #expect(refusal(Self.header(type: "V")) == "archive entry \"n\": type \"V\" is not supported")
        #expect(
            refusal(Self.extended("22 GNU.sparse.major=1\n"))
                == "the archive has a sparse file in it, which is not supported")
        let limit = FilesLimits.tarMetadataBytes
        #expect(refusal(Self.header(type: "x", size: limit)) == "the archive is cut off behind byte 512")
        #expect(
            refusal(Self.header(type: "x", size: limit + 1))
                == "the archive has a header of \(limit + 1) bytes; at most \(limit) are read")
        for records in ["x", "5 a=b\n", "99 a=b\n", "6 a=b\nx", "-6 a=b\n", "4 a=\n", "6 abc\n", "0 a=b\n"] {
            #expect(refusal(Self.extended(records))?.hasSuffix("an extended header is malformed") == true, "\(records)")
        }
        #expect(refusal(Self.extended("12 path=a\0b\n"))?.hasSuffix("has NUL in a value") == true)
        #expect(
            refusal(Self.extended("11 size=-1\n") + Self.header(type: "0"))?.hasSuffix("size is not a number") == true)
        #expect(
            refusal(Self.extended("10 path=p\n") + TarBlock.end)?.hasSuffix("it ends behind an extended header") == true
        )
        #expect(refusal(Self.extended("10 path=p\n")) == "the archive is cut off behind byte 1024")
    }

    @Test func mutatedArchivesNeitherCrashNorTakeMemory() throws {
        var random = SeededGenerator("mutated tar")
        let whole = archive(Self.members)
        for _ in 0..<2_000 {
            var bytes = whole
            for _ in 0..<Int.random(in: 1...8, using: &random) {
                let at = Int.random(in: 0..<bytes.count, using: &random)
                switch Int.random(in: 0..<4, using: &random) {
                case 0: bytes[at] = UInt8.random(in: 0...255, using: &random)
                case 1: bytes.removeSubrange(at..<min(bytes.count, at + Int.random(in: 1...600, using: &random)))
                case 2: bytes.insert(contentsOf: bytes[at..<min(bytes.count, at + 512)], at: at)
                default:
                    // A header whose checksum is right all the same.
                    let block = at / 512 * 512
                    guard block + 512 <= bytes.count else { continue }
                    let field =
                        [0..<100, 100..<108, 124..<136, 136..<148, 156..<157, 157..<257, 257..<265, 345..<500]
                        .randomElement(using: &random) ?? 0..<100
                    bytes[block + Int.random(in: field, using: &random)] = UInt8.random(in: 0...255, using: &random)
                    bytes.replaceSubrange(block..<block + 512, with: Self.sealed(Array(bytes[block..<block + 512])))
                }
                if bytes.isEmpty { bytes = [0] }
            }
            do {
                let members = try FilesTests.members(of: bytes, pieces: [Int.random(in: 1...5_000, using: &random)])
                #expect(members.reduce(0) { $0 + $1.content.count } <= bytes.count)
            } catch is FilesError {
                // As it should be.
            }
        }
    }
}
