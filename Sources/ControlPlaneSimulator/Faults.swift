import DRPC
import DequeModule
import Synchronization

/// What goes wrong with a call.
package enum RPCFault: Sendable, Equatable {
    /// Answered with this error; the call changes nothing.
    case fail(code: UInt64 = 0, text: String)
    /// Answered as a control plane does that lacks the rpc: code 12, `Unimplemented`.
    case unimplemented
    /// Never answered; the call changes nothing.
    case hang
    /// Done at once, answered after this time.
    case delay(Duration)
    /// The connection is cut instead of an answer: before the call had any effect, or after it was
    /// done and recorded, so that the agent can't know.
    case drop(recorded: Bool)
}

/// What goes wrong with an attempt to connect, or with the connection that it makes.
package enum ConnectionFault: Sendable, Equatable {
    /// Answered with this status and body instead of 101.
    case refuse(status: Int, body: String = #"{"message":"refused for a test"}"#)
    /// Accepted and never answered.
    case hang
    /// The TCP connection is reset instead of an answer.
    case reset
    /// Connected, but yamux pings get no answer.
    case ignoreYamuxPings
    /// Connected, but WebSocket pings get no answer.
    case ignoreWebSocketPings
    /// Connected; a yamux GoAway with this code comes after the time.
    case goAway(code: UInt32, after: Duration = .zero)
    /// Connected; a WebSocket close with this code comes after the time.
    case close(code: UInt16, after: Duration = .zero)
    /// Connected; the transport ends after the time without a word.
    case cut(after: Duration)
}

/// Faults that wait for their turn.
struct FaultTable: Sendable {
    private struct Plan<Fault: Sendable>: Sendable {
        var fault: Fault
        /// nil is for ever.
        var left: Int?
    }

    private var calls: [String: Deque<Plan<RPCFault>>] = [:]
    private var dials: Deque<Plan<ConnectionFault>> = []

    mutating func plan(_ fault: RPCFault, rpc: String, times: Int?) {
        guard times ?? 1 > 0 else { return }
        Self.append(Plan(fault: fault, left: times), to: &calls[rpc, default: []])
    }

    mutating func plan(_ fault: ConnectionFault, times: Int?) {
        guard times ?? 1 > 0 else { return }
        Self.append(Plan(fault: fault, left: times), to: &dials)
    }

    mutating func takeCall(_ rpc: String) -> RPCFault? {
        guard calls[rpc] != nil else { return nil }
        let fault = Self.take(from: &calls[rpc, default: []])
        if calls[rpc]?.isEmpty == true { calls[rpc] = nil }
        return fault
    }

    mutating func takeDial() -> ConnectionFault? { Self.take(from: &dials) }

    /// nil when a plan is for ever.
    var dialsLeft: Int? {
        dials.contains { $0.left == nil } ? nil : dials.reduce(0) { $0 + ($1.left ?? 0) }
    }

    mutating func clear(rpc: String) { calls[rpc] = nil }
    mutating func clearDials() { dials = [] }

    private static func append<Fault>(_ plan: Plan<Fault>, to queue: inout Deque<Plan<Fault>>) {
        guard queue.count < SimulatorLimits.faultsPerRPC else { return }
        queue.append(plan)
    }

    private static func take<Fault>(from queue: inout Deque<Plan<Fault>>) -> Fault? {
        guard var first = queue.popFirst() else { return nil }
        guard let left = first.left else {
            // One that is for ever gives way to what was planned after it.
            if queue.isEmpty { queue.prepend(first) } else { return take(from: &queue) }
            return first.fault
        }
        first.left = left - 1
        if left > 1 { queue.prepend(first) }
        return first.fault
    }
}

/// The faults of one simulated control plane. Planned ones are used in the order of planning.
package final class Faults: Sendable {
    private let table = Mutex(FaultTable())

    package init() {}

    /// Plans a fault for the next calls of an rpc.
    /// - Parameter times: how many calls; nil for all until another is planned or ``clear(_:)``.
    package func plan<Request, Response>(
        _ fault: RPCFault, on method: Method<Request, Response>, times: Int? = 1
    ) {
        table.withLock { $0.plan(fault, rpc: rpcName(method), times: times) }
    }

    /// Plans a fault for the next attempts to connect.
    /// - Parameter times: how many attempts; nil for all until another is planned or
    ///   ``clearConnections()``.
    package func planConnection(_ fault: ConnectionFault, times: Int? = 1) {
        table.withLock { $0.plan(fault, times: times) }
    }

    /// Attempts that are still to fail as planned; nil when all are.
    package var connectionsLeft: Int? { table.withLock { $0.dialsLeft } }

    /// Forgets what is planned for an rpc.
    package func clear<Request, Response>(_ method: Method<Request, Response>) {
        table.withLock { $0.clear(rpc: rpcName(method)) }
    }

    /// Forgets what is planned for attempts to connect.
    package func clearConnections() { table.withLock { $0.clearDials() } }

    func takeCall(_ rpc: String) -> RPCFault? { table.withLock { $0.takeCall(rpc) } }
    func takeDial() -> ConnectionFault? { table.withLock { $0.takeDial() } }
}
