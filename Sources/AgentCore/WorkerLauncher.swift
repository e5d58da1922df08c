/// Starts helper processes that the daemon talks to over a socket. AgentProc implements it over the one
/// launcher; the executable passes it to the capability that needs a helper.
public protocol WorkerLauncher: Sendable {
    /// Starts a program with one end of a stream socket pair as its stdin and stdout, and stderr to
    /// nowhere. Blocks for as long as execve takes.
    /// - Parameter onExit: called once, from any thread, when the program was reaped.
    /// - Throws: an error whose description names what could not be started and why.
    func startWorker(_ command: Command, onExit: @escaping @Sendable (CommandExit) -> Void) throws -> StartedWorker
}

/// A started helper.
public struct StartedWorker: Sendable {
    public var pid: Int32
    /// Our end, not blocking; the receiver closes it.
    public var socket: Int32
    /// Sends SIGKILL, unless the helper was reaped.
    public var kill: @Sendable () -> Void

    public init(pid: Int32, socket: Int32, kill: @escaping @Sendable () -> Void) {
        self.pid = pid
        self.socket = socket
        self.kill = kill
    }
}
