import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Files

/// The route of a running daemon.
@Suite(.serialized, .timeLimit(.minutes(10)), .blocking) struct WatchRouteTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private func open(_ daemon: DaemonProcess, _ query: String) throws -> TestWebSocket {
        try TestWebSocket(daemon.connect(), "/api/v0/watch?path=\(directory.path)\(query)")
    }

    /// Messages until one has an event for the path.
    private func events(_ socket: TestWebSocket, until path: String) throws -> [String] {
        var events: [String] = []
        while !events.contains(where: { $0.hasSuffix(" \(path)") }) {
            let json = try socket.next().json
            #expect(json["type"] as? String == "events")
            for event in json["events"] as? [[String: Any]] ?? [] {
                let name = (event["path"] as? String ?? "").replacing("\(directory.path)/", with: "")
                events.append("\(event["op"] as? String ?? "") \(name)")
            }
        }
        return events
    }

    private func threads(_ daemon: DaemonProcess) -> [String] {
        directoryEntries("/proc/\(daemon.pid)/task").compactMap { task in
            readTextFile("/proc/\(daemon.pid)/task/\(task)/comm").map { String($0.dropLast()) }
        }
    }

    @Test func tellsWhatHappens() async throws {
        let daemon = try DaemonProcess()
        let descriptors = directoryEntries("/proc/\(daemon.pid)/fd").count
        #expect(!threads(daemon).contains("file-watch"))
        let (socket, other) = (try open(daemon, "&recursive=true"), try open(daemon, ""))
        #expect(threads(daemon).filter { $0 == "file-watch" }.count == 1)
        try directory.write("a", Array("a".utf8))
        #expect(try events(socket, until: "a") == ["create a"])
        #expect(try events(other, until: "a") == ["create a"])
        mkdir("\(directory.path)/d", 0o755)
        try directory.write("d/f", [])
        #expect(try events(socket, until: "d/f").contains("create d"))
        rename("\(directory.path)/a", "\(directory.path)/b")
        let moved = try socket.next().json["events"] as? [[String: String]]
        #expect(moved == [["op": "move", "path": "\(directory.path)/b", "from": "\(directory.path)/a"]])
        try socket.close()
        try other.close()
        socket.connection.closeSending()
        try await eventually("no thread and no descriptor") {
            !threads(daemon).contains("file-watch")
                && directoryEntries("/proc/\(daemon.pid)/fd").count <= descriptors + 2
        }
        #expect(try await daemon.stop() == 0)
    }

    @Test func endsWithWhatIsWatched() async throws {
        let daemon = try DaemonProcess()
        mkdir("\(directory.path)/t", 0o755)
        let socket = try open(daemon, "/t")
        rmdir("\(directory.path)/t")
        #expect(try events(socket, until: "t") == ["delete t"])
        #expect(try socket.next() == .close(1000, "what was watched is gone"))
        #expect(try await daemon.stop() == 0)
    }

    @Test func refusals() async throws {
        let daemon = try DaemonProcess(environment: ["WORKSPACE_AGENT_GIT_WATCH_BUDGET": "2"])
        func refusal(_ query: String) throws -> String {
            let response = try TestWebSocket.handshake(daemon.connect(), "/api/v0/watch?\(query)")
            let message = response.json["message"] as? String ?? ""
            return "\(response.status) \(message.replacing(directory.path, with: ""))"
        }
        #expect(try refusal("path=\(directory.path)/none") == "404 watch /none: no such file or directory")
        #expect(try refusal("path=a") == "400 file path must be absolute: \"a\"")
        #expect(try refusal("") == "400 Query parameters have invalid values.")
        #expect(try daemon.connect().request("GET", "/api/v0/watch?path=/").status == 426)
        for name in ["a", "b"] { mkdir("\(directory.path)/\(name)", 0o755) }
        let deep = "path=\(directory.path)&recursive=true"
        #expect(try refusal(deep).hasPrefix("503 watch : the budget of 2 inotify watches is used up"))
        rmdir("\(directory.path)/b")
        let socket = try open(daemon, "&recursive=true")
        #expect(try refusal("path=\(directory.path)").hasPrefix("503 watch : the budget of 2"))
        // Beyond it later.
        mkdir("\(directory.path)/c", 0o755)
        let message = try socket.next().json
        #expect(message["type"] as? String == "error")
        #expect((message["message"] as? String)?.contains("the budget of 2 inotify watches") == true)
        guard case .close(1011, _) = try socket.next() else { throw Mismatch() }
        try await eventually("the budget back") { try refusal("path=\(directory.path)") == "101 " }
        #expect(try await daemon.stop() == 0)
    }

    @Test func aClientThatDoesNotRead() async throws {
        let daemon = try DaemonProcess()
        let socket = try open(daemon, "")
        var (told, isLost) = (0, false)
        func read() throws {
            let json = try socket.next().json
            if json["type"] as? String == "overflow" {
                isLost = true
            } else {
                told += (json["events"] as? [Any])?.count ?? 0
            }
        }
        var lastRead = ContinuousClock.now
        // More than all buffers and the kernel's queue hold.
        for index in 0..<150_000 {
            let name = "\(directory.path)/\(index)" + String(repeating: "n", count: 200)
            let file = Glibc.open(name, O_CREAT | O_WRONLY, 0o600)
            Glibc.close(file)
            // On a slow machine it would be taken for gone.
            if !isLost, lastRead.duration(to: .now) > .seconds(5) {
                try read()
                lastRead = .now
            }
        }
        while !isLost { try read() }
        #expect(told < 150_000)
        try directory.write("last", [])
        #expect(try events(socket, until: "last").last == "create last")
        #expect(try await daemon.stop() == 0)
    }
}
