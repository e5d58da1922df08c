import AgentCore
import NIOCore
import Synchronization

/// The open connections of a server: bounds their number and ends them at shutdown.
final class ConnectionRegistry: Sendable {
    private struct State {
        var next = 0
        var open: [Int: NIOLoopBound<HTTPConnectionHandler>] = [:]
        var gates: [NIOLoopBound<AcceptGate>] = []
        var full = false
        var stopping = false
        var waiters: [CheckedContinuation<Void, Never>] = []
    }

    private let state = Mutex(State())
    private let gauge: GaugeSeries

    init(gauge: GaugeSeries) { self.gauge = gauge }

    func add(gate: NIOLoopBound<AcceptGate>) { state.withLock { $0.gates.append(gate) } }

    func add(_ connection: NIOLoopBound<HTTPConnectionHandler>) -> Int {
        gauge.add(1)
        let (id, stopping, closed) = state.withLock { state in
            state.next += 1
            state.open[state.next] = connection
            let closed = !state.full && state.open.count >= HTTPLimits.connections
            if closed { state.full = true }
            return (state.next, state.stopping, closed ? state.gates : [])
        }
        setFull(true, closed)
        // Accepted just before the listener closed.
        if stopping { connection._eventLoop.execute { connection.value.shutdown() } }
        return id
    }

    func remove(_ id: Int) {
        gauge.add(-1)
        let (waiters, opened) = state.withLock { state in
            state.open[id] = nil
            let opened = state.full && state.open.count < HTTPLimits.connections
            if opened { state.full = false }
            guard state.open.isEmpty else { return ([CheckedContinuation<Void, Never>](), opened ? state.gates : []) }
            defer { state.waiters = [] }
            return (state.waiters, opened ? state.gates : [])
        }
        setFull(false, opened)
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
        let all = state.withLock {
            $0.stopping = true
            return $0.open
        }
        for connection in all.values { connection._eventLoop.execute { connection.value.shutdown() } }
    }

    func abort() {
        for connection in state.withLock({ $0.open }).values {
            connection._eventLoop.execute { connection.value.abort() }
        }
    }

    private func setFull(_ full: Bool, _ gates: [NIOLoopBound<AcceptGate>]) {
        for gate in gates { gate._eventLoop.execute { gate.value.setFull(full) } }
    }
}
