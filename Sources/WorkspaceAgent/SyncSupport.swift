import AgentCore
import AgentSocket
import ArgumentParser
import DRPC
import Glibc
import NIOCore
import NIOPosix

/// Where the agent is, and how its failures are shown.
struct AgentOptions: ParsableArguments {
    @Option(help: "The agent's socket; default /tmp/coder-agent.sock. [CODER_AGENT_SOCKET_PATH]")
    var socketPath: String?

    var path: String { LocalSocket.agent(socketPath, ProcessEnvironment.current) }

    /// How long an agent may take for a command that doesn't wait for anything.
    static let callTimeout = Duration.seconds(30)

    /// Measures time limits; nil is the clock of the connection's loop.
    @TaskLocal static var clock: (any Clock<Duration>)?

    /// Connects, runs the body and closes. A failure becomes one line on stderr and exit code 1.
    func use<T: Sendable>(_ body: @escaping @Sendable (AgentSocketClient) async throws -> T) async throws -> T {
        let path = path
        return try await shown(path) { try await attempt(path, body) }
    }

    /// As ``use(_:)``, and throws the failure instead of printing it.
    func attempt<T: Sendable>(
        within limit: Duration = callTimeout, _ body: @escaping @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        try await attempt(path, within: limit, body)
    }

    private func attempt<T: Sendable>(
        _ path: String, within limit: Duration = callTimeout,
        _ body: @escaping @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        let seconds = limit.components.seconds
        return try await attempt(
            path, within: limit, else: "the agent at \(path) did not answer within \(seconds) s", body)
    }

    /// As ``use(_:)`` with a time limit for all of it, or none, and the line for what exceeds it.
    func use<T: Sendable>(
        within limit: Duration?, else failure: String,
        _ body: @escaping @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        let path = path
        return try await shown(path) { try await attempt(path, within: limit, else: failure, body) }
    }

    private func shown<T>(_ path: String, _ body: () async throws -> T) async throws -> T {
        do {
            return try await body()
        } catch {
            SyncOutput.failure(Self.describe(error, path))
            throw ExitCode(1)
        }
    }

    private func attempt<T: Sendable>(
        _ path: String, within limit: Duration?, else failure: String,
        _ body: @escaping @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        // One thread for the connection; the daemon's loops are not started for a command.
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        do {
            let clock: any Clock<Duration> = Self.clock ?? EventLoopClock(group: group)
            let result = try await Self.limited(to: limit, else: failure, clock) {
                try await Self.run(path, group, body)
            }
            try? await group.shutdownGracefully()
            return result
        } catch {
            try? await group.shutdownGracefully()
            throw error
        }
    }

    private static func limited<T: Sendable>(
        to limit: Duration?, else failure: String, _ clock: any Clock<Duration>,
        _ body: @escaping @Sendable () async throws -> T
    ) async throws -> T {
        guard let limit else { return try await body() }
        return try await withThrowingTaskGroup(of: T.self) { group in
            group.addTask { try await body() }
            group.addTask {
                try await clock.sleep(for: limit)
                throw SyncFailure(failure)
            }
            defer { group.cancelAll() }
            guard let result = try await group.next() else { throw SyncFailure(failure) }
            return result
        }
    }

    private static func run<T: Sendable>(
        _ path: String, _ group: MultiThreadedEventLoopGroup,
        _ body: @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        let client: AgentSocketClient
        do {
            client = try await AgentSocketClient.connect(path: path, group: group)
        } catch {
            throw SyncFailure(
                "\(error.message(forPath: path)); check that the agent runs and that --socket-path or "
                    + "CODER_AGENT_SOCKET_PATH names its socket")
        }
        return try await use(client, body)
    }

    private static func use<T: Sendable>(
        _ client: AgentSocketClient, _ body: @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        do {
            let result = try await body(client)
            await client.close()
            return result
        } catch {
            await client.close()
            throw error
        }
    }

    /// How long an agent that was lost may take to come back.
    static let restartPatience = Duration.seconds(30)
    private static let reconnectPause = Duration.milliseconds(100)

