import AgentCore
import Glibc
import Synchronization

/// The window manager of a desktop, and how it is started again when it has ended.
final class WindowManager: Sendable {
    /// The program and its arguments; the program as the path that the kernel has for it.
    let arguments: [String]
    private let environment: [String: String]

    private struct State {
        var process: ProcessHandle?
        /// On ``AgentClock``, when it was last started by us.
        var restart: Duration?
        var command: (any RunningCommand)?
    }

    private let state: Mutex<State>

    /// As it runs. Blocks: reads /proc.
    init(_ process: ProcessHandle) {
        var arguments = ProcessHandle.arguments(process.pid)
        if !arguments.isEmpty, let program = readLink("/proc/\(process.pid)/exe") { arguments[0] = program }
        self.arguments = arguments
        environment = ProcessHandle.environment(process.pid)
        state = Mutex(State(process: process))
    }

    /// One of an earlier run of the agent that has ended.
    init(arguments: [String], environment: [String: String]) {
        self.arguments = arguments
        self.environment = environment
        state = Mutex(State())
    }

    var process: ProcessHandle? { state.withLock { $0.process } }
    var isAlive: Bool { process?.isAlive ?? false }

    /// Starts it again when it has ended, at most once within `interval`.
    /// - Returns: whether it was started.
    /// - Throws: an error whose description names what could not be started and why.
    func restartIfEnded(by runner: any CommandRunner, _ now: Duration, atMostEach interval: Duration) async throws
        -> Bool
    {
        let isOurs = state.withLock { state in
            guard !(state.process?.isAlive ?? false), !arguments.isEmpty else { return false }
            if let last = state.restart, now - last < interval { return false }
            state.restart = now
            return true
        }
        guard isOurs else { return false }
        // What it writes is read and dropped: a program whose output is closed dies of its next word.
        let command = try await runner.start(
            Command(arguments: arguments, environment: environment, workdir: "/")
        ) { _, _ in }
        let process = ProcessHandle(pid: command.pid)
        state.withLock { state in
            state.command = command
            state.process = process
        }
        return true
    }
}

/// nil when it cannot be read. Blocks.
private func readLink(_ path: String) -> String? {
    var target = [UInt8](repeating: 0, count: Int(PATH_MAX))
    let count = readlink(path, &target, target.count)
    return count > 0 ? String(decoding: target.prefix(count), as: UTF8.self) : nil
}
