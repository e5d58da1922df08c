import DequeModule
import NIOCore

/// The rules of a session without I/O: events go in through the methods, actions come out of ``nextAction()`` in order.
/// The driver takes the actions after each event, and data (``transmit()``) while the transport is writable.
///
/// The session holds the data to be sent, since it decides which stream has its turn. Received data is delivered at once
/// and only counted until ``consumed(_:stream:)``.
public struct YamuxSession: Sendable {
    /// Decides the ids of the streams that we open: odd for the client, even for the server.
    public enum Role: Sendable { case client, server }

    public enum Action: Sendable, Equatable {
        /// Send this frame, which has no payload.
        case send(YamuxHeader)
        /// Send this Data frame.
        case sendData(YamuxHeader, ByteBuffer)
        /// The other side opened a stream; accept or reset it. Data for it may come before.
        case opened(UInt32)
        /// Payload came. Its sender may send more when it is ``consumed(_:stream:)``.
        case deliver(UInt32, ByteBuffer)
        /// The other side will send no more (FIN).
        case inputEnded(UInt32)
        /// Our FIN goes out: all that was written went before.
        case outputEnded(UInt32)
        /// The stream's send window was empty and isn't any more.
        case windowOpened(UInt32)
        /// The stream was reset: by the other side, or by us because the other side broke its rules.
        case reset(UInt32)
        /// The session has removed a stream that both sides closed, or that our application had closed before.
        case forgotten(UInt32)
        /// A closed stream waits for the other side's FIN: call ``expire(now:)`` at this time.
        case lingers(until: NIODeadline)
        /// Our ping with this value was answered.
        case pong(UInt32)
        /// The other side takes no new streams.
        case goingAway
        /// The session is over. Send what was to be sent, then close the transport.
        case end(YamuxError)
    }

    enum Output { case open, finishing, ended }

    struct Stream {
        /// What we may still send.
        var sendWindow = YamuxLimits.window
        /// What the other side may still send.
        var receiveWindow = YamuxLimits.window
        /// Delivered and not consumed yet.
        var unconsumed: UInt32 = 0
        /// Consumed and not given back yet.
        var unreturned: UInt32 = 0
        /// Dropped since our application closed the stream.
        var discarded: UInt32 = 0
        var output = Output.open
        var inputEnded = false
        var isAccepted: Bool
        /// Set once our application is done with the stream and only the other side's FIN is missing.
        var lingersUntil: NIODeadline?
        var queue: Deque<ByteBuffer> = []
        var isReady = false
    }

    /// The Data frame whose payload is coming in.
    struct Incoming {
        var stream: UInt32
        var left: UInt32
        var fin: Bool
    }

    public let role: Role
    private let acceptBacklog: Int
    private let maxStreams: Int
    private let closeTimeout: TimeAmount
    var streams: [UInt32: Stream] = [:]
    var incoming: Incoming?
    var seen = SeenIDs()
    var unaccepted = 0
    var lingering = 0
    private var nextID: UInt32?
    private var ready: Deque<UInt32> = []
    private var actions: Deque<Action> = []
    private var nextPing: UInt32 = 0
    private var awaitedPing: UInt32?
    private(set) var sentGoAway = false
    var receivedGoAway = false
    /// Why the session is over; nil while it isn't.
    public private(set) var ended: YamuxError?

    public init(
        role: Role, acceptBacklog: Int = YamuxLimits.acceptBacklog, maxStreams: Int = YamuxLimits.streams,
        closeTimeout: TimeAmount = YamuxLimits.closeTimeout, firstID: UInt32? = nil
    ) {
        self.role = role
        self.acceptBacklog = acceptBacklog
        self.maxStreams = maxStreams
        self.closeTimeout = closeTimeout
        nextID = firstID ?? (role == .client ? 1 : 2)
    }

    /// Streams that our application uses, or has not accepted yet.
    public var openStreams: Int { streams.count - lingering }
    /// Streams that are closed on our side and wait for the other side's FIN.
    public var lingeringStreams: Int { lingering }
    /// Whether ``transmit()`` would send something.
    public var hasData: Bool { !ready.isEmpty }
    /// What may be sent on the stream; 0 when there is no such stream.
    public func sendWindow(of id: UInt32) -> UInt32 { streams[id]?.sendWindow ?? 0 }
    /// Bytes delivered for the stream and not consumed yet.
    public func unconsumed(of id: UInt32) -> UInt32 { streams[id]?.unconsumed ?? 0 }

    /// The next action; to be performed before the next call.
    public mutating func nextAction() -> Action? { actions.popFirst() }

    mutating func act(_ action: Action) { actions.append(action) }

    // MARK: Events of our application

