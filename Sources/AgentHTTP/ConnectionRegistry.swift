import AgentCore
import NIOCore
import Synchronization

/// The open connections of a server: bounds their number by kind and ends them at shutdown.
final class ConnectionRegistry: Sendable {
    enum Kind: Hashable { case unix, tcp }

    private struct Connection {
        var kind: Kind
        var handler: NIOLoopBound<HTTPConnectionHandler>
        var loop: any EventLoop
    }

    private struct State {
        var next = 0
        var open: [Int: Connection] = [:]
        var counts: [Kind: Int] = [:]
        var gates: [(kind: Kind, gate: NIOLoopBound<AcceptGate>, loop: any EventLoop)] = []
        var stopping = false
        var waiters: [CheckedContinuation<Void, Never>] = []

        func isFull(_ kind: Kind) -> Bool { counts[kind, default: 0] >= HTTPLimits.connections }
    }

    private let state = Mutex(State())
    private let gauge: GaugeSeries

    init(gauge: GaugeSeries) { self.gauge = gauge }

    /// Open connections by the kind of their listener.
    var open: [String: Int64] {
        state.withLock {
            ["http_unix": Int64($0.counts[.unix, default: 0]), "http_tcp": Int64($0.counts[.tcp, default: 0])]
        }
    }

    func add(gate: AcceptGate, kind: Kind, loop: any EventLoop) {
        let bound = NIOLoopBound(gate, eventLoop: loop)
        state.withLock { $0.gates.append((kind, bound, loop)) }
    }

    func add(_ handler: HTTPConnectionHandler, kind: Kind, loop: any EventLoop) -> Int {
        gauge.add(1)
        let bound = NIOLoopBound(handler, eventLoop: loop)
        let (id, stopping, full) = state.withLock { state in
            state.next += 1
            state.open[state.next] = Connection(kind: kind, handler: bound, loop: loop)
            state.counts[kind, default: 0] += 1
            return (state.next, state.stopping, state.isFull(kind))
        }
        if full { updateGates(kind) }
        // Accepted just before the listener closed.
        if stopping { loop.execute { bound.value.shutdown() } }
        return id
    }

    func remove(_ id: Int) {
        gauge.add(-1)
        let (kind, waiters) = state.withLock { state in
            let kind = state.open.removeValue(forKey: id)?.kind
            let wasFull = kind.map { state.isFull($0) } ?? false
            if let kind { state.counts[kind, default: 0] -= 1 }
            let done = state.open.isEmpty ? state.waiters : []
            if state.open.isEmpty { state.waiters = [] }
            return (wasFull ? kind : nil, done)
        }
        if let kind { updateGates(kind) }
        for waiter in waiters { waiter.resume() }
    }

    /// Returns once no connection is open.
    func empty() async {
        await withCheckedContinuation { continuation in
            let done = state.withLock { state in
                if !state.open.isEmpty { state.waiters.append(continuation) }
                return state.open.isEmpty
            }
            if done { continuation.resume() }
        }
    }

    func shutdown() {
        let all = state.withLock { state in
            state.stopping = true
            return Array(state.open.values)
        }
        for connection in all { connection.loop.execute { connection.handler.value.shutdown() } }
    }

    func abort() {
        for connection in state.withLock({ Array($0.open.values) }) {
            connection.loop.execute { connection.handler.value.abort() }
        }
    }

    // Each gate looks for itself on its own loop: news sent from several loops could overtake each
    // other and leave a gate shut for ever.
    private func updateGates(_ kind: Kind) {
        for (_, gate, loop) in state.withLock({ $0.gates.filter { $0.kind == kind } }) {
            loop.execute { gate.value.setFull(self.state.withLock { $0.isFull(kind) }) }
        }
    }
}
