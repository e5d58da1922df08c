import AgentCore
import NIOCore
import Synchronization

/// The open connections of a server: limits their number by kind, chooses those to close for new ones, and closes them
/// at shutdown.
final class ConnectionRegistry: Sendable {
    enum Kind: Hashable { case unix, tcp, tunnel }

    private struct Connection: Sendable {
        var activity: ConnectionActivity
        var handler: NIOLoopBound<HTTPConnectionHandler>
        var loop: any EventLoop
    }

    private struct State: Sendable {
        var next = 0
        var open: [Int: Connection] = [:]
        var gates: [(kind: Kind, gate: NIOLoopBound<AcceptGate>, loop: any EventLoop)] = []
        var stopping = false
    }

    /// How many connections of a kind are open, and how many of them have no request under way. Atomics, so that
    /// requests need not take the lock.
    private final class Population: Sendable {
        let open = Atomic(0)
        let idle = Atomic(0)
        /// Newcomers for which none was idle that could make room.
        let owed = Atomic(0)
    }

    private let state = Watched(State())
    private let unix = Population()
    private let tcp = Population()
    private let tunnel = Population()
    private let gauge: GaugeSeries
    /// Of these, ``HTTPLimits/maximumConnections``, and for how long a connection that takes the last place keeps it
    /// without a request.
    private let limits: HTTPLimits

    init(gauge: GaugeSeries, limits: HTTPLimits) {
        self.gauge = gauge
        self.limits = limits
    }

    /// Open connections by the kind of their listener.
    var open: [String: Int64] {
        [
            "http_unix": Int64(unix.open.load(ordering: .relaxed)),
            "http_tcp": Int64(tcp.open.load(ordering: .relaxed)),
            "http_tunnel": Int64(tunnel.open.load(ordering: .relaxed)),
        ]
    }

    private func population(_ kind: Kind) -> Population {
        switch kind {
        case .unix: unix
        case .tcp: tcp
        case .tunnel: tunnel
        }
    }

    private func limit(_ kind: Kind) -> Int {
        kind == .tunnel ? HTTPLimits.connections : limits.maximumConnections
    }

    private func isAtLimit(_ kind: Kind) -> Bool {
        population(kind).open.load(ordering: .sequentiallyConsistent) >= limit(kind)
    }

    private func isOverLimit(_ kind: Kind) -> Bool {
        population(kind).open.load(ordering: .sequentiallyConsistent) > limit(kind)
    }

    /// Whether no connection could make room for another, or one that does is still closing: newcomers that were accepted
    /// faster than that would take the descriptors of others.
    func isFull(_ kind: Kind) -> Bool {
        isOverLimit(kind) || isAtLimit(kind) && population(kind).idle.load(ordering: .sequentiallyConsistent) <= 0
    }

    func add(gate: AcceptGate, kind: Kind, loop: any EventLoop) {
        let bound = NIOLoopBound(gate, eventLoop: loop)
        state.update { $0.gates.append((kind, bound, loop)) }
    }

    /// Adds a connection; above the limit, the longest idle one is closed.
    func add(_ handler: HTTPConnectionHandler, kind: Kind, loop: any EventLoop) -> ConnectionActivity {
        gauge.add(1)
        let bound = NIOLoopBound(handler, eventLoop: loop)
        let (activity, stopping) = state.update { state in
            state.next += 1
            let activity = ConnectionActivity(id: state.next, kind: kind, registry: self)
            state.open[state.next] = Connection(activity: activity, handler: bound, loop: loop)
            return (activity, state.stopping)
        }
        let count = population(kind).open.add(1, ordering: .sequentiallyConsistent).newValue
        if count < limit(kind) {
            activity.end(now: loop.now)
        } else {
            // Otherwise the next new connection would close it before its first request, if all others are busy.
            loop.assumeIsolated().scheduleTask(in: limits.firstRequestGrace) { bound.value.graceEnded() }
            updateGates(kind)
        }
        if count > limit(kind) { makeRoomSoon(kind) }
        // Accepted just before the listener closed.
        if stopping { loop.execute { bound.value.shutdown() } }
        return activity
    }

    func remove(_ activity: ConnectionActivity) {
        gauge.add(-1)
        activity.close()
        let kind = activity.kind
        let wasAtLimit = isAtLimit(kind)
        population(kind).open.subtract(1, ordering: .sequentiallyConsistent)
        state.update { $0.open[activity.id] = nil }
        if wasAtLimit { updateGates(kind) }
    }

