import AgentTestSupport
import Foundation
import Testing

@testable import Files

/// Against the programs that everyone uses.
@Suite(.serialized, .timeLimit(.minutes(10)), .blocking) struct TarPeerTests {
    /// The same tree, made by the shell.
    static let script = """
        set -e; umask 022; mkdir -p d/e; printf 'aaaa\\n' > d/a; : > empty; chmod 640 empty; chmod 750 d
        ln -s ../d/a d/e/l; ln d/a hard; head -c 70000 /dev/urandom > big
        long=$(printf 'n%.0s' $(seq 150)); printf long > "d/$long"; ln -s "$long" d/long
        bytes=$(printf 'caf\\351'); printf latin > "$bytes"
        deep=$(printf 'directory/%.0s' $(seq 30)); mkdir -p "$deep"; printf deep > "$deep/f"
        touch -d '2001-02-03 04:05:06.789 UTC' d/a; touch -d '2001-02-03 04:05:07 UTC' d
        """

    private func made(_ directory: TemporaryDirectory) throws {
        mkdir("\(directory.path)/t", 0o755)
        let result = try CommandResult.of(["sh", "-c", "cd \(directory.path)/t; \(Self.script)"])
        try #require(result.code == 0, "\(result.errors)")
    }

    @Test(arguments: ["gnu", "pax", "ustar", "v7", "oldgnu"])
    func readsWhatTarWrites(format: String) throws {
        let directory = try TemporaryDirectory()
        try made(directory)
        // Formats that have no long names.
        let excluded =
            format == "v7" || format == "ustar" ? ["--exclude=nnn*", "--exclude=long", "--exclude=directory"] : []
        let result = try CommandResult.of(
            ["tar", "-C", "\(directory.path)/t", "--format=\(format)", "--sort=name", "-cf", "\(directory.path)/a.tar"]
                + excluded + ["."])
        #expect(result.code == 0, "\(result.errors)")
        let members = try FilesTests.members(of: directory.read("a.tar"))
        func find(_ name: String) -> Member? { members.first { $0.entry.name == Array("./\(name)".utf8) } }
        #expect(find("d/")?.entry.mode == 0o750)
        #expect(find("d/a")?.content == Array("aaaa\n".utf8))
        #expect(find("d/a")?.entry.seconds == 981_173_106)
        #expect(find("d/a")?.entry.nanoseconds == (format == "pax" ? 789_000_000 : 0))
        #expect(find("empty")?.entry.mode == 0o640)
        #expect(find("d/e/l")?.entry.target == Array("../d/a".utf8))
        #expect(find("hard")?.entry.kind == .hardLink)
        #expect(find("hard")?.entry.target == Array("./d/a".utf8))
        #expect(try find("big")?.content == directory.read("t/big"))
        #expect(members.contains { $0.entry.name == Array("./caf".utf8) + [0xE9] && $0.content == Array("latin".utf8) })
        if excluded.isEmpty {
            #expect(find("d/" + String(repeating: "n", count: 150))?.content == Array("long".utf8))
            #expect(find("d/long")?.entry.target == Array(String(repeating: "n", count: 150).utf8))
            #expect(find(String(repeating: "directory/", count: 30) + "f")?.content == Array("deep".utf8))
        }
    }

    @Test func refusesWhatTarStoresSparsely() throws {
        for format in ["gnu", "pax"] {
            let directory = try TemporaryDirectory()
            let result = try CommandResult.of(
                [
                    "sh", "-c",
                    "cd \(directory.path); truncate -s 10M s; printf x >> s; tar --format=\(format) -S -cf a.tar s",
                ])
            try #require(result.code == 0)
            let text = failure { _ = try FilesTests.members(of: directory.read("a.tar")) }
            #expect(text?.hasSuffix("not supported") == true, "\(text ?? "")")
        }
    }

    /// Small ones are shorter than a header of tar.
    @Test(arguments: [1, 100_000], ["xz", "bzip2", "gzip"])
    func whatTarCompressesOtherwiseIsNamed(size: Int, program: String) throws {
        let directory = try TemporaryDirectory()
        try directory.write("f", (0..<size).map { _ in UInt8.random(in: 0...255) })
        mkdir("\(directory.path)/in", 0o755)
        let result = try CommandResult.of(
            ["tar", "-C", directory.path, "--use-compress-program=\(program)", "-cf", "\(directory.path)/a", "f"])
        try #require(result.code == 0, "\(result.errors)")
        let text = failure { try extract(try directory.read("a"), to: "\(directory.path)/in") }
        let expected =
            "this is an archive compressed with \(program); "
            + "send a tar archive that is plain or compressed with gzip"
        #expect(text == (program == "gzip" ? nil : expected))
        #expect(directory.tree.contains("in/f") == (program == "gzip"))
    }

    @Test func tarReadsWhatItWrites() throws {
        let directory = try TemporaryDirectory()
        // GNU tar takes no directory of 300 levels in one name on some systems; the rest is as in the codec's tests.
        var members = TarTests.members.filter { $0.entry.kind != .hardLink && $0.entry.size < 1 << 20 }
        members.append(.link("hard", "d/a", .hardLink))
        let odd: [UInt8] = Array("odd ".utf8) + [0xFF, 0x0A] + Array(repeating: 0xE9, count: 120)
        members.append(Member(entry: TarEntry(kind: .file, name: odd, size: 3), content: [1, 2, 3]))
        try directory.write("a.tar", archive(members))
        mkdir("\(directory.path)/t", 0o755)
        let listed = try CommandResult.of(["tar", "-C", "\(directory.path)/t", "-xpf", "\(directory.path)/a.tar"])
        #expect(listed.code == 0, "\(listed.errors)")
        for member in members where member.entry.kind == .file {
            let path = directory.path + "/t/"
            let content = withName(Array(path.utf8) + member.entry.name) { name in
                var info = stat()
                guard lstat(name, &info) == 0 else { return -1 }
                #expect(info.st_size == member.content.count)
                #expect(info.st_mtim.tv_sec == member.entry.seconds)
                return CInt(info.st_mode & 0o777)
            }
            #expect(content == CInt(member.entry.mode & 0o777), "\(member.entry)")
        }
        #expect(directory.text("t/hard") == "aaaa\n")
        #expect(directory.info("t/hard")?.st_nlink == 2)
        #expect(directory.text("t/d/l") == "aaaa\n")
    }

    @Test(.enabled(if: works("python3", "-c", "import tarfile")))
    func pythonReadsWhatItWritesAndTheOtherWay() throws {
        let directory = try TemporaryDirectory()
        let odd: [UInt8] = Array("odd ".utf8) + [0xFF] + Array(repeating: 0xE9, count: 120)
        let members = TarTests.members + [Member(entry: TarEntry(kind: .file, name: odd, size: 3), content: [1, 2, 3])]
        try directory.write("a.tar", archive(members))
        // Reads ours, and writes the same entries in all formats that can hold them.
        let script = """
            import sys, tarfile
            old = tarfile.open(sys.argv[1] + "/a.tar", errors="surrogateescape")
            for name, format in ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT):
                new = tarfile.open(f"{sys.argv[1]}/{name}.tar", "w", format=format, errors="surrogateescape")
                for entry in old:
                    entry.pax_headers = {}
                    new.addfile(entry, old.extractfile(entry) if entry.isreg() else None)
                new.close()
            """
        let result = try CommandResult.of(["python3", "-c", script, directory.path])
        #expect(result.code == 0, "\(result.errors)")
        let wanted = members.map { member in
            var member = member
            // It takes the slash off.
            if member.entry.kind == .directory { member.entry.name.removeLast() }
            return member
        }
        for format in ["gnu", "pax"] {
            var read = try FilesTests.members(of: directory.read("\(format).tar"))
            for index in read.indices where read[index].entry.kind == .directory {
                if read[index].entry.name.last == UInt8(ascii: "/") { read[index].entry.name.removeLast() }
            }
            #expect(read == wanted)
        }
    }
}
