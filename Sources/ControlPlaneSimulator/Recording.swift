import DRPC
import DequeModule
import SwiftProtobuf

/// One call that an agent made.
package struct RecordedCall: Sendable {
    /// Place among everything recorded, from 1.
    package var number: UInt64
    /// Since 1970.
    package var at: Duration
    /// The connection it came on, from 1.
    package var connection: Int
    /// Name without the service: `UpdateStats`.
    package var rpc: String
    package var request: any Message
    package var outcome: Outcome

    /// How a call ended.
    package enum Outcome: Sendable, Equatable {
        case answered
        /// It breaks the contract, in this way; answered with an error.
        case refused(String)
        /// A planned fault took it; it had no effect.
        case faulted
    }
}

/// A change of a connection.
package struct ConnectionEvent: Sendable, Equatable {
    package enum Change: Sendable, Equatable {
        /// It was upgraded; the version that its query names, and its role.
        case opened(version: String, role: String)
        /// It ended, for this reason.
        case closed(String)
        /// A request was answered without becoming an RPC connection.
        case answered(method: String, path: String, status: Int)
    }

    package var number: UInt64
    /// Since 1970.
    package var at: Duration
    /// From 1; 0 for a mere request.
    package var connection: Int
    package var change: Change
}

/// One thing that was recorded.
package enum RecordedEvent: Sendable {
    case call(RecordedCall)
    case connection(ConnectionEvent)
}

/// What a ``Recorder`` has seen at one moment.
package struct Recording: Sendable {
    fileprivate struct Kept: Sendable {
        var calls: Deque<(call: RecordedCall, bytes: Int)> = []
        var bytes = 0
        var total = 0
    }

    private var byRPC: [String: Kept] = [:]
    /// Openings, ends and refusals, oldest first; at most ``SimulatorLimits/connectionEventsKept``.
    package private(set) var connectionEvents: Deque<ConnectionEvent> = []
    /// Connections that were upgraded.
    package private(set) var opened = 0
    /// Of these, those that have ended.
    package private(set) var closed = 0
    /// Attempts to make one that were answered with another status than 101.
    package private(set) var refused = 0
    /// Calls that were answered with an error because they break the contract, oldest first; at
    /// most ``SimulatorLimits/violationsKept``.
    package private(set) var refusals: Deque<RecordedCall> = []
    /// Number of the latest record; 0 when there is none.
    package internal(set) var lastNumber: UInt64 = 0

    package init() {}

    /// Calls of all rpcs.
    package var calls: Int { byRPC.values.reduce(0) { $0 + $1.total } }

    /// Connections that are open.
    package var open: Int { opened - closed }

    /// Calls received, kept or not, those without effect too.
    package func count<Request, Response>(_ method: Method<Request, Response>) -> Int {
        byRPC[rpcName(method)]?.total ?? 0
    }

    /// The kept calls of an rpc, oldest first.
    package func calls<Request, Response>(_ method: Method<Request, Response>) -> [RecordedCall] {
        byRPC[rpcName(method)]?.calls.map(\.call) ?? []
    }

    /// The kept requests of an rpc that took effect, oldest first.
    package func requests<Request, Response>(_ method: Method<Request, Response>) -> [Request] {
        calls(method).compactMap { $0.outcome == .answered ? $0.request as? Request : nil }
    }

    /// Counts for an error text.
    var summary: String {
        let calls = byRPC.filter { $0.value.total > 0 }.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value.total)" }
        return (["connections \(opened), open \(open), refused \(refused)"] + calls).joined(separator: ", ")
    }

    mutating func add(_ call: RecordedCall, bytes: Int, limit: Int, byteLimit: Int) {
        byRPC[call.rpc, default: Kept()].add(call, bytes, limit, byteLimit)
        if case .refused = call.outcome {
            refusals.append(call)
            if refusals.count > SimulatorLimits.violationsKept { refusals.removeFirst() }
        }
    }

    mutating func add(_ event: ConnectionEvent) {
        switch event.change {
        case .opened: opened += 1
        case .closed: closed += 1
        case .answered(_, let path, _): if path.contains("/me/rpc") { refused += 1 }
        }
        connectionEvents.append(event)
        if connectionEvents.count > SimulatorLimits.connectionEventsKept { connectionEvents.removeFirst() }
    }
}

extension Recording.Kept {
    fileprivate mutating func add(_ call: RecordedCall, _ size: Int, _ limit: Int, _ byteLimit: Int) {
        total += 1
        guard limit > 0 else { return }
        calls.append((call, size))
        bytes += size
        while calls.count > limit || (bytes > byteLimit && calls.count > 1) {
            bytes -= calls.removeFirst().bytes
        }
    }
}

/// The method's name without its service.
func rpcName<Request, Response>(_ method: Method<Request, Response>) -> String {
    method.name.split(separator: "/").last.map(String.init) ?? method.name
}
