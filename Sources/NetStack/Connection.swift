import IPAddresses

/// What all connections of a stack share, handed to each call.
struct StackContext: Sendable {
    let limits: NetStackLimits
    var budget: BufferBudget
    var counters = NetStackCounters()
    var events = EventQueue()
    let hash: FlowHash
}

/// One TCP connection (RFC 9293): segments, calls of the application and timers go in; events and segments come out.
struct Connection: Sendable {
    enum State: Sendable {
        case free
        /// A SYN came that the driver has not answered yet.
        case requested
        case synSent, synReceived, established, finWait1, finWait2, closing, closeWait, lastAck
        /// Nothing more is sent or received; the reader has not read all.
        case detached
    }

    /// How the connection leaves the network.
    enum Ending: Sendable, Equatable {
        case failed(ConnectionFailure)
        case closed
        /// Both FINs were acknowledged and ours was first.
        case timeWait
    }

    var id: ConnectionID
    var key: FlowKey
    var state = State.free
    var isPassive = false
    var ending: Ending?
    var send: SendSide
    var receive: ReceiveSide

    var usesSACK = false
    var usesTimestamps = false
    /// What is added to the clock in our timestamps (RFC 7323, 5.4).
    var stampOffset: UInt32 = 0
    /// The peer's timestamp to echo, and when it came.
    var recentStamp: UInt32 = 0
    var recentStampAt: Microseconds = 0

    /// When a segment of the peer last came.
    var heardAt: Microseconds = 0
    /// 0: no keep-alive.
    var keepAliveIdle: Microseconds = 7_200_000_000
    var keepAliveProbes = 0
    var keepAliveProbedAt: Microseconds = 0
    /// When the request lapses, or empty buffers are given back.
    var houseKeepingAt: Microseconds = .never
    /// Answers to doubtful segments in the second that began then.
    private var challenges: (since: Microseconds, count: Int) = (0, 0)

    var readableSignalled = false
    var endSignalled = false

    // Kept by the stack.
    var isCountedHalfOpen = false
    var waitsForAcknowledgment = false
    var waitsForData = false
    /// The interval of statistics in which this flow was counted.
    var countedIn: UInt32 = .max

    /// A slot without a connection.
    init(slot: UInt32) {
        id = ConnectionID(slot: slot, generation: 0)
        let none = Endpoint(.unspecified, 0)
        key = FlowKey(local: none, remote: none)
        send = SendSide(limit: 0)
        receive = ReceiveSide(limit: 0)
    }

    /// Begins a connection in a free slot.
    mutating func begin(_ key: FlowKey, state: State, now: Microseconds, context: StackContext) {
        var fresh = Connection(slot: id.slot)
        fresh.id.generation = id.generation
        fresh.key = key
        fresh.state = state
        fresh.send = SendSide(limit: context.limits.firstSendBytes)
        fresh.receive = ReceiveSide(limit: context.limits.firstReceiveBytes)
        fresh.heardAt = now
        fresh.stampOffset = UInt32(truncatingIfNeeded: context.hash(key, salt: 1))
        (fresh.waitsForAcknowledgment, fresh.waitsForData) = (waitsForAcknowledgment, waitsForData)
        self = fresh
        // RFC 6528: a clock of 4 µs and a keyed hash.
        let clock = UInt32(truncatingIfNeeded: now / 4)
        send.begin(at: SequenceNumber(clock &+ UInt32(truncatingIfNeeded: context.hash(key, salt: 0))))
    }

    /// Gives all back and leaves the slot to the next connection.
    mutating func end(_ context: inout StackContext) {
        context.budget.release(&send.ring)
        context.budget.release(&receive.ring)
        var free = Connection(slot: id.slot)
        free.id.generation = id.generation &+ 1
        (free.waitsForAcknowledgment, free.waitsForData) = (waitsForAcknowledgment, waitsForData)
        self = free
    }

    /// The handshake is over, and neither side has closed the connection.
    var isSynchronized: Bool {
        switch state {
        case .established, .finWait1, .finWait2, .closing, .closeWait, .lastAck: true
        case .free, .requested, .synSent, .synReceived, .detached: false
        }
    }

    /// Takes options of the peer's SYN.
    mutating func takeOptions(of syn: TCPSegment, now: Microseconds) {
        receive.begin(after: syn.sequence)
        usesSACK = syn.sackPermitted
        if let timestamps = syn.timestamps {
            usesTimestamps = true
            (recentStamp, recentStampAt) = (timestamps.value, now)
        } else {
            usesTimestamps = false
        }
        if let scale = syn.windowScale {
            (send.shift, receive.shift) = (scale, ReceiveSide.scale)
        } else {
            (send.shift, receive.shift) = (0, 0)
        }
        send.window = Int(syn.window)
        send.widestWindow = send.window
        (send.windowSequence, send.windowAcknowledgment) = (syn.sequence, syn.acknowledgment)
        // Without the option 1,220 (RFC 9293, 3.7.1). A tiny one would make us send headers and nothing else.
        let mss = min(SendSide.mostSegmentBytes, max(64, Int(syn.mss ?? UInt16(SendSide.mostSegmentBytes))))
        send.agree(mss: mss - (usesTimestamps ? TCPSegment.timestampBytes : 0))
    }

    func stamp(_ now: Microseconds) -> UInt32 { Self.stamp(now, offset: stampOffset) }

    static func stamp(_ now: Microseconds, offset: UInt32) -> UInt32 {
        UInt32(truncatingIfNeeded: now / 1_000) &+ offset
    }

    /// Answers a doubtful segment with an acknowledgment, so often as RFC 5961, 7 advises.
    mutating func challenge(now: Microseconds, context: inout StackContext) {
        if now - challenges.since >= 1_000_000 { challenges = (now, 0) }
        guard challenges.count < context.limits.challenges else { return context.counters.drop(.challengeLimit) }
        challenges.count += 1
        receive.mustAcknowledge = true
    }

    // MARK: What the stack asks after each call

    /// Whether ``transmit(into:now:context:)`` may have more than an acknowledgment to send.
    var hasWork: Bool {
        switch state {
        case .free, .requested, .detached: false
        default:
            send.mustProbe || send.segments.lostBytes > 0 || send.mustProbeTail || send.hasUnsent
                || send.next == send.initial
        }
    }

    /// When ``advance(now:context:)`` has to be called.
    var deadline: Microseconds {
        min(min(send.deadline, receive.delayedUntil), min(houseKeepingAt, keepAliveAt))
    }

    var keepAliveAt: Microseconds {
        guard isSynchronized, keepAliveIdle > 0 else { return .never }
        if keepAliveProbes == 0 { return heardAt &+ keepAliveIdle }
        return keepAliveProbedAt
    }
}
