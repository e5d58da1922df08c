import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

/// The proc commands and an agent that is away.
@Suite(.blocking, .timeLimit(.minutes(5))) struct ProcReconnectTests {
    /// Connections that break lose no byte of output, and repeat none.
    @Test(arguments: [["run", "--", "cat"], ["output", "--follow"], ["attach"]]) func brokenConnectionsLoseNothing(
        command: [String]
    ) async throws {
        let daemon = try DaemonProcess()
        let directory = try TemporaryDirectory()
        let (input, output) = ("\(directory.path)/in", "\(directory.path)/out")
        _ = try CommandResult.of(["/bin/sh", "-c", "head -c 8000000 /dev/urandom > \(input)"])
        let bytes = try Data(contentsOf: URL(fileURLWithPath: input))
        let proxy = try CuttingProxy("\(directory.path)/proxy.sock", to: daemon.socket)
        var line = ["proc"] + command
        if command.first == "run" {
            line.append(input)
        } else {
            // It writes only once it is attached.
            let wait = command == ["attach"] ? "read go; " : ""
            line.append(try daemon.connect().start("\(wait)cat \(input); sleep 2", ["stdin": true]))
        }
        let result = try CommandResult.of(
            ["/bin/sh", "-c", "echo go | \"$@\" > \(output)", "sh", DaemonProcess.binary] + line,
            environment: ["WORKSPACE_AGENT_HTTP_SOCKET": proxy.path])
        #expect(result.code == 0 && result.errors == "", "\(result.errors)")
        let received = try Data(contentsOf: URL(fileURLWithPath: output))
        #expect(received == bytes)
        #expect(proxy.cuts > 5)
    }

    /// A restart in the middle is one line, with what it means.
    @Test(arguments: [["run", "--", "sh", "-c", "echo go; sleep 1000"], ["output", "--follow"], ["attach"], ["wait"]])
    func aRestartIsSaid(
        command: [String]
    ) async throws {
        let directory = try TemporaryDirectory()
        let (daemon, client, errors) = try await start(command, directory)
        daemon.signal(SIGKILL)
        _ = try await daemon.wait()
        let second = try DaemonProcess(directory: directory)
        #expect(try await end(of: client) == 1)
        let text = try #require(readTextFile(errors))
        #expect(text.hasPrefix("workspace-agent: the agent was restarted; process "), "\(text)")
        #expect(text.hasSuffix(" is gone with it\n") && text.split(separator: "\n").count == 1)
        #expect(try await second.stop() == 0)
    }

    @Test(arguments: [SIGTERM, SIGKILL]) func anEndIsSaid(number: Int32) async throws {
        let directory = try TemporaryDirectory()
        let (daemon, client, errors) = try await start(["run", "--", "sh", "-c", "echo go; sleep 1000"], directory)
        daemon.signal(number)
        let code = try await end(of: client)
        let text = try #require(readTextFile(errors))
        #expect(code == 1 && text.hasPrefix("workspace-agent: lost the agent at \(daemon.socket), which"), "\(text)")
    }

    /// A command that watches a process, and what it says.
    private func start(
        _ command: [String], _ directory: TemporaryDirectory
    ) async throws -> (daemon: DaemonProcess, client: pid_t, errors: String) {
        let daemon = try DaemonProcess(logLevel: "debug", directory: directory)
        let connection = try daemon.connect()
        var line = [DaemonProcess.binary, "proc"] + command
        if command.first != "run" { line.append(try connection.start("echo go; sleep 1000")) }
        let (output, errors) = ("\(directory.path)/output", "\(directory.path)/errors")
        let client = try DaemonProcess.spawn(
            ["/bin/sh", "-c", "exec \"$@\" < /dev/null > \(output) 2> \(errors)", "sh"] + line,
            ProcessInfo.processInfo.environment.merging(["WORKSPACE_AGENT_HTTP_SOCKET": daemon.socket]) { $1 })
        if command == ["wait"] {
            _ = try await daemon.logged("/wait")
            // The first look is answered, the one that waits is under way.
            try await eventually("it waits") { Self.connections(to: daemon.socket) > 1 }
        } else {
            try await eventually("it is connected") { readTextFile(output) == "go\n" }
        }
        return (daemon, client, errors)
    }

    /// Connections that the daemon has accepted on its socket.
    private static func connections(to socket: String) -> Int {
        (readTextFile("/proc/net/unix") ?? "").split(separator: "\n").filter {
            $0.hasSuffix(socket) && $0.split(separator: " ").dropFirst(5).first == "03"
        }.count
    }

    private func end(of client: pid_t) async throws -> Int32 {
        var status: Int32 = 0
        try await eventually("the command ends") { waitpid(client, &status, WNOHANG) == client }
        return status & 0x7f == 0 ? status >> 8 & 0xff : 128 + status & 0x7f
    }
}

/// Passes connections on to a daemon's socket and breaks each after some bytes of answer.
private final class CuttingProxy: Sendable {
    let path: String
    private let listener: CInt
    private let count = Counter()

    private final class Counter: @unchecked Sendable {
        private let lock = NSLock()
        private var value = 0
        func add() { lock.withLock { value += 1 } }
        var current: Int { lock.withLock { value } }
    }

    var cuts: Int { count.current }

    init(_ path: String, to target: String) throws {
        self.path = path
        let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        self.listener = listener
        let rc = Self.withAddress(path) { bind(listener, $0, $1) }
        guard rc == 0, listen(listener, 16) == 0 else { throw DeadlineExceeded(what: "proxy: \(errno)") }
        let count = count
        Thread.detachNewThread {
            while true {
                let client = accept(listener, nil, nil)
                guard client >= 0 else { return }
                Thread.detachNewThread { Self.pass(client, target, count) }
            }
        }
    }

    deinit {
        shutdown(listener, Int32(SHUT_RDWR))
        close(listener)
    }

    private static func pass(_ client: CInt, _ target: String, _ count: Counter) {
        let server = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer {
            close(client)
            close(server)
        }
        guard withAddress(target, { connect(server, $0, $1) }) == 0 else { return }
        var left = Int.random(in: 400_000...1_200_000)
        var area = [UInt8](repeating: 0, count: 65536)
        while true {
            var wanted = [client, server].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
            poll(&wanted, 2, -1)
            for (from, to) in [(0, server), (1, client)] where wanted[from].revents != 0 {
                let got = read(wanted[from].fd, &area, from == 1 ? min(area.count, left) : area.count)
                guard got > 0, send(to, area, got, Int32(MSG_NOSIGNAL)) == got else { return }
                guard from == 1 else { continue }
                left -= got
                if left == 0 { return count.add() }
            }
        }
    }

    private static func withAddress(_ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> CInt) -> CInt {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
        }
    }
}
