import Dispatch
import Foundation
import Glibc
import Synchronization

/// The built binary, running as a daemon of its own with its own directories.
public final class DaemonProcess: Sendable {
    public let directory: TemporaryDirectory
    public let pid: pid_t
    public let socket: String
    /// 0 without a TCP listener.
    public let port: Int
    /// What the daemon told systemd when it was ready.
    public let readyStatus: String
    private let notify: CInt
    private let ended = Mutex<Int32?>(nil)
    /// Few start at once: many would only keep each other from being ready in time.
    private static let starting = DispatchSemaphore(value: 3)

    /// Starts `workspace-agent agent` and returns once it notified that it is ready.
    /// - Parameters:
    ///   - tcp: also listen on a free port of 127.0.0.1.
    ///   - arguments: further flags.
    ///   - logLevel: of the human log, which ``log`` reads.
    ///   - descriptors: open files that the daemon gets as 3, 4 and so on.
    ///   - wrapper: a program and arguments in front of the binary (`setpriv`, `prlimit` …).
    public init(
        tcp: Bool = false, arguments: [String] = [], environment: [String: String] = [:], wrapper: [String] = [],
        logLevel: String = "info", descriptors: [CInt] = [], directory: TemporaryDirectory? = nil
    ) throws {
        let directory = try directory ?? TemporaryDirectory()
        self.directory = directory
        chmod(directory.path, 0o755)
        socket = "\(directory.path)/http.sock"
        let notifyPath = "\(directory.path)/notify.sock"
        unlink(notifyPath)
        let notify = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        self.notify = notify
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: notifyPath.utf8) }
        _ = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(notify, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        chmod(notifyPath, 0o777)

        var line = wrapper + [Self.binary, "agent", "--http-socket", socket]
        if tcp { line += ["--http-address", "127.0.0.1:0"] }
        line += ["--state-dir", "\(directory.path)/state", "--log-dir", "\(directory.path)/log"]
        line += ["--socket-path", "\(directory.path)/agent.sock"]
        line += ["--log-human", "\(directory.path)/human.log", "--log-level", logLevel]
        line += arguments
        // Whoever runs the tests may be behind a proxy, or in a workspace.
        var variables = ProcessInfo.processInfo.environment.filter { name, _ in
            !name.hasPrefix("CODER_") && !["http_proxy", "https_proxy", "no_proxy"].contains(name.lowercased())
        }
        variables["NOTIFY_SOCKET"] = notifyPath
        variables.merge(environment) { _, new in new }
        // The default is a path that all daemons of a machine share.
        if !environment.keys.contains(where: { $0.hasSuffix("_LOG_PROXY_SOCKET_PATH") || $0 == "TMPDIR" }) {
            variables["CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH"] = "\(directory.path)/boundary.sock"
        }
        let status: String
        (pid, status) = try Self.start(line, variables, descriptors, notify)
        let range = status.range(of: "http://127.0.0.1:")
        port = range.flatMap { Int(status[$0.upperBound...].prefix { $0.isNumber }) } ?? 0
        readyStatus = status
    }

    /// Starts it and waits until it is ready.
    private static func start(
        _ line: [String], _ variables: [String: String], _ descriptors: [CInt], _ notify: CInt
    ) throws -> (pid: pid_t, status: String) {
        starting.wait()
        defer { starting.signal() }
        let pid = try spawn(line, variables, descriptors: descriptors)
        let begin = ContinuousClock.now
        var message = pollfd(fd: notify, events: Int16(POLLIN), revents: 0)
        // One that has ended says nothing more; others need not wait for it.
        while poll(&message, 1, 100) < 1, ProcFS.runs(pid), begin.duration(to: .now) < .seconds(120) {}
        do {
            return (pid, try notified("READY=1", notify, seconds: message.revents == 0 ? 1 : 120))
        } catch {
            kill(pid, SIGKILL)
            waitpid(pid, nil, 0)
            throw error
        }
    }

    deinit {
        if ended.withLock({ $0 }) == nil {
            var status: CInt = 0
            if waitpid(pid, &status, WNOHANG) == pid {
                // A crash, which the test may have taken for something else.
                let number = status & 0x7f
                if number != 0, number != SIGKILL { Self.report("the daemon died of signal \(number)", log: log) }
            } else {
                Self.end(pid)
            }
        }
        close(notify)
    }

    /// Prints the end of a daemon's log, in lines that scripts/test.sh repeats in its summary.
    public static func report(_ what: String, log: String) {
        let lines = log.split(separator: "\n").suffix(25).map { "↳   \($0.prefix(400))" }
        print((["↳ \(what); it logged last:"] + lines).joined(separator: "\n"))
    }

    /// In order first, so that what it started goes with it.
    private static func end(_ pid: pid_t) {
        kill(pid, SIGTERM)
        for _ in 0..<1000 {
            if waitpid(pid, nil, WNOHANG) != 0 { return }
            poll(nil, 0, 10)
        }
        kill(pid, SIGKILL)
        waitpid(pid, nil, 0)
    }

    /// The executable under test, built by the same build as the tests, unless scripts/portable-test.sh names another.
    public static var binary: String {
        if let named = ProcessInfo.processInfo.environment["WORKSPACE_AGENT_TEST_PROGRAM"] { return named }
        let own = ProcessInfo.processInfo.arguments[0]
        var path = URL(fileURLWithPath: own).deletingLastPathComponent()
        // The test bundle's runner may be elsewhere; the bundle itself lies beside the products.
        for argument in ProcessInfo.processInfo.arguments where argument.hasSuffix(".xctest") {
            path = URL(fileURLWithPath: argument).deletingLastPathComponent()
        }
        return path.appendingPathComponent("workspace-agent").path
    }

    /// A connection whose answers are held against the documented API.
    public func connect(timeout: Int = 60) throws -> RawConnection {
        let connection = try RawConnection(unix: socket, timeout: timeout)
        connection.contract = .documented
        return connection
    }

    public var token: String {
        let text = try? String(contentsOfFile: "\(directory.path)/http.token", encoding: .utf8)
        return text?.trimmingCharacters(in: .whitespacesAndNewlines) ?? ""
    }

    public var log: String { (try? String(contentsOfFile: "\(directory.path)/human.log", encoding: .utf8)) ?? "" }

    /// The log, once a thread has written a line with this text to it.
    public func logged(_ text: String) async throws -> String {
        try await eventually("a log line with \(text)") { log.contains(text) }
        return log
    }

    /// Sends a signal.
    public func signal(_ number: Int32) { kill(pid, number) }

    /// Waits for the end; the raw wait status.
    public func wait(seconds: Int = 60) async throws -> Int32 {
        if let status = ended.withLock({ $0 }) { return status }
        var status: Int32 = 0
        try await eventually("the daemon ends", within: .seconds(seconds)) {
            waitpid(self.pid, &status, WNOHANG) == self.pid
        }
        let final = status
        ended.withLock { $0 = final }
        return final
    }

    /// Waits for the end on this very thread, for tests that measure how long it takes.
    public func waitBlocking() -> Int32 {
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0 && errno == EINTR {}
        let final = status
        ended.withLock { $0 = final }
        return final
    }

    /// SIGTERM, and its exit code.
    @discardableResult
    public func stop() async throws -> Int32 {
        signal(SIGTERM)
        return (try await wait() >> 8) & 0xff
    }

    /// Messages that the daemon sent to its notification socket, up to one with the prefix.
    public func notified(_ prefix: String, seconds: Int = 60) throws -> String {
        try Self.notified(prefix, notify, seconds: seconds)
    }

    /// All that the daemon sent to its notification socket since then, up to a message with the prefix.
    public func notifications(until prefix: String) throws -> [String] {
        var messages: [String] = []
        repeat { messages.append(try notified("")) } while messages.last?.hasPrefix(prefix) == false
        return messages
    }

    private static func notified(_ prefix: String, _ notify: CInt, seconds: Int) throws -> String {
        var time = timeval(tv_sec: seconds, tv_usec: 0)
        setsockopt(notify, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
        var area = [UInt8](repeating: 0, count: 4096)
        while true {
            let n = recv(notify, &area, area.count, 0)
            guard n > 0 else { throw RawConnection.Failure(description: "no \(prefix) from the daemon") }
            let text = String(decoding: area.prefix(n), as: UTF8.self)
            if text.hasPrefix(prefix) { return text }
        }
    }

    /// A TCP connection; see ``authorization`` for its token.
    public func connectTCP(timeout: Int = 60) throws -> RawConnection {
        let connection = try RawConnection(port: port, timeout: timeout)
        connection.contract = .documented
        return connection
    }

    /// The header that TCP listeners ask for.
    public var authorization: [String: String] { ["Authorization": "Bearer \(token)"] }

    /// A sample of /debug/prometheus; nil when there is none with that name and these labels.
    public func metric(_ series: String) throws -> Double? {
        let text = try connect().request("GET", "/debug/prometheus").text
        let line = text.split(separator: "\n").first { $0.hasPrefix("\(series) ") }
        return line.flatMap { Double($0.dropFirst(series.count + 1)) }
    }

    /// Starts a program; the pid. Its input and output are ours, unless it is given descriptors for them.
    public static func spawn(
        _ arguments: [String], _ environment: [String: String], descriptors: [CInt] = [], input: CInt = 0,
        output: CInt = 1, errors: CInt = 2
    ) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for (index, descriptor) in descriptors.enumerated() {
            posix_spawn_file_actions_adddup2(&actions, descriptor, CInt(3 + index))
        }
        for (descriptor, standard) in [(input, CInt(0)), (output, 1), (errors, 2)] where descriptor != standard {
            posix_spawn_file_actions_adddup2(&actions, descriptor, standard)
        }
        closeInChild(&actions, from: CInt(3 + descriptors.count))
        // Threads of Dispatch block signals, which their children would never get.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        var envp: [UnsafeMutablePointer<CChar>?] = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for pointer in argv + envp { free(pointer) } }
        var pid = pid_t()
        let rc = posix_spawnp(&pid, arguments[0], &actions, &attributes, &argv, &envp)
        guard rc == 0 else { throw RawConnection.Failure(description: "\(arguments[0]): errno \(rc)") }
        return pid
    }
}