    /// Within the body of ``use(within:else:_:)``: does the work with its client and, whenever the agent is lost, anew
    /// with a client of the next one.
    func throughRestarts<T: Sendable>(
        _ first: AgentSocketClient, _ work: @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        let path = path
        let clock = Self.clock ?? EventLoopClock(group: first.eventLoop)
        var client = first
        while true {
            do {
                return try await Self.use(client, work)
            } catch let error as DRPCError where error.isLostConnection {
                try Task.checkCancellation()
                client = try await Self.reconnect(path, first.eventLoop, clock, error)
            }
        }
    }

    private static func reconnect<C: Clock<Duration>>(
        _ path: String, _ group: any EventLoopGroup, _ clock: C, _ loss: DRPCError
    ) async throws -> AgentSocketClient {
        let deadline = clock.now.advanced(by: restartPatience)
        var reason: any Error = loss
        while clock.now < deadline {
            try await clock.sleep(for: reconnectPause)
            do { return try await AgentSocketClient.connect(path: path, group: group) } catch { reason = error }
        }
        throw SyncFailure(
            "lost the agent at \(path) and found no other within \(restartPatience.components.seconds) s: "
                + "\(reason.message(forPath: path)); start it and run this command again")
    }

    private static func describe(_ error: any Error, _ path: String) -> String {
        switch error {
        case let error as SyncFailure: error.text
        case let error as DRPCError:
            switch error.code {
            case .remote where error.isUnknownRPC:
                "the agent at \(path) is too old for this command: \(error.message)"
            case .remote: error.message
            default: "lost the agent at \(path): \(error)"
            }
        default: "\(error)"
        }
    }
}

extension DRPCError {
    /// The agent has ended, or has closed the connection.
    fileprivate var isLostConnection: Bool { [.closed, .endOfStream, .cancelled].contains(code) }
}

extension Error {
    fileprivate func message(forPath path: String) -> String {
        (self as? DRPCError)?.message ?? "cannot connect to \(path): \(self)"
    }
}

/// A failure that has its line already.
struct SyncFailure: Error {
    let text: String
    init(_ text: String) { self.text = text }
}

/// How a command prints.
enum SyncFormat: String, ExpressibleByArgument, CaseIterable {
    case table
    case json
}

/// A duration as Go's flags take it: `5m`, `1h30m`, `1.5s`, `250ms`.
struct SyncDuration: ExpressibleByArgument {
    let value: Duration
    /// As it was typed.
    let text: String

    init(_ value: Duration) { (self.value, text) = (value, "\(value)") }

    init?(argument: String) {
        let units: [String: Double] = ["ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9]
        var nanoseconds = 0.0
        var rest = Substring(argument)
        while !rest.isEmpty {
            let number = rest.prefix { $0.isASCII && ($0.isNumber || $0 == ".") }
            rest = rest.dropFirst(number.count)
            let unit = rest.prefix { !($0.isASCII && ($0.isNumber || $0 == ".")) }
            rest = rest.dropFirst(unit.count)
            guard let amount = Double(number), let scale = units[String(unit)] else { return nil }
            nanoseconds += amount * scale
        }
        // Past this the timer's arithmetic would overflow; no script waits 100 years.
        guard nanoseconds > 0, nanoseconds < 100 * 365 * 86_400e9 else { return nil }
        value = .nanoseconds(Int64(nanoseconds))
        text = argument
    }

    var defaultValueDescription: String { "5m" }
}

enum SyncInterrupt {
    /// Makes Ctrl-C end the command with 130 at once; there is nothing to tidy up.
    static func exitWith130() {
        signal(SIGINT) { _ in _exit(130) }
    }
}

/// Writes to stdout and stderr without a buffer: what a script sees must be there when the command
/// waits.
enum SyncOutput {
    static func line(_ text: String) { write(text + "\n", to: STDOUT_FILENO) }

    static func lines(_ lines: [String]) { write(lines.map { $0 + "\n" }.joined(), to: STDOUT_FILENO) }

    /// One line, whatever the text has.
    static func failure(_ text: String) {
        write(
            text.split(separator: "\n", omittingEmptySubsequences: true).joined(separator: ": ") + "\n",
            to: STDERR_FILENO)
    }

    /// `[a, b]`, sorted as the server sorts.
    static func names(_ names: [String]) -> String {
        "[" + names.map(UnitName.init).sorted().map(\.text).joined(separator: ", ") + "]"
    }

    private static func write(_ text: String, to descriptor: CInt) {
        _ = Array(text.utf8).withUnsafeBytes { writeAll($0, to: descriptor) }
    }
}
