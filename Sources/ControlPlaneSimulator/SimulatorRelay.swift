import AgentCore
import DERP
import NIOCore
import Sodium
import Synchronization

/// The relay of a simulated control plane: one ``DERPRelay`` for the connections of all event loops
/// (docs/contracts/derp.md#frames).
package final class SimulatorRelay: Sendable {
    package struct Configuration: Sendable {
        /// The relay's; a new one where nil.
        package var key: PrivateKey?
        /// What clients are told about how much they may send.
        package var rateLimit: DERPRelay.RateLimit?
        /// A client that takes nothing for so long, while something waits for it, is cut.
        package var slowReader: Duration = .seconds(2)

        package init() {}
    }

    /// What a request for `Upgrade: DERP` is refused with, as a proxy does that lets only WebSocket pass.
    package struct Refusal: Sendable, Equatable {
        package var status: Int
        package var body: String

        package init(status: Int = 426, body: String = "upgrade not allowed here\n") {
            (self.status, self.body) = (status, body)
        }
    }

    private struct State {
        var relay: DERPRelay?
        var clients: [UInt64: RelayClientHandler.Link] = [:]
        var nextID: UInt64 = 0
        var isStalled = false
        var refusal: Refusal?
        var hasTimer = false
        var droppedSlow = 0
    }

    private let key: PrivateKey?
    private let rateLimit: DERPRelay.RateLimit?
    let slowReader: Duration
    let clock: AgentClock
    private let state: Mutex<State>

    init(_ configuration: Configuration, clock: AgentClock) {
        self.clock = clock
        var random = SystemRandomNumberGenerator()
        // Fails where libsodium is missing: then there is no relay.
        let key = configuration.key ?? (try? PrivateKey(random: &random))
        self.key = key
        rateLimit = configuration.rateLimit
        slowReader = configuration.slowReader
        state = Mutex(State(relay: Self.machine(key, configuration.rateLimit)))
    }

    private static func machine(_ key: PrivateKey?, _ limit: DERPRelay.RateLimit?) -> DERPRelay? {
        key.map { DERPRelay(key: $0, rateLimit: limit, random: SystemRandomNumberGenerator()) }
    }

    // MARK: What tests see and do

    /// nil where libsodium is missing: there is no relay then.
    package var publicKey: PublicKey? { key?.publicKey }
    /// Connections of clients.
    package var connections: Int { state.withLock { $0.clients.count } }
    /// Of these, those by WebSocket.
    package var webSockets: Int { state.withLock { $0.clients.values.count { $0.isWebSocket } } }
    /// Clients that were cut because they did not read.
    package var droppedSlow: Int { state.withLock { $0.droppedSlow } }
    /// Since the start, or ``restart(announcing:)``; nil without a relay.
    package var counters: DERPRelay.Counters? { state.withLock { $0.relay?.counters } }
    /// Whether a node has greeted the relay and is connected.
    package func isConnected(_ node: PublicKey) -> Bool { state.withLock { $0.relay?.isConnected(node) ?? false } }
    /// Whether the relay is the home of a node that is connected.
    package func isHome(of node: PublicKey) -> Bool { state.withLock { $0.relay?.isHome(of: node) ?? false } }

    /// From now on `Upgrade: DERP` is refused with this; nil lets it pass. WebSocket always does.
    package func refuseUpgrades(_ refusal: Refusal?) { state.withLock { $0.refusal = refusal } }
    var refusal: Refusal? { state.withLock { $0.refusal } }

    /// Begins anew with the same key: every connection is cut, and nothing of it is known any more.
    /// - Parameter announcing: told before, in milliseconds: until clients may dial, and how long they should try.
    package func restart(announcing times: (reconnectIn: UInt32, tryFor: UInt32)? = nil) {
        let links = state.withLock { state in
            state.relay = Self.machine(key, rateLimit)
            defer { state.clients = [:] }
            return Array(state.clients.values)
        }
        let frame = times.map { DERPFrame.restarting(reconnectIn: $0.reconnectIn, tryFor: $0.tryFor) }
        for link in links { link.onLoop { $0.cut(saying: frame) } }
    }

    /// Tells every client that something is wrong, or with an empty text that all is well.
    package func tellHealth(_ text: String) {
        run { state, _ in
            for id in state.clients.keys { state.relay?.tell(id, .health(text)) }
        }
    }

    /// Whether the relay neither reads nor writes; connections stay, and new ones are taken and not greeted.
    package func stall(_ isStalled: Bool) {
        let links = state.withLock { state in
            state.isStalled = isStalled
            return Array(state.clients.values)
        }
        for link in links { link.onLoop { $0.resume() } }
    }
    var isStalled: Bool { state.withLock { $0.isStalled } }

    // MARK: Connections

    /// A connection was made.
    func connect(_ link: RelayClientHandler.Link) throws -> UInt64 {
        try run { state, now in
            state.nextID += 1
            try state.relay?.connect(state.nextID, now: now)
            state.clients[state.nextID] = link
            return state.nextID
        }
    }

    func receive(_ bytes: ByteBuffer, from id: UInt64) throws {
        try run { state, now in try state.relay?.receive(bytes, from: id, now: now) }
    }

    func disconnect(_ id: UInt64) {
        run { state, _ in
            state.clients[id] = nil
            state.relay?.disconnect(id)
        }
    }

    /// What to write to a client next, and whether more waits.
    func output(for id: UInt64) -> (ByteBuffer, more: Bool) {
        state.withLock { state in
            var out = ByteBuffer()
            guard !state.isStalled else { return (out, false) }
            let more = state.relay?.write(into: &out, for: id, upTo: SimulatorLimits.relayWriteBytes) ?? false
            return (out, more)
        }
    }

    func wasSlow() { state.withLock { $0.droppedSlow += 1 } }

    /// Changes the relay, then has the connections write for which there is something.
    private func run<T: Sendable, E: Error>(_ body: (inout State, Duration) throws(E) -> T) throws(E) -> T {
        let now = clock.now()
        let (result, links, deadline) = state.withLock { state in
            let result: Result<T, E>
            do throws(E) { result = .success(try body(&state, now)) } catch { result = .failure(error) }
            let links = (state.relay?.takeReady() ?? []).compactMap { state.clients[$0] }
            let deadline = state.hasTimer ? nil : state.relay?.nextDeadline
            if deadline != nil { state.hasTimer = true }
            return (result, links, deadline)
        }
        for link in links { link.onLoop { $0.pump() } }
        if let deadline {
            _ = clock.after(max(.zero, deadline - now)) { [weak self] in
                guard let self else { return }
                run { state, now in
                    state.hasTimer = false
                    state.relay?.advance(now: now)
                }
            }
        }
        return try result.get()
    }
}
