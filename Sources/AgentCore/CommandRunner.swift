import Synchronization

/// Starts programs for capabilities that do not own the launcher: there is one launcher, in
/// AgentProc, and the executable passes it to the others through this protocol.
public protocol CommandRunner: Sendable {
    /// Starts a program in a session of its own, with stdin from /dev/null.
    ///
    /// Once begun a start is finished, although the task is cancelled: the caller ends what it gets.
    ///
    /// - Parameter output: gets what the program writes, in order for each stream. Called from one
    ///   thread at a time, which must not be blocked: it reads for all programs. A consumer that
    ///   cannot keep up holds the command's ``OutputGate``. It may be called before this returns.
    /// - Throws: an error whose description names what could not be started and why.
    func start(
        _ command: Command, output: @escaping @Sendable (CommandStream, UnsafeRawBufferPointer) -> Void
    ) async throws -> any RunningCommand
}

/// A program to start.
public struct Command: Sendable {
    /// The program and its arguments.
    public var arguments: [String]
    /// The whole environment.
    public var environment: [String: String]
    /// Absolute path to start in.
    public var workdir: String
    /// Lets the consumer of the output hold the reading up; nil reads on for ever.
    public var gate: OutputGate?
    /// Both outputs share one pipe, so that they come in the order written, all as ``CommandStream/stdout``.
    public var mergesOutputs = false

    public init(
        arguments: [String], environment: [String: String], workdir: String, gate: OutputGate? = nil
    ) {
        self.arguments = arguments
        self.environment = environment
        self.workdir = workdir
        self.gate = gate
    }
}

/// Back-pressure on one program: while it is held, its outputs are not read, so that the program
/// itself waits once its pipes are full. What was read before is still delivered.
public final class OutputGate: Sendable {
    private struct State {
        var isHeld = false
        var onRelease: (@Sendable () -> Void)?
    }

    private let state = Mutex(State())

    public init() {}

    public var isHeld: Bool { state.withLock { $0.isHeld } }

    /// Stops the reading after what is being delivered. Any thread, any number of times.
    public func hold() { state.withLock { $0.isHeld = true } }

    /// Goes on reading. Any thread.
    public func release() {
        let handler = state.withLock { state -> (@Sendable () -> Void)? in
            guard state.isHeld else { return nil }
            state.isHeld = false
            return state.onRelease
        }
        handler?()
    }

    /// For the runner: called at each release, from any thread.
    public func setOnRelease(_ handler: @escaping @Sendable () -> Void) {
        state.withLock { $0.onRelease = handler }
    }
}

/// One of a program's outputs.
public enum CommandStream: Sendable, Equatable {
    case stdout
    case stderr
}

/// How a program ended.
public enum CommandExit: Sendable, Equatable {
    /// With this status, 0...255.
    case exited(Int32)
    /// By this signal.
    case signalled(Int32)
}

/// A started program.
public protocol RunningCommand: Sendable {
    /// The leader's pid, which is also the session's id.
    var pid: Int32 { get }

    /// Returns when the leader has ended; its descendants may live on. Any number may wait.
    func exit() async -> CommandExit

    /// Returns when both outputs are at their end: no process holds them open any more, or
    /// ``abandonOutput()`` was called. Any number may wait.
    func outputEnd() async

    /// Has the signal sent to every process of the session, also after the leader's end. Returns
    /// before it is delivered; signals are delivered in the order of the calls.
    func signal(_ number: Int32)

    /// Has the signal sent to the leader alone; nothing happens once it has ended. In order with
    /// ``signal(_:)``.
    func signalLeader(_ number: Int32)

    /// Stops reading the outputs and closes them, after which ``outputEnd()`` returns. A process that
    /// writes to them afterwards gets SIGPIPE.
    func abandonOutput()
}

extension RunningCommand {
    /// For a runner whose sessions are one process.
    public func signalLeader(_ number: Int32) { signal(number) }
}
