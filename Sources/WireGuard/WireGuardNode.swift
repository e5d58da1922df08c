import DequeModule
import IPAddresses
import Sodium

/// WireGuard without I/O: one key pair and its peers (docs/contracts/wireguard.md, which names the whitepaper).
///
/// The driver hands in datagrams (``receive(_:from:now:)``), packets to be sent (``seal(in:packetCount:for:now:)``) and
/// the time (``advance(now:)``, at ``nextDeadline`` at the latest), and takes what is to be sent while
/// ``hasTransmissions`` (``nextTransmission(into:now:)``). Times are those of one clock that goes on while the machine
/// sleeps (CLOCK_BOOTTIME); one that stands still costs a wait of 15 seconds afterwards, and one that goes back is taken
/// to stand still.
package struct WireGuardNode: Sendable {
    /// What happened to a peer without a call of the driver for it.
    package enum Event: Equatable, Sendable {
        /// The peer did not answer for 90 seconds: what waited for it was dropped.
        case gaveUp(PeerID)
        /// There was no new session for 540 seconds.
        case forgotKeys(PeerID)
    }

    package let key: PrivateKey
    package let limits: WireGuardLimits
    /// Our own addresses: packets to others are dropped.
    package var addresses: [IPAddress]
    package internal(set) var drops = DropCounters()

    let wall: @Sendable () -> TAI64N
    var random: any RandomNumberGenerator & Sendable
    let mac1Key: SecretBytes
    let cookieKey: SecretBytes
    var gate: HandshakeGate

    var peers: [Peer] = []
    private var freeSlots: [Int] = []
    private var slots: [PublicKey: Int] = [:]
    private var lastGeneration: UInt64 = 0
    var owners = AllowedAddresses()

    var sessions: [Session] = []
    private var freePlaces: [Int] = []
    /// Places of sessions by our index.
    var places: [UInt32: Int] = [:]
    /// Peers by the index of our initiation that waits for its answer.
    var initiations: [UInt32: Int] = [:]

    var deadlines = Deadlines()
    var ready: Deque<Int> = []
    var cookieReplies: Deque<(source: Source, bytes: [UInt8])> = []
    var stagedCount = 0
    private var events: Deque<Event> = []
    private var clock = Duration.zero

    /// - Parameters:
    ///   - addresses: our own.
    ///   - random: makes keys, indices and nonces; cryptographically secure outside of tests.
    ///   - wall: the time of day.
    package init(
        key: PrivateKey, addresses: [IPAddress], limits: WireGuardLimits = .init(),
        random: any RandomNumberGenerator & Sendable = SystemRandomNumberGenerator(),
        wall: @escaping @Sendable () -> TAI64N
    ) {
        (self.key, self.addresses, self.limits, self.random, self.wall) = (key, addresses, limits, random, wall)
        mac1Key = Message.mac1Key(key.publicKey)
        cookieKey = Message.cookieKey(key.publicKey)
        gate = HandshakeGate(limits: limits)
    }

    // MARK: Peers

    /// Takes a peer in.
    /// - Parameters:
    ///   - preshared: 32 bytes; zeros where there is none.
    ///   - allowed: the addresses it may send from, and is sent packets for.
    ///   - keepAlive: the longest time in which nothing is sent to it. With one, a session is made at once.
    package mutating func addPeer(
        _ peer: PublicKey, preshared: SecretBytes? = nil, allowed: [IPPrefix], keepAlive: Duration? = nil,
        now: Duration
    ) throws(PeerError) -> PeerID {
        let now = tick(now)
        guard peer != key.publicKey else { throw .ownKey }
        guard slots[peer] == nil else { throw .known }
        guard slots.count < limits.peers else {
            drops.note(.tooManyPeers)
            throw .tooManyPeers
        }
        guard preshared.map({ $0.count == 32 }) ?? true else { throw .presharedKey }
        guard keepAlive.map({ $0 > .zero }) ?? true else { throw .keepAlive }
        guard let statics = key.shared(with: peer) else { throw .lowOrderKey }
        try check(allowed, slot: nil)
        lastGeneration += 1
        let slot = freeSlots.popLast() ?? peers.count
        let new = Peer(
            id: PeerID(slot: slot, generation: lastGeneration), key: peer, statics: statics,
            preshared: preshared ?? Peer.noPreshared, keepAlive: keepAlive, now: now)
        if slot == peers.count { peers.append(new) } else { peers[slot] = new }
        slots[peer] = slot
        setAllowed(allowed, slot)
        if keepAlive != nil { wantHandshake(slot, now: now) }
        return new.id
    }

    /// Replaces the addresses of a peer; when this throws, it has the old ones.
    package mutating func replaceAllowed(_ allowed: [IPPrefix], of id: PeerID) throws(PeerError) {
        guard let slot = slot(of: id) else { throw .unknown }
        try check(allowed, slot: slot)
        setAllowed(allowed, slot)
    }

    /// Forgets a peer with all its keys, and what waits for it.
    package mutating func removePeer(_ id: PeerID) {
        guard let slot = slot(of: id) else { return }
        forgetSessions(slot)
        endAttempt(slot)
        dropStaged(slot, .peerRemoved)
        setAllowed([], slot)
        deadlines.set(slot, nil)
        ready.removeAll { $0 == slot }
        slots[peers[slot].key] = nil
        // With a generation that no peer has; the keys go with the old value.
        peers[slot] = Peer(
            id: PeerID(slot: slot, generation: 0), key: key.publicKey, statics: Peer.noPreshared,
            preshared: Peer.noPreshared, keepAlive: nil, now: .zero)
        freeSlots.append(slot)
    }

    private mutating func check(_ allowed: [IPPrefix], slot: Int?) throws(PeerError) {
        guard allowed.count <= limits.prefixesPerPeer else {
            drops.note(.tooManyPrefixes)
            throw .tooManyPrefixes
        }
        for prefix in allowed {
            if let holder = owners.holder(of: prefix), holder != slot { throw .taken(prefix) }
        }
    }

    private mutating func setAllowed(_ allowed: [IPPrefix], _ slot: Int) {
        for prefix in peers[slot].allowed { owners.remove(prefix) }
        for prefix in allowed { owners.add(prefix, slot: slot) }
        peers[slot].allowed = allowed
        // A longer prefix of this peer may have taken an address from another.
        for index in peers.indices { peers[index].seen = nil }
    }

    /// The peer that has an address.
    package func peer(owning address: IPAddress) -> PeerID? { owners.owner(of: address).map { peers[$0].id } }
    package func peer(for key: PublicKey) -> PeerID? { slots[key].map { peers[$0].id } }
    package var peerIDs: [PeerID] { slots.values.map { peers[$0].id } }

    @inline(__always)
    func slot(of id: PeerID) -> Int? {
        id.slot >= 0 && id.slot < peers.count && peers[id.slot].id.generation == id.generation && id.generation != 0
            ? id.slot : nil
    }

    func slot(of key: PublicKey) -> Int? { slots[key] }

    // MARK: Sessions

    /// An index that neither a session nor an initiation of ours has.
    mutating func newIndex() -> UInt32 {
        var index = UInt32(truncatingIfNeeded: random.next())
        while index == 0 || places[index] != nil || initiations[index] != nil { index &+= 1 }
        return index
    }

    mutating func add(_ session: Session) -> Int {
        let place = freePlaces.popLast() ?? sessions.count
        if place == sessions.count { sessions.append(session) } else { sessions[place] = session }
        places[session.index] = place
        return place
    }

    mutating func endSession(_ place: Int?) {
        guard let place else { return }
        places[sessions[place].index] = nil
        sessions[place] = .vacant
        freePlaces.append(place)
    }

    mutating func forgetSessions(_ slot: Int) {
        for place in [peers[slot].previous, peers[slot].current, peers[slot].next] { endSession(place) }
        (peers[slot].previous, peers[slot].current, peers[slot].next) = (nil, nil, nil)
        peers[slot].lastSession = nil
    }

    mutating func dropStaged(_ slot: Int, _ reason: DropReason) {
        let count = peers[slot].staged.count
        drops.note(reason, times: count)
        stagedCount -= count
        peers[slot].staged = []
    }

    // MARK: What happened

    package mutating func nextEvent() -> Event? { events.popFirst() }

    mutating func note(_ event: Event) {
        if events.count >= limits.events, events.popFirst() != nil { drops.note(.tooManyEvents) }
        events.append(event)
    }

    /// Time never goes back.
    @inline(__always)
    mutating func tick(_ now: Duration) -> Duration {
        if now > clock { clock = now }
        return clock
    }
}

/// Why a peer was rejected, or not changed.
package enum PeerError: Error, Equatable, Sendable, CustomStringConvertible {
    case ownKey, known, unknown, tooManyPeers, tooManyPrefixes, presharedKey, keepAlive, lowOrderKey
    case taken(IPPrefix)

    package var description: String {
        switch self {
        case .ownKey: "the peer's key is our own"
        case .known: "a peer has this key already"
        case .unknown: "there is no such peer any more"
        case .tooManyPeers: "the limit of peers is reached"
        case .tooManyPrefixes: "the peer has too many allowed prefixes"
        case .presharedKey: "a preshared key has 32 bytes"
        case .keepAlive: "the time between two keep-alives must be positive"
        case .lowOrderKey: "the peer's key is of low order"
        case .taken(let prefix): "another peer has \(prefix)"
        }
    }
}
