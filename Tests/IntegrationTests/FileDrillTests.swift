import AgentTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

/// Concurrent editors, and a daemon that is killed among them.
@Suite(.timeLimit(.minutes(20)), .blocking) struct FileDrillTests {
    private static func edit(_ path: String, _ search: String, _ replace: String) -> String {
        RawConnection.json(["files": [["path": path, "edits": [["search": search, "replace": replace]]]]])
    }

    /// Two clients add a line each time; none of them is lost.
    @Test func concurrentEditsLoseNoUpdate() async throws {
        let daemon = try DaemonProcess()
        let scratch = try TemporaryDirectory()
        let path = "\(scratch.path)/f"
        try Data("begin\nend\n".utf8).write(to: URL(fileURLWithPath: path))
        try await withThrowingTaskGroup { group in
            for client in 0..<4 {
                group.addTask(executorPreference: BlockingExecutor.shared) {
                    let connection = try daemon.connect()
                    for number in 0..<50 {
                        let line = "client \(client) line \(number)"
                        let answer =
                            client == 3
                            ? try connection.request(
                                "POST", "/api/v0/write-file?path=\(path)&append=true", body: "\(line)\n")
                            : try connection.request(
                                "POST", "/api/v0/edit-files", body: Self.edit(path, "begin\n", "begin\n\(line)\n"))
                        #expect(answer.status == 200, "\(answer.text)")
                    }
                }
            }
            try await group.waitForAll()
        }
        let lines = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n").map(String.init)
        #expect(lines.count == 202)
        #expect(Set(lines).count == 202)
        #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.path) == ["f"])
    }

    /// Each file is one of its versions whenever the daemon dies, and the next start clears what was left.
    @Test func killsLeaveWholeFiles() async throws {
        var random = SeededGenerator("kills")
        let (scratch, directory) = (try TemporaryDirectory(), try TemporaryDirectory())
        let files = (0..<20).map { "\(scratch.path)/file-\($0)" }
        // A version is its number in every line: a mixture of two shows.
        func content(_ version: Int) -> String { String(repeating: "version \(version)\n", count: 2_000) }
        for file in files { try Data(content(0).utf8).write(to: URL(fileURLWithPath: file)) }
        var leftovers = 0
        for _ in 0..<200 {
            let daemon = try DaemonProcess(directory: directory)
            // The start before has removed what the kill before left.
            let names = try FileManager.default.contentsOfDirectory(atPath: scratch.path)
            #expect(names.count == 20, "\(names.filter { $0.hasPrefix(".") })")
            let done = Count()
            let limit = Int.random(in: 1...40, using: &random)
            let order = files.shuffled(using: &random)
            let killer = Thread { @Sendable [pid = daemon.pid] in
                while done.value.withLock({ $0 }) < limit { sched_yield() }
                kill(pid, SIGKILL)
            }
            killer.start()
            await withTaskGroup { group in
                for client in 0..<4 {
                    group.addTask(executorPreference: BlockingExecutor.shared) {
                        guard let connection = try? daemon.connect() else { return }
                        for round in 0..<50 {
                            let file = order[(client + 4 * round) % 20]
                            let body = RawConnection.json([
                                "files": [
                                    [
                                        "path": file,
                                        "edits": [["search": "version ", "replace": "version 1", "replace_all": true]],
                                    ]
                                ]
                            ])
                            let answer = try? connection.request("POST", "/api/v0/edit-files", body: body)
                            guard let answer else { return }
                            #expect(answer.status == 200)
                            done.value.withLock { $0 += 1 }
                        }
                    }
                }
            }
            done.value.withLock { $0 = .max }
            _ = try? await daemon.wait()
            for file in files {
                let text = try String(contentsOfFile: file, encoding: .utf8)
                let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
                #expect(lines.count == 2_001 && Set(lines.dropLast()).count == 1, "\(file): \(lines.count) lines")
                if text.utf8.count > 200_000 { try Data(content(0).utf8).write(to: URL(fileURLWithPath: file)) }
            }
            leftovers += try FileManager.default.contentsOfDirectory(atPath: scratch.path).count - 20
        }
        // Otherwise this would prove nothing about them.
        print("temporary files that kills left: \(leftovers)")
        _ = try DaemonProcess(directory: directory)
        #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.path).count == 20)
    }

    /// A person who watches a chat's repositories sees what the chat edits through this API.
    @Test func theGitWatcherShowsAChatsEdit() async throws {
        let daemon = try DaemonProcess()
        let scratch = try TemporaryDirectory()
        let made = try CommandResult.of([
            "/bin/sh", "-c",
            "cd \"$0\" && git init -q && git config user.email a@b && git config user.name n && echo apple > f"
                + " && git add f && git commit -qm first",
            scratch.path,
        ])
        try #require(made.code == 0, "\(made.errors)")
        let (chat, parent) = (newChat(), newChat())
        let watcher = try daemon.connect()
        let socket = try TestWebSocket(watcher, "/api/v0/git/watch?chat_id=\(parent)")
        let connection = try daemon.connect()
        let answer = try connection.request(
            "POST", "/api/v0/edit-files",
            headers: ["Coder-Chat-Id": chat, "Coder-Ancestor-Chat-Ids": "[\"\(parent)\"]"],
            body: Self.edit("\(scratch.path)/f", "apple", "pear"))
        #expect(answer.status == 200)
        var seen = ""
        while !seen.contains("+pear") {
            guard case .text(let text) = try socket.next() else {
                Issue.record("the watcher closed after \(seen)")
                break
            }
            seen += text
        }
    }
}

private final class Count: Sendable {
    let value = Mutex(0)
}
