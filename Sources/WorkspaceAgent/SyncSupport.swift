import AgentCore
import AgentSocket
import ArgumentParser
import DRPC
import Glibc
import LocalAgent

/// Where the agent is, and how its failures are shown.
struct AgentOptions: ParsableArguments {
    @Option(help: "The agent's socket; default /tmp/coder-agent.sock. [CODER_AGENT_SOCKET_PATH]")
    var socketPath: String?

    var socket: LocalAgentSocket {
        LocalAgentSocket(path: LocalSocket.agent(socketPath, ProcessEnvironment.current))
    }

    /// Connects, runs the body and closes. A failure becomes one line on stderr and exit code 1.
    func use<T: Sendable>(_ body: @escaping @Sendable (AgentSocketClient) async throws -> T) async throws -> T {
        try await shown { try await $0.use(body) }
    }

    /// As ``use(_:)`` with a time limit for all of it, or none, and the line for what exceeds it.
    func use<T: Sendable>(
        within limit: Duration?, else failure: String,
        _ body: @escaping @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        try await shown { try await $0.use(within: limit, else: failure, body) }
    }

    private func shown<T>(_ body: (LocalAgentSocket) async throws -> T) async throws -> T {
        let socket = socket
        do {
            return try await body(socket)
        } catch {
            SyncOutput.failure(Self.describe(error, socket.path))
            throw ExitCode(1)
        }
    }

    private static func describe(_ error: any Error, _ path: String) -> String {
        switch error {
        case let failure as CommandFailure: failure.message
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
