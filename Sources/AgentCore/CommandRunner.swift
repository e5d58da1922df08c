/// Starts programs for capabilities that do not own the launcher: there is one launcher, in
/// AgentProc, and the executable hands it to the others through this protocol.
public protocol CommandRunner: Sendable {
    /// Starts a program in a session of its own, with stdin from /dev/null.
    ///
    /// - Parameter output: gets what the program writes, in order for each stream. Called from one
    ///   thread at a time, which must not be blocked: nobody reads further while it is.
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

    public init(arguments: [String], environment: [String: String], workdir: String) {
        self.arguments = arguments
        self.environment = environment
        self.workdir = workdir
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

    /// Returns when both outputs are at their end: nobody holds them open any more, or
    /// ``abandonOutput()`` was called. Any number may wait.
    func outputEnd() async

    /// Sends the signal to every process of the session.
    func signal(_ number: Int32)

    /// Stops reading the outputs and closes them.
    func abandonOutput()
}
