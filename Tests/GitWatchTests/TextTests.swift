import AgentCore
import AgentTestSupport
import Foundation
import NIOCore
import Testing

@testable import GitWatch

@Suite struct TextTests {
    private func side(_ bytes: [UInt8]) -> DiffText.Side {
        DiffText.Side(mode: 0o100644, id: String(repeating: "1", count: 40), content: .bytes(bytes))
    }

    private func new(_ bytes: [UInt8]) throws -> FileDiff {
        try #require(
            try DiffText.file(Array("f".utf8), old: nil, new: side(bytes), kind: .automatic) { _, _, _ in })
    }

    private func text(_ bytes: [UInt8]?) -> String? { bytes.map { String(decoding: $0, as: UTF8.self) } }

    @Test func onlyALongDiffOfAFileCanBeCut() throws {
        let head = try new([65, 10]).size - "@@ -0,0 +1 @@\n+A\n".utf8.count
        let hunk = "@@ -0,0 +1 @@\n+".utf8.count
        for (over, cut) in [(-1, false), (0, false), (1, true)] {
            let count = GitWatchLimits.fileDiffBytes + over - head - hunk
            let diff = try new([UInt8](repeating: 65, count: count - 1) + [10])
            #expect(diff.size == GitWatchLimits.fileDiffBytes + over && diff.whole?.count == diff.size)
            #expect((diff.short != nil) == cut)
        }
        let long = try new([UInt8](repeating: 10, count: 1 << 20))
        #expect(text(long.short)?.hasSuffix("File diff too large to show. Diff size: 2.1 MiB\n") == true)
        #expect(long.whole != nil)
        let tooLong = try new([UInt8](repeating: 10, count: 2 << 20))
        #expect(text(tooLong.short)?.hasSuffix("File diff too large to show. Diff size: 4.1 MiB\n") == true)
        #expect(tooLong.whole == nil && tooLong.size > GitWatchLimits.totalDiffBytes)
    }

    @Test func aLargeFileIsNamedOnly() throws {
        let large = DiffText.Side(mode: 0o100644, id: nil, content: .tooLarge(3_250_000))
        let diff = try DiffText.file(Array("f".utf8), old: nil, new: large, kind: .automatic) { _, _, _ in }
        #expect(
            text(diff?.whole)
                == "diff --git a/f b/f\nnew file mode 100644\nFile too large to diff. Size: 3.1 MiB\n")
        #expect(diff?.short == nil)
    }

    @Test func sizesReadAsPeopleWriteThem() {
        #expect(DiffText.size(300 << 10) == "300 KiB")
        #expect(DiffText.size((256 << 10) + 1) == "257 KiB")
        #expect(DiffText.size(2 << 20) == "2.0 MiB")
        #expect(DiffText.size((2 << 20) + 1) == "2.1 MiB")
    }

    @Test func limitsOfARepository() async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) { try checkLimitsOfARepository() }
    }

    private func checkLimitsOfARepository() throws {
        let scene = try Scene(
            """
            mk r; echo 1 > a; ci
            head -c \((2 << 20) + 1) /dev/zero | tr '\\0' x > big; head -c 2097152 /dev/zero | tr '\\0' y > edge
            seq 1 60000 > long; git add big; chmod +x big
            """)
        let tree = try #require(Discovery.workTree(at: scene.root))
        func scan(_ plain: Bool) throws -> RepositorySnapshot {
            try plain
                ? TestLibgit.with { try PlainRepository($0, tree, command: scene.command).snapshot() }
                : CLIRepository(command: scene.command, tree: tree).snapshot()
        }
        for plain in [true, false] {
            let snapshot = try scan(plain)
            let text = String(decoding: snapshot.diff, as: UTF8.self)
            #expect(text.contains("File too large to diff. Size: 2.1 MiB\n"), "\(plain)")
            #expect(text.contains("diff --git a/edge b/edge\n"))
            // 2 MiB of edge and over 256 KiB of long have room beside each other.
            #expect(!text.contains("File diff too large to show.") && text.hasSuffix("+60000\n"), "\(plain)")
            let whole = try String(decoding: scene.oracle(), as: UTF8.self)
            for part in ["diff --git a/edge b/edge\n", "diff --git a/long b/long\n"] {
                let start = try #require(whole.range(of: part)).lowerBound
                #expect(text.hasSuffix(whole[start...]), "\(plain)")
            }
        }
        // The longest gives way, the other has room again.
        try scene.run("seq 1 100000 > longer")
        for plain in [true, false] {
            let text = String(decoding: try scan(plain).diff, as: UTF8.self)
            #expect(text.contains("b/edge\nnew file mode 100644\nindex "), "\(plain)")
            #expect(text.components(separatedBy: "File diff too large to show. Diff size: 2.1 MiB\n").count == 2)
            #expect(text.contains("+60000\n") && text.hasSuffix("+100000\n"), "\(plain)")
        }
        try scene.run("for i in $(seq 1 20); do seq 1 30000 > f$i; done")
        for plain in [true, false] {
            let snapshot = try scan(plain)
            let text = String(decoding: snapshot.diff, as: UTF8.self)
            #expect(
                text == "Total diff too large to show. Size: 6.9 MiB. Showing branch and remote only.\n", "\(plain)")
            #expect(snapshot.branch == "main")
        }
    }

    @Test func untrackedFilesHaveALimit() async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) { try checkUntrackedFilesHaveALimit() }
    }

    private func checkUntrackedFilesHaveALimit() throws {
        let scene = try Scene("mk r; echo 1 > a; ci; mkdir u; cd u; seq 1 10003 | xargs touch")
        let tree = try #require(Discovery.workTree(at: scene.root))
        let snapshot = try TestLibgit.with { try PlainRepository($0, tree, command: scene.command).snapshot() }
        let text = String(decoding: snapshot.diff, as: UTF8.self)
        #expect(text.hasSuffix("3 more untracked files are not shown.\n"))
        let cli = try CLIRepository(command: scene.command, tree: tree).snapshot()
        #expect(cli.diff == snapshot.diff)
    }

    @Test func credentialsAreCutOut() {
        for (url, clean) in [
            ("https://user:secret@example.com/a.git", "https://example.com/a.git"),
            ("https://token@example.com/a", "https://example.com/a"),
            ("https://u:p@ss@example.com/a", "https://example.com/a"),
            ("ssh://git:pw@example.com/a", "ssh://git@example.com/a"),
            ("git@example.com:a/b.git", "git@example.com:a/b.git"),
            ("https://example.com/a@b", "https://example.com/a@b"), ("/srv/git/a", "/srv/git/a"),
        ] { #expect(Discovery.withoutCredentials(url) == clean) }
    }

    @Test func timestamps() {
        #expect(SnapshotMessages.timestamp(0) == "1970-01-01T00:00:00Z")
        #expect(SnapshotMessages.timestamp(951_782_400) == "2000-02-29T00:00:00Z")
        #expect(SnapshotMessages.timestamp(1_795_395_603) == "2026-11-23T01:00:03Z")
    }

    @Test func messagesHaveALimit() throws {
        let diff = [UInt8](repeating: UInt8(ascii: "x"), count: 2 << 20)
        let entries = (0..<3).map {
            EncodedEntry(root: "/\($0)", RepositorySnapshot(branch: "main", origin: "", diff: diff))
        }
        let messages = SnapshotMessages.changes(entries, wallSeconds: 0)
        #expect(messages.count == 3)
        #expect(messages.allSatisfy { $0.bytes <= GitWatchLimits.messageBytes })
        // Escapes make six bytes of one.
        let odd = EncodedEntry(
            root: "/x",
            RepositorySnapshot(branch: "b", origin: "", diff: [UInt8](repeating: 1, count: 3 << 20)))
        #expect(String(buffer: odd.json).contains("Total diff too large to show. Size: 3.0 MiB."))
        let text = try #require(SnapshotMessages.changes([odd], wallSeconds: 0).first?.text)
        #expect(
            text.hasPrefix(#"{"type":"changes","scanned_at":"1970-01-01T00:00:00Z","repositories":[{"repo_root":"/x","#)
        )
    }

    /// Clients that do not read cost their queues, not a snapshot each.
    @Test func aSnapshotIsInMemoryOnce() throws {
        let diff = [UInt8](repeating: UInt8(ascii: "x"), count: 1 << 20)
        let entry = EncodedEntry(root: "/r", RepositorySnapshot(branch: "main", origin: "", diff: diff))
        func place(_ buffer: ByteBuffer) -> UnsafeRawPointer? { buffer.withUnsafeReadableBytes { $0.baseAddress } }
        for second in 0..<20 as Range<Int64> {
            let message = try #require(SnapshotMessages.changes([entry], wallSeconds: second).first)
            let large = message.parts.filter { $0.readableBytes > 1_024 }
            #expect(large.map(place) == [place(entry.json)])
            #expect(message.text.hasSuffix("x\"}]}"))
        }
    }

    @Test func framesSurviveAnyCut() throws {
        let reply = WorkerReply(
            id: 7,
            body: .snapshot(RepositorySnapshot(branch: "b", origin: "o", diff: [0, 255, 10]), byCLI: true))
        let request = WorkerRequest(
            id: 9, kind: .scan, root: "/ü", full: true, avoidsLibgit: false, hasSnapshot: true,
            paths: [[255], [97, 10]])
        let bytes = WorkerFrames.encode(reply) + WorkerFrames.encode(request)
        for cut in 0...bytes.count {
            var splitter = FrameSplitter()
            var frames: [ArraySlice<UInt8>] = []
            for part in [bytes[..<cut], bytes[cut...]] {
                frames += Array(part).withUnsafeBytes { splitter.add($0) } ?? []
            }
            #expect(frames.count == 2)
            #expect(WorkerFrames.reply(frames[0]) == reply)
            #expect(WorkerFrames.request(frames[1]) == request)
            for shorter in 0..<frames[1].count { _ = WorkerFrames.request(frames[1].prefix(shorter)) }
        }
        var splitter = FrameSplitter()
        let huge: [UInt8] = [0xFF, 0xFF, 0xFF, 0xFF]
        let refused = huge.withUnsafeBytes { splitter.add($0) } == nil
        #expect(refused)
    }

    @Test func pathsAreBounded() throws {
        var table = PathTable()
        let ids = (0..<1_001).map { _ in UUID() }
        for number in 0..<1_001 { table.add(["/p\(number)", "relative"], to: [ids[0]]) }
        #expect(table.paths(of: ids[0]).count == 1_000)
        #expect(!table.paths(of: ids[0]).contains("/p0") && table.paths(of: ids[0]).contains("/p1"))
        for id in ids.dropFirst() { table.add(["/a"], to: [id]) }
        #expect(table.chatCount == 1_000)
        #expect(table.paths(of: ids[0]).isEmpty, "the least recently touched chat went")
    }
}
