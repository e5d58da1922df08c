import AgentCore
import AgentTestSupport
import CPlatform
import CTestSupport
import Foundation
import Glibc
import NIOCore
import Synchronization
import Testing

@testable import Files

/// Extracts as a route does, in pieces.
/// - Parameter walks: as on a kernel without openat2.
@discardableResult
func extract(
    _ archive: [UInt8], to path: String, _ compression: Unpacker.Compression = .byContent,
    limits: ArchiveLimits = ArchiveLimits(), piece: Int = 100_000, walks: Bool = false, isCut: Bool = false,
    meanwhile: (Int) -> Void = { _ in }
) throws -> Unpacker {
    let root = OpenDirectory(OwnedDescriptor(wa_open(path, O_RDONLY | O_DIRECTORY, 0)), walks: walks)
    let unpacker = Unpacker(TreeWriter(root, path: path, testContext()), compression, limits: limits)
    do {
        var rest = archive[...]
        while !rest.isEmpty {
            try unpacker.feed(ByteBuffer(bytes: rest.prefix(piece)))
            rest = rest.dropFirst(piece)
            while try unpacker.step() {}
            meanwhile(archive.count - rest.count)
        }
        if isCut { throw FilesError(.failed, "cut") }
        try unpacker.finish()
        while unpacker.settle() {}
    } catch {
        unpacker.abandon()
        throw error
    }
    return unpacker
}

func gzipped(_ bytes: [UInt8]) throws -> [UInt8] {
    Array(try GzipWriter().compress(ByteBuffer(bytes: bytes), isLast: true).readableBytesView)
}

/// What is left of a test's place: `in`, where archives go, and `out` beside it.
private struct Place {
    let directory: TemporaryDirectory
    var path: String { "\(directory.path)/in" }

    init() throws {
        directory = try TemporaryDirectory()
        mkdir(path, 0o755)
        mkdir("\(directory.path)/out", 0o755)
        try directory.write("out/kept", Array("kept".utf8))
    }

    /// Nothing has changed beside the place, and nothing temporary is left in it.
    func check(_ location: SourceLocation = #_sourceLocation) {
        #expect(directory.tree.filter { !$0.hasPrefix("in") } == ["out", "out/kept"], sourceLocation: location)
        #expect(directory.text("out/kept") == "kept", sourceLocation: location)
        #expect(directory.info("out/kept")?.st_nlink == 1, sourceLocation: location)
        #expect(directory.tree.filter { $0.contains(".tmp.") } == [], sourceLocation: location)
    }

    func refusal(
        _ members: [Member], walks: Bool = false, _ location: SourceLocation = #_sourceLocation
    ) -> String? {
        defer { check(location) }
        return failure { try extract(archive(members), to: path, walks: walks) }?
            .replacing(path, with: "IN")
    }
}