    /// A connection of the kind became idle (1) or busy (-1).
    fileprivate func changeIdle(_ kind: Kind, by change: Int) {
        let count = population(kind).idle.add(change, ordering: .sequentiallyConsistent).newValue
        // The first or the last of them.
        if count == max(0, change), isAtLimit(kind) { updateGates(kind) }
        guard change > 0, population(kind).owed.load(ordering: .relaxed) > 0 else { return }
        let owed = population(kind).owed.exchange(0, ordering: .relaxed)
        for _ in 0..<owed where isOverLimit(kind) { makeRoomSoon(kind) }
    }

    /// Closes the longest idle connection of the kind, or the next that becomes idle.
    private func makeRoomSoon(_ kind: Kind) {
        if !makeRoom(kind) { population(kind).owed.add(1, ordering: .relaxed) }
    }

    /// Closes the longest idle connection of the kind.
    /// - Returns: whether there is one.
    @discardableResult
    func makeRoom(_ kind: Kind) -> Bool {
        let chosen: Connection? = state.read { state in
            while true {
                var longest: (connection: Connection, since: UInt64)?
                for connection in state.open.values where connection.activity.kind == kind {
                    guard let since = connection.activity.idleSince, since < longest?.since ?? .max else { continue }
                    longest = (connection, since)
                }
                guard let longest else { return nil }
                if longest.connection.activity.choose(since: longest.since) { return longest.connection }
            }
        }
        guard let chosen else { return false }
        changeIdle(kind, by: -1)
        chosen.loop.execute {
            // It got a request meanwhile.
            if !chosen.handler.value.closeUnlessBusy() { self.makeRoomSoon(kind) }
        }
        return true
    }

    /// Returns once no connection is open.
    func empty() async { await state.waitIgnoringCancellation { $0.open.isEmpty } }

    func shutdown() {
        let all = state.update { state in
            state.stopping = true
            return Array(state.open.values)
        }
        for connection in all { connection.loop.execute { connection.handler.value.shutdown() } }
    }

    /// Closes those whose clients have neither sent nor read anything since the last call, while their requests wait for it.
    func closeStalled() {
        for connection in state.read({ Array($0.open.values) }) {
            connection.loop.execute { connection.handler.value.closeIfStalled() }
        }
    }

    func abort() {
        for connection in state.read({ Array($0.open.values) }) {
            connection.loop.execute { connection.handler.value.abort() }
        }
    }

    // Each gate checks on its own loop: states sent from several loops could arrive out of order and leave a gate
    // shut for ever.
    private func updateGates(_ kind: Kind) {
        for (_, gate, loop) in state.read({ $0.gates.filter { $0.kind == kind } }) {
            loop.execute { gate.value.setFull(self.isFull(kind)) }
        }
    }
}

/// Whether a connection has a request under way; set by its event loop, read by any thread.
final class ConnectionActivity: Sendable {
    private static let busy: UInt64 = 0
    private static let closed = UInt64.max

    let id: Int
    let kind: ConnectionRegistry.Kind
    private let registry: ConnectionRegistry
    /// Uptime in nanoseconds since which there was none, or one of the values above.
    private let state = Atomic(busy)

    fileprivate init(id: Int, kind: ConnectionRegistry.Kind, registry: ConnectionRegistry) {
        self.id = id
        self.kind = kind
        self.registry = registry
    }

    /// Uptime in nanoseconds since which no request was under way; nil while one is.
    fileprivate var idleSince: UInt64? {
        let since = state.load(ordering: .acquiring)
        return Self.isIdle(since) ? since : nil
    }

    /// A request is under way.
    func begin() { set(Self.busy) }

    /// It is over.
    func end(now: NIODeadline) { set(min(max(now.uptimeNanoseconds, 1), Self.closed - 1)) }

    fileprivate func close() { set(Self.closed) }

    /// Takes it from the idle ones, to be closed.
    /// - Returns: whether it was still idle; then the caller tells the registry.
    fileprivate func choose(since: UInt64) -> Bool {
        state.compareExchange(expected: since, desired: Self.busy, ordering: .acquiringAndReleasing).exchanged
    }

    /// Only on the connection's event loop.
    private func set(_ new: UInt64) {
        guard state.load(ordering: .relaxed) != Self.closed else { return }
        let wasIdle = Self.isIdle(state.exchange(new, ordering: .acquiringAndReleasing))
        let isIdle = Self.isIdle(new)
        if wasIdle != isIdle { registry.changeIdle(kind, by: isIdle ? 1 : -1) }
    }

    private static func isIdle(_ state: UInt64) -> Bool { state != busy && state != closed }
}
