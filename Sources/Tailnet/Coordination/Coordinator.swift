import AgentProto
import DequeModule
import FoundationEssentials
import IPAddresses
import Sodium
import SwiftProtobuf

/// What the control plane says of peers and hears of us (docs/contracts/tailnet.md#coordination), without I/O.
///
/// The driver hands in what it received and what changed, performs what ``nextAction()`` says until that is nil, and calls
/// ``advance(now:lastHandshake:)`` at ``nextDeadline``. One coordinator lives through all connections to the control plane.
package struct Coordinator: Sendable {
    package enum Action: Equatable, Sendable {
        case send(Coder_Tailnet_V2_CoordinateRequest)
        /// Take the peer into WireGuard and disco.
        case add(TailnetPeer)
        /// The same key with other data.
        case change(TailnetPeer)
        /// Forget the peer and reset its connections.
        case remove(TailnetPeer)
        /// Tell it in the log: as a warning, or for those who debug.
        case log(String, isWarning: Bool)
    }

    package struct Counters: Hashable, Sendable {
        /// Updates of peers that were not taken.
        package var refusedPeers: UInt64 = 0
        /// Addresses that another peer holds.
        package var refusedAddresses: UInt64 = 0
    }

    /// Peers; a further one is refused (docs/contracts/tailnet.md#limits).
    package static let mostPeers = 1_024
    /// How long a peer that was lost is kept after its last handshake.
    package static let lostLife = Duration.seconds(900)
    /// Between two updates that tell of latencies alone.
    package static let latencyInterval = Duration.seconds(60)
    private static let readyError = "ready for handshake error"

    private struct Entry {
        var peer: TailnetPeer
        var lostAt: Duration?
    }

    private let wall: @Sendable () -> Google_Protobuf_Timestamp
    private var own: OwnNode
    private var announced: OwnNode?
    private var announcedAt: Duration = .zero
    private var isOpen = false
    private var isRelayUp = false
    private var peers: [TailnetPeer.ID: Entry] = [:]
    private var holders: [IPAddress: TailnetPeer.ID] = [:]
    /// Peers that wait for our word that they may begin.
    private var unready: [TailnetPeer.ID] = []
    /// Peers whose refusal was told.
    private var told: Set<TailnetPeer.ID> = []
    private var actions: Deque<Action> = []
    package private(set) var counters = Counters()
    /// The control plane's last error; nil again with the next stream.
    package private(set) var lastError: String?

    /// - Parameter wall: the time of day.
    package init(
        addresses: TailnetAddresses, key: PublicKey, disco: PublicKey,
        wall: @escaping @Sendable () -> Google_Protobuf_Timestamp
    ) {
        own = OwnNode(addresses: addresses, key: key, disco: disco)
        self.wall = wall
    }

    package mutating func nextAction() -> Action? { actions.popFirst() }
    package var peerCount: Int { peers.count }
    package var allPeers: [TailnetPeer] { peers.values.map(\.peer) }

    // MARK: The stream

    package mutating func opened(now: Duration) {
        (isOpen, announced, lastError) = (true, nil, nil)
        unready = []
        announce(now: now)
    }

    /// It has ended: every peer is as good as lost.
    package mutating func closed(now: Duration) {
        isOpen = false
        unready = []
        for (id, entry) in peers where entry.lostAt == nil { peers[id]?.lostAt = now }
    }

    /// We end in order: clients drop the tunnel at once.
    package mutating func disconnect() {
        guard isOpen else { return }
        var request = Coder_Tailnet_V2_CoordinateRequest()
        request.disconnect = .init()
        actions.append(.send(request))
        isOpen = false
    }

    package mutating func receive(_ response: Coder_Tailnet_V2_CoordinateResponse, now: Duration) {
        for update in response.peerUpdates {
            let id = TailnetPeer.ID(update.id)
            switch update.kind {
            case .node: take(id, update.node)
            case .disconnected: remove(id)
            case .lost: if peers[id] != nil, peers[id]?.lostAt == nil { peers[id]?.lostAt = now }
            // That is for clients, and for those who come after us.
            case .readyForHandshake, .unspecified, .UNRECOGNIZED: break
            }
        }
        sayReady()
        guard !response.error.isEmpty else { return }
        let text = "the control plane says of coordination: \(response.error.prefix(512))"
        if response.error.hasPrefix(Self.readyError) {
            // The peer went while we answered.
            actions.append(.log(text, isWarning: false))
        } else {
            lastError = String(response.error.prefix(512))
            actions.append(.log(text, isWarning: true))
        }
    }

    // MARK: Peers

    private mutating func take(_ id: TailnetPeer.ID, _ node: Coder_Tailnet_V2_Node) {
        do throws(TailnetPeer.Refusal) {
            var peer = try TailnetPeer(id: id, node, own: own.addresses.all)
            try takeOver(peer)
            guard peers[id] != nil || peers.count < Self.mostPeers else {
                throw TailnetPeer.Refusal(description: "there are \(Self.mostPeers) peers")
            }
            let wanted = peer.addresses.count
            peer.addresses.removeAll { holders[$0] ?? id != id }
            counters.refusedAddresses &+= UInt64(wanted - peer.addresses.count)
            guard wanted == 0 || !peer.addresses.isEmpty else {
                throw TailnetPeer.Refusal(description: "another peer holds its address")
            }
            if let old = peers[id]?.peer, old.key != peer.key { remove(id) }
            let isNew = peers[id] == nil
            let isSame = peers[id]?.peer == peer
            for address in peers[id]?.peer.addresses ?? [] { holders[address] = nil }
            for address in peer.addresses { holders[address] = id }
            peers[id] = Entry(peer: peer)
            told.remove(Array(id.prefix(16)))
            if isNew { actions.append(.add(peer)) } else if !isSame { actions.append(.change(peer)) }
            if !unready.contains(id) { unready.append(id) }
        } catch {
            counters.refusedPeers &+= 1
            if told.count >= Self.mostPeers { told = [] }
            guard told.insert(Array(id.prefix(16))).inserted else { return }
            actions.append(.log("the peer \(TailnetPeer.text(id)) is refused: \(error)", isWarning: true))
        }
    }

    /// Makes room for a client that comes again under another id, as a workspace proxy does at each connection to the
    /// control plane (docs/contracts/tailnet.md#who-is-who). With its key and an address it is the same peer, and its
    /// connections go on; the address of a peer that is lost is free for another key. A live peer keeps what it has.
    private mutating func takeOver(_ peer: TailnetPeer) throws(TailnetPeer.Refusal) {
        if let (old, entry) = peers.first(where: { $0.key != peer.id && $0.value.peer.key == peer.key }) {
            guard entry.lostAt != nil || !Set(entry.peer.addresses).isDisjoint(with: peer.addresses) else {
                throw TailnetPeer.Refusal(description: "another peer has its key")
            }
            // What the old id is said to be from now on changes nothing.
            unready.removeAll { $0 == old }
            for address in entry.peer.addresses { holders[address] = peer.id }
            if let current = peers[peer.id]?.peer, current.key != peer.key { remove(peer.id) }
            peers[old] = nil
            peers[peer.id] = entry
        }
        for holder in Set(peer.addresses.compactMap { holders[$0] }) where holder != peer.id {
            if peers[holder]?.lostAt != nil { remove(holder) }
        }
    }

    private mutating func remove(_ id: TailnetPeer.ID) {
        unready.removeAll { $0 == id }
        guard let entry = peers.removeValue(forKey: id) else { return }
        for address in entry.peer.addresses { holders[address] = nil }
        actions.append(.remove(entry.peer))
    }

    /// A client begins on this word, and its first message comes by our home relay: not before we are there.
    private mutating func sayReady() {
        guard isOpen, isRelayUp, announced != nil, !unready.isEmpty else { return }
        var request = Coder_Tailnet_V2_CoordinateRequest()
        request.readyForHandshake = unready.map { id in
            var ready = Coder_Tailnet_V2_CoordinateRequest.ReadyForHandshake()
            ready.id = Data(id)
            return ready
        }
        unready = []
        actions.append(.send(request))
    }

    // MARK: Ourselves

    /// Another manifest says who we are.
    package mutating func setAddresses(_ addresses: TailnetAddresses, now: Duration) {
        own.addresses = addresses
        for (id, entry) in peers where !addresses.all.allSatisfy({ !entry.peer.addresses.contains($0) }) { remove(id) }
        announce(now: now)
    }

    /// - Parameters:
    ///   - home: 0 while there is none.
    ///   - latencies: by `REGION-v4` or `REGION-v6`.
    package mutating func setRelays(
        home: Int, latencies: [String: Duration], forcedWebSocket: [Int: String], now: Duration
    ) {
        own.home = home
        own.latencies = latencies.mapValues { $0 / .seconds(1) }
        own.forcedWebSocket = forcedWebSocket
        announce(now: now)
    }

    package mutating func setEndpoints(_ endpoints: [Endpoint], now: Duration) {
        own.endpoints = endpoints
        announce(now: now)
    }

    /// Whether the home relay routes packets to us.
    package mutating func setRelayUp(_ isUp: Bool) {
        isRelayUp = isUp
        sayReady()
    }

    private mutating func announce(now: Duration) {
        guard isOpen, own.home > 0, own != announced else { return }
        if let announced, !own.isUrgent(after: announced), now - announcedAt < Self.latencyInterval { return }
        var request = Coder_Tailnet_V2_CoordinateRequest()
        request.updateSelf.node = own.message(asOf: wall())
        actions.append(.send(request))
        (announced, announcedAt) = (own, now)
        sayReady()
    }

    // MARK: Time

    package var nextDeadline: Duration? {
        let lost = peers.values.compactMap { $0.lostAt.map { $0 + Self.lostLife } }.min()
        let waits = isOpen && own.home > 0 && announced != nil && own != announced
        return [lost, waits ? announcedAt + Self.latencyInterval : nil].compactMap { $0 }.min()
    }

    /// - Parameter lastHandshake: when the last handshake with a peer was completed.
    package mutating func advance(now: Duration, lastHandshake: (PublicKey) -> Duration?) {
        for (id, entry) in peers {
            guard let lostAt = entry.lostAt, lostAt + Self.lostLife <= now else { continue }
            if let last = lastHandshake(entry.peer.key), last + Self.lostLife > now {
                // It is still talked with.
                peers[id]?.lostAt = last
            } else {
                remove(id)
            }
        }
        announce(now: now)
    }
}
