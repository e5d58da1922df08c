/// One task that is done over a connection (docs/contracts/control-plane.md#routines).
///
/// A routine keeps what must survive the connection in an object of its own; `run` is called anew
/// for each connection.
package protocol Routine: Sendable {
    /// For logs and metrics: `report lifecycle`.
    var name: String { get }
    var atShutdown: RoutineShutdown { get }

    /// Runs until it is cancelled, or has nothing more to do on this connection.
    /// - Throws: what makes the connection unusable, which closes it. An rpc that the control plane does
    ///   not implement is no such thing: the caller ends this routine until the next connection.
    func run(_ connection: any AgentConnection) async throws
}

/// What happens to a routine when the agent shuts down.
package enum RoutineShutdown: Sendable, Equatable {
    /// Cancelled when shutdown begins.
    case stops
    /// Goes on until it has delivered everything, or the shutdown budget is over.
    case remains
}