    /// Throws what ``open()`` would throw.
    public func checkOpen() throws(YamuxError) {
        if let ended { throw ended }
        if receivedGoAway { throw YamuxError(.notAccepting, "the other side takes no new streams (GoAway)") }
        if sentGoAway { throw YamuxError(.notAccepting, "the session is being closed") }
        if nextID == nil { throw YamuxError(.notAccepting, "the session's stream ids are used up; open a new one") }
        if streams.count >= maxStreams, lingering == 0 {
            throw YamuxError(.limit, "\(maxStreams) streams are open on this session already")
        }
    }

    /// Opens a stream. Data may be written at once.
    public mutating func open() throws(YamuxError) -> UInt32 {
        try checkOpen()
        // The other side may have taken an id of ours: the parity isn't checked.
        while let taken = nextID, streams[taken] != nil { step() }
        guard let id = nextID else { throw YamuxError(.notAccepting, "the session's stream ids are used up") }
        step()
        guard makeRoom() else { throw YamuxError(.limit, "\(maxStreams) streams are open already") }
        streams[id] = Stream(isAccepted: true)
        act(.send(YamuxHeader(.windowUpdate, .syn, stream: id)))
        return id
    }

    private mutating func step() {
        guard let id = nextID else { return }
        let (next, overflow) = id.addingReportingOverflow(2)
        nextID = overflow ? nil : next
    }

    private mutating func makeRoom() -> Bool {
        guard streams.count >= maxStreams else { return true }
        let oldest = streams.compactMap { id, stream in stream.lingersUntil.map { (id, $0) } }.min { $0.1 < $1.1 }
        guard let oldest else { return false }
        reset(oldest.0)
        return true
    }

    /// Whether a stream that the other side opens now is admitted.
    mutating func mayAdmit() -> Bool { !sentGoAway && unaccepted < acceptBacklog && makeRoom() }

    /// Accepts a stream that the other side opened. False when it has ended meanwhile.
    @discardableResult
    public mutating func accept(_ id: UInt32) -> Bool {
        guard let index = streams.index(forKey: id) else { return false }
        if !streams.values[index].isAccepted {
            streams.values[index].isAccepted = true
            unaccepted -= 1
            act(.send(YamuxHeader(.windowUpdate, .ack, stream: id)))
        }
        return true
    }

    /// Queues data; ``transmit()`` sends it.
    public mutating func write(_ data: ByteBuffer, stream id: UInt32) {
        guard data.readableBytes > 0, let index = streams.index(forKey: id), streams.values[index].output == .open
        else { return }
        streams.values[index].queue.append(data)
        markReady(id, index)
    }

    func hasWork(_ stream: Stream) -> Bool { stream.sendWindow > 0 && !stream.queue.isEmpty }

    mutating func markReady(_ id: UInt32, _ index: Dictionary<UInt32, Stream>.Index) {
        guard !streams.values[index].isReady, hasWork(streams.values[index]) else { return }
        streams.values[index].isReady = true
        ready.append(id)
    }

    /// Moves one Data frame of the stream whose turn it is to the actions. Returns its payload's
    /// bytes, 0 when no stream has data and window.
    public mutating func transmit() -> Int {
        while let id = ready.popFirst() {
            guard let index = streams.index(forKey: id), streams.values[index].isReady else { continue }
            streams.values[index].isReady = false
            let count = sendFrame(id, index)
            // A FIN may have been the last of the stream.
            if let index = streams.index(forKey: id) { markReady(id, index) }
            if count > 0 { return count }
        }
        return 0
    }

    private mutating func sendFrame(_ id: UInt32, _ index: Dictionary<UInt32, Stream>.Index) -> Int {
        guard hasWork(streams.values[index]) else { return 0 }
        let window = streams.values[index].sendWindow
        let count = min(streams.values[index].queue[0].readableBytes, Int(window), YamuxLimits.dataFrameBytes)
        guard let payload = streams.values[index].queue[0].readSlice(length: count) else { return 0 }
        streams.values[index].sendWindow = window - UInt32(count)
        if streams.values[index].queue[0].readableBytes == 0 { streams.values[index].queue.removeFirst() }
        act(.sendData(YamuxHeader(.data, stream: id, length: UInt32(count)), payload))
        if streams.values[index].queue.isEmpty, streams.values[index].output == .finishing { endOutput(id, index) }
        return count
    }

    /// Ends our direction once all that was written is sent (FIN).
    public mutating func finish(_ id: UInt32) {
        guard let index = streams.index(forKey: id), streams.values[index].output == .open else { return }
        streams.values[index].output = .finishing
        if streams.values[index].queue.isEmpty { endOutput(id, index) }
    }

