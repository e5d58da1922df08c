import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import NIOCore
import Testing

@testable import Files

/// As a route makes it.
func packed(
    _ path: String, limits: ArchiveLimits = ArchiveLimits(), skipsUnreadable: Bool = false, compresses: Bool = false,
    meanwhile: (Int) throws -> Void = { _ in }
) throws -> [UInt8] {
    let source = try Packer.Source(path)
    let check = try PackingCheck(source, limits: limits)
    while try check.step(3) {}
    if !skipsUnreadable { try check.requireReadable() }
    let packer = try Packer(source, limits: limits, skipsUnreadable: skipsUnreadable, compresses: compresses)
    var bytes: [UInt8] = []
    while let piece = try packer.next() {
        bytes += piece.readableBytesView
        try meanwhile(bytes.count)
    }
    return bytes
}

private func names(_ members: [Member]) -> [String] { members.map { String(decoding: $0.entry.name, as: UTF8.self) } }

@Suite(.timeLimit(.minutes(10)), .blocking) struct PackTests {
    private func tree() throws -> TemporaryDirectory {
        let directory = try TemporaryDirectory()
        let script = """
            set -e; cd \(directory.path); umask 022; mkdir -p t/d/e t/empty; printf aaaa > t/d/a; chmod 4751 t/d/a
            ln t/d/a t/hard; ln -s ../../outside t/d/l; ln -s nothing t/dangling; mkfifo t/fifo
            head -c 700000 /dev/urandom > t/big; touch -d @1000 t/d/a t/d; printf x > t/.hidden; ln -s t/d way
            printf b > "$(printf 't/caf\\351')"
            """
        let result = try CommandResult.of(["sh", "-c", script])
        try #require(result.code == 0, "\(result.errors)")
        return directory
    }

    @Test(arguments: [false, true]) func packsATree(compresses: Bool) throws {
        let directory = try tree()
        var bytes = try packed("\(directory.path)/t", compresses: compresses)
        if compresses {
            try directory.write("a.gz", bytes)
            let result = try CommandResult.of(["sh", "-c", "gzip -dc \(directory.path)/a.gz > \(directory.path)/a.tar"])
            try #require(result.code == 0, "\(result.errors)")
            bytes = try directory.read("a.tar")
        }
        let members = try FilesTests.members(of: bytes)
        #expect(
            members.map(\.entry.name)
                == [
                    "t/", "t/.hidden", "t/big", "t/caf", "t/d/", "t/d/a", "t/d/e/", "t/d/l", "t/dangling", "t/empty/",
                    "t/hard",
                ].map { name in Array(name.utf8) + (name == "t/caf" ? [0xE9] : []) })
        func find(_ name: String) throws -> Member { try #require(members.first { $0.entry.name == Array(name.utf8) }) }
        #expect(
            try find("t/d/a")
                == Member(
                    entry: TarEntry(kind: .file, name: Array("t/d/a".utf8), size: 4, mode: 0o4751, seconds: 1_000),
                    content: Array("aaaa".utf8)))
        #expect(try find("t/hard").content == Array("aaaa".utf8))
        #expect(try find("t/hard").entry.kind == .file)
        #expect(try find("t/d/").entry.seconds == 1_000)
        #expect(try find("t/d/l").entry.target == Array("../../outside".utf8))
        #expect(try find("t/big").content == directory.read("t/big"))
    }

    @Test func namesBeginWithThePathsLast() throws {
        let directory = try tree()
        #expect(names(try FilesTests.members(of: packed("\(directory.path)/t/d"))) == ["d/", "d/a", "d/e/", "d/l"])
        #expect(names(try FilesTests.members(of: packed("\(directory.path)/t/d/"))) == ["d/", "d/a", "d/e/", "d/l"])
        #expect(names(try FilesTests.members(of: packed("\(directory.path)/t/d/."))) == ["./", "./a", "./e/", "./l"])
        // The path itself may be a link.
        #expect(
            names(try FilesTests.members(of: packed("\(directory.path)/way"))) == ["way/", "way/a", "way/e/", "way/l"])
        let file = try FilesTests.members(of: packed("\(directory.path)/t/hard"))
        #expect(names(file) == ["hard"])
        #expect(file[0].content == Array("aaaa".utf8))
        func refusal(_ path: String) -> String? {
            failure { _ = try packed(directory.path + path) }?.replacing(directory.path, with: "")
        }
        #expect(refusal("/none") == "open /none: no such file or directory")
        #expect(refusal("/t/fifo") == "open /t/fifo: not a regular file")
        #expect(refusal("/t/hard/x") == "open /t/hard/x: not a directory")
    }

    @Test func goesThereAndBack() throws {
        let directory = try TemporaryDirectory()
        let script = """
            set -e; cd \(directory.path); umask 022; mkdir -p t/a/b out
            for i in $(seq 300); do printf $i > t/a/$i; done
            ln -s ../a/1 t/a/l; ln -s . t/a/b/here; chmod 500 t/a/b; touch -d @5 t/a
            """
        try #require(try CommandResult.of(["sh", "-c", script]).code == 0)
        let unpacker = try extract(packed("\(directory.path)/t/.", compresses: true), to: "\(directory.path)/out")
        #expect(unpacker.counts == .init(files: 300, directories: 2, links: 2, bytes: 792))
        // Times below a second are not kept.
        let list =
            "find * -depth -print0 | xargs -0 touch -hd @7; find . -mindepth 1 -printf '%p %y %m %T@ %l\\n' | sort; "
            + "cat a/[0-9]*"
        let (before, after) = (
            try CommandResult.of([
                "sh", "-c", "cd \(directory.path)/t; \(list)",
            ]),
            try CommandResult.of([
                "sh", "-c", "cd \(directory.path)/out; \(list)",
            ])
        )
        #expect(before.output == after.output)
        #expect(before.output.utf8.count > 5_000)
    }

    @Test func limits() throws {
        let directory = try tree()
        let path = "\(directory.path)/t"
        let size = try packed(path).count
        func refusal(_ bytes: Int, _ entries: Int) -> String? {
            failure { _ = try packed(path, limits: .init(bytes: bytes, entries: entries)) }
        }
        #expect(refusal(size, 11) == nil)
        #expect(refusal(size + 1, 12) == nil)
        #expect(refusal(size - 1, 11) == "the archive has over \(size - 1) bytes; divide it")
        #expect(refusal(size, 10) == "the archive has over 10 entries; divide it")
        // Before the first byte.
        func check(_ bytes: Int) throws {
            let check = try PackingCheck(try Packer.Source(path), limits: .init(bytes: bytes))
            while try check.step() {}
        }
        #expect(failure { try check(size) } == nil)
        #expect(failure { try check(size - 1) } == "the archive has over \(size - 1) bytes; divide it")
        let file = try packed("\(path)/big").count
        #expect(failure { _ = try packed("\(path)/big", limits: .init(bytes: file)) } == nil)
        #expect(
            failure { _ = try packed("\(path)/big", limits: .init(bytes: file - 1)) }?.hasSuffix("divide it") == true)
        // What grows beyond it when the archive has begun ends it.
        let cut = failure {
            _ = try packed(path, limits: .init(bytes: size)) { count in
                if count < 300_000 { try directory.write("t/hard", [UInt8](repeating: 0, count: 5_000)) }
            }
        }
        #expect(cut == "the archive has over \(size) bytes; divide it")
    }

    @Test func filesThatChangeWhileTheyAreRead() throws {
        let directory = try TemporaryDirectory()
        mkdir("\(directory.path)/t", 0o755)
        for name in ["a", "b"] { try directory.write("t/\(name)", [UInt8](repeating: 0x61, count: 600_000)) }
        var turn = 0
        let bytes = try packed("\(directory.path)/t") { _ in
            turn += 1
            guard turn == 1 else { return }
            truncate("\(directory.path)/t/a", 400_000)
            try directory.write("t/c", [])
        }
        let members = try FilesTests.members(of: bytes)
        #expect(names(members) == ["t/", "t/a", "t/b"])
        #expect(members[1].content.count == 600_000)
        #expect(members[1].content.prefix(400_000).allSatisfy { $0 == 0x61 })
        #expect(members[1].content.dropFirst(400_000).allSatisfy { $0 == 0 })
        // One that grows is cut.
        turn = 0
        let grown = try packed("\(directory.path)/t/b") { _ in
            turn += 1
            if turn == 1 { truncate("\(directory.path)/t/b", 900_000) }
        }
        #expect(try FilesTests.members(of: grown)[0].content.count == 600_000)
        // One that goes is left out.
        turn = 0
        let less = try packed("\(directory.path)/t") { _ in
            turn += 1
            if turn == 1 { unlink("\(directory.path)/t/b") }
        }
        #expect(names(try FilesTests.members(of: less)) == ["t/", "t/a", "t/c"])
    }

    @Test(.enabled(if: geteuid() == 0))
    func whatMayNotBeRead() throws {
        let directory = try tree()
        chmod("\(directory.path)/t/d", 0)
        chmod("\(directory.path)/t/big", 0)
        chmod(directory.path, 0o755)
        // On a thread of its own, with the rights of another user.
        let (refused, skipped) = try asOtherUser {
            (
                failure { _ = try packed("\(directory.path)/t") }?.replacing(directory.path, with: ""),
                names(try FilesTests.members(of: packed("\(directory.path)/t", skipsUnreadable: true)))
            )
        }
        #expect(
            refused
                == "open /t/big: permission denied (and 1 more); "
                + "add skip_unreadable=true to leave out what may not be read"
        )
        #expect(
            skipped.filter { !$0.hasPrefix("t/caf") } == [
                "t/", "t/.hidden", "t/d/", "t/dangling", "t/empty/", "t/hard",
            ])
        chmod("\(directory.path)/t/d", 0o755)
    }

    @Test func acceptedCodings() {
        for yes in ["gzip", "deflate, GZIP;q=0.5", "*", "x-gzip", "br , gzip ; q=1.000"] {
            #expect(ArchiveRoutes.acceptsGzip([yes]), "\(yes)")
        }
        for no in ["", "br", "gzip;q=0", "*;q=0.0", "gzip;q=0.000, *", "identity"] {
            #expect(!ArchiveRoutes.acceptsGzip([no]), "\(no)")
        }
        #expect(ArchiveRoutes.acceptsGzip(["br", "gzip"]))
    }
}