@Suite(.timeLimit(.minutes(10)), .blocking) struct UnpackTests {
    @Test(arguments: [false, true], [1, 700, 100_000])
    func extractsATree(walks: Bool, piece: Int) throws {
        let place = try Place()
        let members: [Member] =
            [
                .directory("./", mode: 0o700), .directory("d/", mode: 0o550, seconds: 1_000),
                .file("d/a", "aaaa", mode: 0o640),
                .file("./d//./b", "b", mode: 0o6755), .file("new/deep/file", "deep"), .link("d/l", "a"),
                .link("up", "d/../d"), .file("é", ""),
            ].filter { $0.entry.target != Array("d/../d".utf8) } + [
                .link("new/back", "../d/a"), .link("hard", "d/a", .hardLink), .directory("sticky", mode: 0o7777),
            ]
        let unpacker = try extract(archive(members), to: place.path, piece: piece, walks: walks)
        #expect(unpacker.counts == .init(files: 4, directories: 2, links: 3, bytes: 9))
        let directory = place.directory
        #expect(directory.text("in/d/a") == "aaaa")
        #expect(directory.text("in/d/b") == "b")
        #expect(directory.text("in/new/deep/file") == "deep")
        #expect(directory.text("in/d/l") == "aaaa")
        #expect(directory.text("in/new/back") == "aaaa")
        #expect(directory.text("in/é") == "")
        #expect(directory.mode("in") == "40755")
        #expect(directory.mode("in/d") == "40550")
        #expect(directory.mode("in/d/a") == "100640")
        #expect(directory.mode("in/d/b") == "100755")
        #expect(directory.mode("in/new") == "40755")
        #expect(directory.mode("in/sticky") == "41777")
        #expect(directory.info("in/d")?.st_mtim.tv_sec == 1_000)
        #expect(directory.info("in/d/a")?.st_mtim.tv_sec == 1_700_000_000)
        #expect(directory.info("in/d/l")?.st_mtim.tv_sec == 1_700_000_000)
        #expect(directory.info("in/hard")?.st_ino == directory.info("in/d/a")?.st_ino)
        #expect(
            unpacker.written.map { String(decoding: $0, as: UTF8.self) } == [
                "d", "d/a", "new/deep/file", "d/l", "é", "new/back", "hard",
            ])
        place.check()
    }

    @Test func replacesWhatIsThere() throws {
        let place = try Place()
        let directory = place.directory
        try directory.write("in/file", Array("old".utf8))
        link("\(directory.path)/out/kept", "\(directory.path)/in/hard")
        symlink("\(directory.path)/out/kept", "\(directory.path)/in/link")
        mkdir("\(directory.path)/in/d", 0o700)
        try directory.write("in/d/old", [])
        let members: [Member] = [
            .file("file", "new"), .file("hard", "new"), .file("link", "new"), .directory("d/", mode: 0o711),
            .file("d/new"),
        ]
        try extract(archive(members), to: place.path)
        for name in ["file", "hard", "link"] {
            #expect(directory.text("in/\(name)") == "new")
            #expect(directory.mode("in/\(name)") == "100644")
        }
        #expect(directory.mode("in/d") == "40711")
        #expect(directory.tree.contains("in/d/old"))
        place.check()
        // The same again, links over files included.
        try extract(archive(members + [.link("file", "d"), .link("link", "hard", .hardLink)]), to: place.path)
        try extract(archive([.link("link", "hard", .hardLink)]), to: place.path)
        #expect(directory.mode("in/file") == "120777")
        #expect(directory.info("in/link")?.st_nlink == 2)
        place.check()
    }

    @Test(arguments: [false, true]) func nothingLandsOutside(walks: Bool) throws {
        let place = try Place()
        func refusal(_ members: Member...) -> String? { place.refusal(members, walks: walks) }
        #expect(refusal(.file("/etc/x")) == "archive entry \"/etc/x\": the name is absolute")
        #expect(refusal(.file("../out/x")) == "archive entry \"../out/x\": the name has \"..\" in it")
        #expect(refusal(.file("a/../../out/x")) == "archive entry \"a/../../out/x\": the name has \"..\" in it")
        #expect(refusal(.directory("..")) == "archive entry \"../\": the name has \"..\" in it")
        #expect(refusal(.file("")) == "archive entry \"\": it has no name")
        #expect(refusal(.link(".", "x")) == "archive entry \".\": it has no name")
        let out = "\(place.directory.path)/out"
        #expect(
            refusal(.link("l", out))
                == "archive entry \"l\": the symbolic link is absolute (\"\(out)\"); leave it out of the archive")
        for (name, target) in [("l", "../out"), ("l", ".."), ("d/l", "../../out"), ("d/l", "./.././../out")] {
            #expect(
                refusal(.link(name, target))
                    == "archive entry \"\(name)\": the symbolic link leads out of the directory (\"\(target)\"); "
                    + "leave it out of the archive")
        }
        // Judged by its text alone it stays inside; where it leads depends on what l is.
        #expect(
            refusal(.directory("a/b"), .link("a/b/l", "../.."), .link("m", "a/b/l/../out"))
                == "archive entry \"m\": the symbolic link's target \"a/b/l/../out\" has \"..\" behind a name")
        #expect(refusal(.link("e", "")) == "archive entry \"e\": it is a symbolic link to nothing")
        #expect(
            refusal(.link("h", "../out/kept", .hardLink))
                == "archive entry \"h\": a hard link to \"../out/kept\" leads out")
        #expect(
            refusal(.link("h", "\(out)/kept", .hardLink))
                == "archive entry \"h\": a hard link to \"\(out)/kept\" leads out")
        #expect(
            refusal(.link("h", "none", .hardLink))
                == "archive entry \"h\": there is no file \"none\" in the directory to link to")
        #expect(
            refusal(.special("f", .fifo)) == "archive entry \"f\": FIFOs are not extracted; leave it out of the archive"
        )
        for kind in [TarEntry.Kind.characterDevice, .blockDevice] {
            #expect(
                refusal(.special("dev", kind))
                    == "archive entry \"dev\": devices are not extracted; leave it out of the archive")
        }
    }

    @Test(arguments: [false, true]) func noLinkIsGoneThrough(walks: Bool) throws {
        let place = try Place()
        func refusal(_ members: Member...) -> String? { place.refusal(members, walks: walks) }
        let out = "\(place.directory.path)/out"
        // Neither the archive's own nor those that were there.
        let inTheWay = "a symbolic link or a file is where a directory is due; links are not followed"
        #expect(refusal(.directory("d"), .link("l", "d"), .file("l/x")) == "extract IN/l/x: \(inTheWay)")
        symlink(out, "\(place.path)/there")
        #expect(refusal(.file("there/x")) == "extract IN/there/x: \(inTheWay)")
        #expect(refusal(.directory("there")) == "extract IN/there: \(inTheWay)")
        #expect(refusal(.directory("there/new")) == "extract IN/there/new: \(inTheWay)")
        #expect(refusal(.link("there/l", "x")) == "extract IN/there/l: \(inTheWay)")
        #expect(
            refusal(.link("h", "there/kept", .hardLink))
                == "archive entry \"h\": there is no file \"there/kept\" in the directory to link to")
        #expect(
            refusal(.link("h", "there", .hardLink))
                == "archive entry \"h\": there is no file \"there\" in the directory to link to")
        #expect(refusal(.file("plain"), .file("plain/x")) == "extract IN/plain/x: \(inTheWay)")
        mkdir("\(place.path)/full", 0o755)
        try place.directory.write("in/full/x", [])
        #expect(refusal(.file("full")) == "extract IN/full: a directory is in the way")
        #expect(refusal(.link("full", "x")) == "extract IN/full: a directory is in the way")
        let long = String(repeating: "n", count: 256)
        #expect(refusal(.file(long)) == "extract IN/\(long): file name too long")
        #expect(refusal(.file(String(repeating: "d/", count: 2_100) + "f"))?.hasSuffix("file name too long") == true)
    }

    @Test func whatWasCompleteStays() throws {
        let place = try Place()
        let whole = archive([
            .directory("d/", mode: 0o500), .file("d/a", "a"), .file("d/b", String(repeating: "b", count: 3_000)),
        ])
        for cut in [600, 1_030, 1_535, 2_100, 4_000] {
            #expect(
                failure { try extract(Array(whole.prefix(cut)), to: place.path) }?.hasPrefix("the archive is cut off")
                    == true)
            #expect(failure { try extract(Array(whole.prefix(cut)), to: place.path, isCut: true) } == "cut")
            place.check()
            #expect(place.directory.mode("in/d") == "40500")
        }
        #expect(place.directory.text("in/d/a") == "a")
        #expect(!place.directory.tree.contains("in/d/b"))
    }

    @Test func gzip() throws {
        let place = try Place()
        let plain = archive([.file("a", String(repeating: "gzip ", count: 50_000))])
        let packed = try gzipped(plain)
        for piece in [1, 7, 5_000, 1 << 20] {
            try extract(packed, to: place.path, piece: piece)
            try extract(packed, to: place.path, .gzip, piece: piece)
            #expect(place.directory.info("in/a")?.st_size == 250_000)
            unlink("\(place.path)/a")
        }
        // Of several members, and with zeros behind.
        let parts = try gzipped(Array(plain.prefix(1_000))) + gzipped([]) + gzipped(Array(plain.dropFirst(1_000)))
        for piece in [1, 1 << 20] { try extract(parts + [0, 0, 0], to: place.path, piece: piece) }
        #expect(place.directory.info("in/a")?.st_size == 250_000)
        func refusal(_ bytes: [UInt8], _ compression: Unpacker.Compression = .byContent) -> String? {
            defer { place.check() }
            return failure { try extract(bytes, to: place.path, compression) }
        }
        #expect(refusal(plain, .gzip) == "the gzip data of the archive is damaged: incorrect header check")
        #expect(refusal(packed.dropLast()) == "the gzip data of the archive is cut off")
        #expect(refusal(Array(packed.prefix(1))) == "the archive is cut off behind byte 1")
        #expect(refusal([], .gzip) == "the gzip data of the archive is cut off")
        #expect(refusal([]) == "the archive is empty: not even the end of one is there")
        #expect(refusal(packed + [1]) == "the gzip data of the archive is cut off")
        #expect(refusal(packed + [1, 2, 3]) == "the gzip data of the archive is damaged: incorrect header check")
        var broken = packed
        broken[broken.count - 5] ^= 1
        #expect(refusal(broken) == "the gzip data of the archive is damaged: incorrect data check")
        #expect(refusal(try gzipped(Array("no archive".utf8) + plain))?.hasPrefix("this is not a tar archive") == true)
    }

    @Test func limits() throws {
        let place = try Place()
        let whole = archive([.file("a", "a"), .file("b", "b")])
        func refusal(_ bytes: Int, _ entries: Int, _ archive: [UInt8]) -> String? {
            defer { place.check() }
            return failure { try extract(archive, to: place.path, limits: .init(bytes: bytes, entries: entries)) }
        }
        let packed = try gzipped(whole)
        for archive in [whole, packed] {
            #expect(refusal(whole.count, 2, archive) == nil)
            #expect(refusal(whole.count + 1, 3, archive) == nil)
            #expect(
                refusal(whole.count - 1, 2, archive) == "the archive has over \(whole.count - 1) bytes; divide it")
            #expect(refusal(whole.count, 1, archive) == "the archive has over 1 entries; divide it")
        }
        // A bomb: it would fill the disk, but for the limit.
        var entry = Member.file("zeros").entry
        entry.size = 1 << 40
        let writer = try GzipWriter()
        var bomb = Array(writer.compress(ByteBuffer(bytes: TarWriter.header(entry)), isLast: false).readableBytesView)
        for _ in 0..<64 {
            bomb += writer.compress(ByteBuffer(repeating: 0, count: 1 << 20), isLast: false).readableBytesView
        }
        #expect(bomb.count < 1 << 20)
        #expect(refusal(8 << 20, 10, bomb) == "the archive has over \(8 << 20) bytes; divide it")
        #expect(!place.directory.tree.contains("in/zeros"))
    }

    @Test func directoryNamesAreBounded() throws {
        let place = try Place()
        let name = String(repeating: String(repeating: "d", count: 200) + "/", count: 20)
        let count = FilesLimits.archiveDirectoryNameBytes / (name.utf8.count - 1)
        let one = TarWriter.header(Member.directory(name).entry)
        var most: [UInt8] = []
        most.reserveCapacity(one.count * (count + 1))
        for _ in 0..<count { most += one }
        #expect(failure { try extract(most + TarBlock.end, to: place.path) } == nil)
        #expect(
            failure { try extract(most + one + TarBlock.end, to: place.path) }
                == "the names of the archive's directories have over 16777216 bytes")
    }

    /// Another process swaps a directory of the tree for a link that leads out, again and again.
    @Test(arguments: [false, true]) func aSwappedDirectoryLeadsNowhere(walks: Bool) async throws {
        let place = try Place()
        let path = place.path
        mkdir("\(path)/d", 0o755)
        symlink("\(place.directory.path)/out", "\(path)/link")
        let swapper = Swapper("\(path)/d", "\(path)/link")
        swapper.start()
        var extracted = 0
        var refused = 0
        let whole = archive([.file("d/f", "x")] + [.directory("d/e"), .link("d/l", "x")])
        for _ in 0..<500 {
            do {
                try extract(whole, to: path, walks: walks)
                extracted += 1
            } catch is FilesError {
                refused += 1
            }
        }
        swapper.stop()
        print("extracted \(extracted), refused \(refused)")
        #expect(refused > 0 && extracted > 0)
        #expect(place.directory.tree.filter { $0.hasPrefix("out") } == ["out", "out/kept"])
    }

    @Test func closesWhatItOpens() throws {
        let place = try Place()
        let whole = archive([.directory("d/"), .file("d/a", String(repeating: "a", count: 3_000)), .link("d/l", "a")])
        for _ in 0..<300 {
            try extract(gzipped(whole), to: place.path)
            _ = failure { try extract(Array(whole.prefix(1_500)), to: place.path) }
            _ = failure { try extract(archive([.file("d/x/../y")]), to: place.path) }
        }
        // Other tests have files of theirs open.
        let open = directoryEntries("/proc/self/fd").compactMap { try? readLink("/proc/self/fd/\($0)") }
        #expect(open.filter { $0.hasPrefix(place.directory.path) } == [])
    }
}

/// Exchanges two names until it is stopped.
private final class Swapper: Sendable {
    private let names: (String, String)
    private let isStopped = Atomic(false)
    private let ended = DispatchSemaphore(value: 0)

    init(_ a: String, _ b: String) { names = (a, b) }

    func start() {
        Thread.detachNewThread { [self] in
            while !isStopped.load(ordering: .relaxed) { test_exchange(names.0, names.1) }
            ended.signal()
        }
    }

    func stop() {
        isStopped.store(true, ordering: .relaxed)
        ended.wait()
    }
}