    private mutating func endOutput(_ id: UInt32, _ index: Dictionary<UInt32, Stream>.Index) {
        streams.values[index].output = .ended
        act(.send(YamuxHeader(.windowUpdate, .fin, stream: id)))
        act(.outputEnded(id))
        if streams.values[index].inputEnded { forget(id) }
    }

    /// Closes both directions for our application. What was written and fits the window is sent, then
    /// FIN; the stream lingers until the other side's FIN. A RST goes out instead when something
    /// cannot be sent or was not consumed, so that the other side doesn't take a part for the whole.
    /// Returns whether all that was written is sent.
    @discardableResult
    public mutating func close(_ id: UInt32, now: NIODeadline) -> Bool {
        guard let index = streams.index(forKey: id), streams.values[index].lingersUntil == nil else { return false }
        var isComplete = streams.values[index].isAccepted && streams.values[index].unconsumed == 0
        while isComplete, streams[id] != nil, sendFrame(id, index) > 0 {}
        guard streams[id] != nil else { return true }
        isComplete = isComplete && streams.values[index].queue.isEmpty
        guard isComplete else {
            reset(id)
            return false
        }
        finish(id)
        guard let index = streams.index(forKey: id) else { return true }
        let deadline = now + closeTimeout
        streams.values[index].lingersUntil = deadline
        lingering += 1
        act(.lingers(until: deadline))
        return true
    }

    /// Ends a stream at once (RST).
    public mutating func reset(_ id: UInt32) {
        guard streams[id] != nil else { return }
        act(.send(YamuxHeader(.windowUpdate, .rst, stream: id)))
        forget(id)
    }

    /// Our application has taken that many of the delivered bytes. They are added to the sender's window again, several
    /// reads at a time (``YamuxLimits/windowUpdate``).
    public mutating func consumed(_ count: Int, stream id: UInt32) {
        guard let index = streams.index(forKey: id) else { return }
        let taken = UInt32(clamping: min(count, Int(streams.values[index].unconsumed)))
        streams.values[index].unconsumed -= taken
        streams.values[index].unreturned += taken
        let delta = streams.values[index].unreturned
        guard delta >= YamuxLimits.windowUpdate else { return }
        streams.values[index].unreturned = 0
        streams.values[index].receiveWindow += delta
        act(.send(YamuxHeader(.windowUpdate, stream: id, length: delta)))
    }

    /// Takes no new streams from now on; old ones go on.
    public mutating func goAway() {
        guard ended == nil, !sentGoAway else { return }
        sentGoAway = true
        act(.send(YamuxHeader(.goAway, stream: 0, length: YamuxHeader.goAwayNormal)))
    }

    // MARK: Time

    /// Sends a ping, unless one is unanswered. Returns its value for ``pingTimedOut(_:)``.
    public mutating func ping() -> UInt32? {
        guard ended == nil, awaitedPing == nil else { return nil }
        let value = nextPing
        nextPing &+= 1
        awaitedPing = value
        act(.send(YamuxHeader(.ping, .syn, stream: 0, length: value)))
        return value
    }

    /// The time for the answer to this ping is over.
    public mutating func pingTimedOut(_ value: UInt32) {
        guard awaitedPing == value else { return }
        end(YamuxError(.keepAliveTimeout, "the other side did not answer a ping in time"))
    }

    mutating func receivePong(_ value: UInt32) {
        guard awaitedPing == value else { return }
        awaitedPing = nil
        act(.pong(value))
    }

    /// Resets the streams that waited for the other side's FIN for too long. Returns when to call
    /// this again.
    public mutating func expire(now: NIODeadline) -> NIODeadline? {
        guard lingering > 0 else { return nil }
        var next: NIODeadline?
        var late: [UInt32] = []
        for (id, stream) in streams {
            guard let deadline = stream.lingersUntil else { continue }
            if deadline <= now { late.append(id) } else { next = min(next ?? deadline, deadline) }
        }
        for id in late.sorted() { reset(id) }
        return next
    }

    // MARK: Ends

    /// Removes a stream that has ended.
    mutating func forget(_ id: UInt32, _ action: Action? = nil) {
        guard let stream = streams.removeValue(forKey: id) else { return }
        if !stream.isAccepted { unaccepted -= 1 }
        if stream.lingersUntil != nil { lingering -= 1 }
        act(action ?? .forgotten(id))
    }

    /// Ends the session; on a protocol violation the other side gets GoAway 1.
    public mutating func end(_ error: YamuxError) {
        guard ended == nil else { return }
        ended = error
        streams = [:]
        ready = []
        incoming = nil
        unaccepted = 0
        lingering = 0
        if error.code == .protocolViolation {
            act(.send(YamuxHeader(.goAway, stream: 0, length: YamuxHeader.goAwayProtocolError)))
        }
        act(.end(error))
    }
}
