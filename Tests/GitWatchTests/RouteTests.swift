import AgentTestSupport
import Foundation
import Testing

@testable import GitWatch

/// The route of a real daemon, over a real socket.
@Suite struct RouteTests {
    /// Not the one that all share: a client that waits for its turn there answers no pings and is closed.
    private static let executor = BlockingExecutor(threads: 4)

    private func open(_ daemon: DaemonProcess, _ query: String) throws -> RawConnection {
        let connection = try daemon.connect()
        try connection.send(
            "GET /api/v0/git/watch\(query) HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        #expect(try connection.response().status == 101)
        return connection
    }

    private func send(_ connection: RawConnection, _ text: String, opcode: UInt8 = 1) throws {
        try connection.send(Data([0x80 | opcode, 0x80 | UInt8(text.utf8.count), 0, 0, 0, 0] + Array(text.utf8)))
    }

    /// The next message; pings are answered. The code of a close in the text.
    private func receive(_ connection: RawConnection) throws -> String {
        while true {
            let head = [UInt8](try connection.receive(exactly: 2))
            var count = Int(head[1] & 0x7F)
            if count >= 126 {
                count = [UInt8](try connection.receive(exactly: count == 126 ? 2 : 8)).reduce(0) { $0 << 8 | Int($1) }
            }
            let payload = [UInt8](try connection.receive(exactly: count))
            if head[0] & 15 == 8 { return "close \(Int(payload[0]) << 8 | Int(payload[1]))" }
            if head[0] & 15 == 9 {
                try connection.send(Data([0x8A, 0x80 | UInt8(payload.count), 0, 0, 0, 0] + payload))
            }
            if head[0] & 15 == 1 { return String(decoding: payload, as: UTF8.self) }
        }
    }

    private func touch(_ daemon: DaemonProcess, _ path: String, _ chat: UUID, _ ancestor: UUID) throws {
        let connection = try daemon.connect()
        let body = #"{"command":"true","workdir":"\#(path)"}"#
        try connection.send(
            "POST /api/v0/processes/start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                + "Coder-Chat-Id: \(chat)\r\nCoder-Ancestor-Chat-Ids: [\"\(ancestor)\"]\r\n"
                + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)")
        #expect(try connection.response().status == 200)
    }

    @Test func servesAChat() async throws {
        try await withTaskExecutorPreference(Self.executor) {
            let scene = try Scene("mk r; echo 1 > a; ci; echo 2 > a")
            let daemon = try DaemonProcess(environment: scene.environment)
            let (parent, child) = (UUID(), UUID())
            let connection = try open(daemon, "?chat_id=\(parent)&heartbeat=true")
            try touch(daemon, scene.root, child, parent)
            var first = try receive(connection)
            while !first.contains("repo_root") { first = try receive(connection) }
            #expect(first.hasPrefix(#"{"type":"changes","scanned_at":"2"#))
            let text = "\"repo_root\":\"\(scene.root)\",\"branch\":\"main\",\"unified_diff\":\"diff --git a/a b/a\\n"
            #expect(first.contains(text))
            try send(connection, #"{"type":"dance"}"#)
            var answer = try receive(connection)
            while !answer.contains("error") { answer = try receive(connection) }
            #expect(answer == #"{"type":"error","message":"unknown message type"}"#)
            // The daemon itself never has libgit2, the worker does.
            let maps = ProcFS.text("/proc/\(daemon.pid)/maps")
            #expect(!maps.contains("libgit2"))
            let workers = ProcFS.children(of: daemon.pid).filter {
                ProcFS.text("/proc/\($0.pid)/cmdline").contains("git-worker")
            }
            #expect(workers.count == 1)
            for worker in workers { #expect(ProcFS.text("/proc/\(worker.pid)/maps").contains("libgit2")) }
            try send(connection, "no json")
            answer = try receive(connection)
            while !answer.hasPrefix("close") { answer = try receive(connection) }
            #expect(answer == "close 1003")

            let idle = try open(daemon, "?chat_id=nonsense")
            try send(idle, #"{"type":"refresh"}"#)
            try send(idle, "x", opcode: 2)
            #expect(try receive(idle) == "close 1003", "no message before it")
            let refused = try daemon.connect()
            try refused.send("GET /api/v0/git/watch?chat=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            #expect(try refused.response().status == 400)
            #expect(try await daemon.stop() == 0)
            for worker in workers { #expect(kill(worker.pid, 0) != 0, "the worker goes with the daemon") }
        }
    }

    /// JSON of any shape keeps the connection; what is no JSON ends it.
    @Test func answersUnknownMessages() async throws {
        try await withTaskExecutorPreference(Self.executor) {
            let daemon = try DaemonProcess()
            let unknown = #"{"type":"error","message":"unknown message type"}"#
            let connection = try open(daemon, "?chat_id=\(UUID())")
            let shapes = [
                "[]", "42", "-1.5e3", #""x""#, "null", "true", "{}", #"{"type":5}"#, #"{"type":null}"#, #"{"type":{}}"#,
                #"{"type":["refresh"]}"#, #"{"Type":"refresh"}"#, #" [1,{"a":[null]}] "#,
            ]
            for text in shapes {
                try send(connection, text)
                #expect(try receive(connection) == unknown, "\(text)")
            }
            // Known, with more than is known: no answer, or one error more than these two would come.
            try send(connection, #"{"type":"refresh","x":1}"#)
            try send(connection, #"{"type":"dance"}"#)
            #expect(try receive(connection) == unknown)
            try send(connection, "bye")
            #expect(try receive(connection) == "close 1003")
            for text in ["", " ", "{", "nul", "[1,]", #"{"type":"refresh",}"#, "01", #""\q""#, "{}{}", "{'type':1}"] {
                let other = try open(daemon, "")
                try send(other, text)
                #expect(try receive(other) == "close 1003", "\(text)")
            }
            #expect(try await daemon.stop() == 0)
        }
    }

    /// The daemon's own umask is strict; what it starts has the one that it was started with.
    @Test func workerAndGitHaveTheOriginalFileMask() async throws {
        try await withTaskExecutorPreference(Self.executor) {
            let scene = try Scene(
                """
                mkdir bin
                printf '#!/bin/sh\numask >> "$HOME/masks"\nexec %s "$@"\n' "$(command -v git)" > bin/git
                chmod +x bin/git
                mk r; echo 1 > a; ci; echo 2 > a
                """)
            var environment = scene.environment
            environment["PATH"] = "\(scene.directory.path)/bin:/usr/local/bin:/usr/bin:/bin"
            let daemon = try DaemonProcess(
                environment: environment, wrapper: ["sh", "-c", "umask 0026; exec \"$@\"", "sh"])
            let chat = UUID()
            let connection = try open(daemon, "?chat_id=\(chat)")
            try touch(daemon, scene.root, chat, UUID())
            #expect(try receive(connection).contains("+2\\n"))
            let workers = ProcFS.children(of: daemon.pid).filter {
                ProcFS.text("/proc/\($0.pid)/cmdline").contains("git-worker")
            }
            #expect(workers.map { ProcFS.status($0.pid, "Umask:") } == ["0026"])
            let masks = ProcFS.text("\(scene.directory.path)/home/masks").split(separator: "\n")
            #expect(!masks.isEmpty && Set(masks) == ["0026"])
            #expect(try await daemon.stop() == 0)
        }
    }

    /// In a user namespace, which has a limit of its own: the kernel refuses watches long before our budget
    /// is used up, and no other client suffers.
    @Test(.enabled(if: RouteTests.mayUnshare, "user namespaces are not allowed here"))
    func theKernelRefusesWatches() async throws {
        try await withTaskExecutorPreference(Self.executor) {
            let scene = try Scene("mk r; mkdir b c d; for f in a b/a c/a d/a; do echo 1 > $f; done; ci; echo 2 > b/a")
            let limited = "echo 3 > /proc/sys/user/max_inotify_watches && exec \"$@\""
            let daemon = try DaemonProcess(
                environment: scene.environment, wrapper: ["unshare", "-Ur", "sh", "-c", limited, "sh"])
            let chat = UUID()
            let connection = try open(daemon, "?chat_id=\(chat)")
            try touch(daemon, scene.root, chat, UUID())
            #expect(try receive(connection).contains("+2\\n"))
            try await eventually("health says so") {
                try daemon.connect().request("GET", "/healthz").text.contains(
                    "\(scene.root) is polled every 30 s: fs.inotify.max_user_watches is used up")
            }
            #expect(try daemon.metric("agent_git_repositories_polled") == 1)
            #expect(try daemon.metric("agent_git_watches") == 0)
            try scene.run("echo 3 > c/a")
            try send(connection, #"{"type":"refresh"}"#)
            #expect(try receive(connection).contains("+3\\n"))
            // Without events only the poll can see this one.
            try scene.run("echo 4 > d/a")
            #expect(try receive(connection).contains("+4\\n"))
            #expect(try await daemon.stop() == 0)
        }
    }

    private static var mayUnshare: Bool {
        (try? CommandResult.of(["unshare", "-Ur", "sh", "-c", "echo 3 > /proc/sys/user/max_inotify_watches"]))?.code
            == 0
    }

    @Test func theCommandPrintsDiffs() async throws {
        try await withTaskExecutorPreference(Self.executor) {
            let scene = try Scene("mk r; echo 1 > a; ci; echo 2 > a")
            let daemon = try DaemonProcess(environment: scene.environment)
            let directory = try TemporaryDirectory()
            let file = "\(directory.path)/out"
            let pid = try DaemonProcess.spawn(
                [
                    "sh", "-c", "exec \"$@\" > \"$0\"", file, DaemonProcess.binary, "git", "watch", "--http-socket",
                    daemon.socket, scene.root,
                ], ProcessInfo.processInfo.environment)
            defer {
                kill(pid, SIGKILL)
                waitpid(pid, nil, 0)
            }
            try await eventually("the diff") { ProcFS.text(file).contains("\n-1\n+2\n") }
            #expect(ProcFS.text(file).hasPrefix("== \(scene.root) on main ("))
            #expect(ProcFS.runs(pid), "it goes on until it is ended")
            let refused = try CommandResult.ofAgent("git", "watch", "--http-socket", "/nonexistent", "/tmp")
            #expect(refused.code == 1)
            #expect(refused.errors.contains("cannot reach the agent at /nonexistent: No such file or directory"))
            #expect(try CommandResult.ofAgent("git", "watch", "--chat", "x").code == 2)
        }
    }
}
