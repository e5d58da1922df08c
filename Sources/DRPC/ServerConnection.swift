import AgentCore
import NIOCore

/// The server's side of one connection: packets in, actions and bytes out. It does no I/O.
///
/// One call runs at a time. What a driver does:
/// - give every packet to ``receive(_:into:)`` while ``wantsPackets`` and carry the actions out;
/// - report what the handlers do through ``send(_:stream:into:)`` and ``finish(_:stream:into:)``;
/// - write the bytes that any of these appended, in order; close the connection when one throws.
public struct ServerConnection<Handler: Sendable>: Sendable {
    /// An rpc that the server offers.
    public struct Entry: Sendable {
        public let kind: MethodKind
        public let handler: Handler

        public init(kind: MethodKind, handler: Handler) {
            self.kind = kind
            self.handler = handler
        }
    }

    /// What a driver has to do.
    public enum Action: Sendable {
        /// Run the handler and call ``ServerConnection/finish(_:stream:into:)`` once when it
        /// ended. The request is nil where the client streams.
        case start(stream: UInt64, rpc: String, Handler, metadata: [String: String], request: ByteBuffer?)
        /// Give the running handler one more message.
        case deliver(stream: UInt64, ByteBuffer)
        /// Tell the running handler that no more messages come.
        case endInput(stream: UInt64)
        /// Cancel the running handler; nothing of it reaches the client any more.
        case cancel(stream: UInt64)
    }

    /// How a handler ended.
    public enum Outcome: Sendable {
        /// With the response, which only methods with a single response have.
        case success(ByteBuffer?)
        case failure(ErrorPayload)
    }

    private struct Call {
        let stream: UInt64
        let rpc: String
        let entry: Entry
        /// Still encoded, and empty from the handler's start on.
        var metadata: ByteBuffer
        var started = false
        /// A message came, or the client said that none does.
        var hasInput = false
        var inputEnded = false
        var nextMessage: UInt64 = 1
    }

    private let methods: [String: Entry]
    private var call: Call?
    private var lastInvoked: UInt64 = 0
    /// Metadata whose Invoke hasn't come: checked, but kept as it came, so that what it takes is
    /// what ``heldBytes`` says.
    private var metadata: (stream: UInt64, encoded: ByteBuffer)?
    /// Handlers that were cancelled and haven't reported their end.
    private var lingering: Set<UInt64> = []

    public init(methods: [String: Entry]) { self.methods = methods }

    /// False while too many cancelled handlers still run.
    public var wantsPackets: Bool { lingering.count < DRPCLimits.lingeringHandlers }

    /// Whether a call is going on.
    public var isBusy: Bool { call != nil }

    /// Whether the running call has a request. A connection whose client only invokes counts as idle.
    public var isServing: Bool { call?.hasInput == true }

    /// Bytes of metadata that wait for their Invoke or for the request of their call.
    public var heldBytes: Int {
        (metadata?.encoded.readableBytes ?? 0) + (call?.metadata.readableBytes ?? 0)
    }

    /// Takes a packet of the client.
    /// - Throws: a protocol violation, for which the connection is to be closed.
    public mutating func receive(_ packet: Packet, into out: inout ByteBuffer) throws(DRPCError) -> [Action] {
        if let pending = metadata, pending.stream < packet.stream { metadata = nil }
        switch packet.kind {
        case .invokeMetadata:
            try keepMetadata(packet)
            return []
        case .invoke:
            return try invoke(packet, into: &out)
        case .message:
            return try message(packet)
        case .closeSend:
            return closeSend(packet, into: &out)
        case .close, .cancel, .error:
            // After any of the three the client expects no answer.
            guard call?.stream == packet.stream else { return [] }
            return dropCall()
        }
    }

    /// Ends whatever runs because the connection is gone.
    public mutating func connectionClosed() -> [Action] { dropCall() }

    /// Appends a message of a streaming handler.
    /// - Throws: ``DRPCError/Code/cancelled`` when the call is over, ``DRPCError/Code/limit`` when
    ///   the message is too long for a packet.
    public mutating func send(_ data: ByteBuffer, stream: UInt64, into out: inout ByteBuffer) throws(DRPCError) {
        guard call?.stream == stream else { throw DRPCError(.cancelled, "the call is over") }
        guard data.readableBytes <= DRPCLimits.packetBytes else { throw Self.tooLong(data) }
        write(.message, data, into: &out)
    }

    /// Appends the answer of a handler that ended, or nothing when the call was cancelled.
    public mutating func finish(_ outcome: Outcome, stream: UInt64, into out: inout ByteBuffer) {
        lingering.remove(stream)
        guard let ending = call, ending.stream == stream else { return }
        switch outcome {
        case .success(let response?) where response.readableBytes > DRPCLimits.packetBytes:
            write(.error, DRPCError.answer(for: Self.tooLong(response)).encoded(), into: &out)
        case .success(let response):
            if ending.entry.kind.hasSingleResponse {
                if let response { write(.message, response, into: &out) }
                write(.closeSend, ByteBuffer(), into: &out)
            } else {
                write(.close, ByteBuffer(), into: &out)
            }
        case .failure(let payload):
            write(.error, payload.encoded(), into: &out)
        }
        call = nil
    }

    private mutating func keepMetadata(_ packet: Packet) throws(DRPCError) {
        guard packet.stream > lastInvoked else {
            throw .violation("metadata after the Invoke of stream \(packet.stream)")
        }
        guard packet.data.readableBytes <= DRPCLimits.metadataBytes else {
            throw .violation("metadata of \(packet.data.readableBytes) bytes")
        }
        _ = try Metadata.decode(packet.data)
        // A copy of its own: a slice would keep the whole read buffer alive while it waits.
        metadata = (packet.stream, ByteBuffer(bytes: packet.data.readableBytesView))
    }

    private mutating func invoke(_ packet: Packet, into out: inout ByteBuffer) throws(DRPCError) -> [Action] {
        guard packet.stream > lastInvoked else { throw .violation("second Invoke on stream \(packet.stream)") }
        lastInvoked = packet.stream
        var actions = dropCall()
        let pairs = metadata.take()?.encoded ?? ByteBuffer()

        let rpc = String(buffer: packet.data)
        guard let entry = methods[rpc] else {
            // Cut before it is quoted: quoting megabytes would block the event loop, and does not make it shorter.
            let name = goQuoted(utf8: packet.data.readableBytesView.prefix(DRPCLimits.errorTextBytes))
            let text = DRPCError.unknownRPCPrefix + name
            Packet(.error, stream: packet.stream, message: 1, data: ErrorPayload(code: 0, text: text).encoded())
                .write(into: &out)
            return actions
        }
        call = Call(stream: packet.stream, rpc: rpc, entry: entry, metadata: pairs)
        if !entry.kind.hasSingleRequest { actions.append(try start(request: nil)) }
        return actions
    }

    private mutating func start(request: ByteBuffer?) throws(DRPCError) -> Action {
        guard let running = call else { throw .violation("no call to start") }
        call?.started = true
        call?.metadata = ByteBuffer()
        return .start(
            stream: running.stream, rpc: running.rpc, running.entry.handler,
            metadata: try Metadata.decode(running.metadata), request: request)
    }

    private mutating func message(_ packet: Packet) throws(DRPCError) -> [Action] {
        guard let running = call, running.stream == packet.stream, !running.inputEnded else { return [] }
        call?.hasInput = true
        guard running.entry.kind.hasSingleRequest else {
            return [.deliver(stream: running.stream, packet.data)]
        }
        // The one request that the method has came already.
        guard !running.started else { return [] }
        return [try start(request: packet.data)]
    }

    private mutating func closeSend(_ packet: Packet, into out: inout ByteBuffer) -> [Action] {
        guard let running = call, running.stream == packet.stream, !running.inputEnded else { return [] }
        call?.inputEnded = true
        call?.hasInput = true
        if running.entry.kind.hasSingleRequest {
            if !running.started {
                write(.error, ErrorPayload(code: 0, text: "EOF").encoded(), into: &out)
                call = nil
            }
            return []
        }
        return [.endInput(stream: running.stream)]
    }

    private mutating func dropCall() -> [Action] {
        guard let dropped = call.take(), dropped.started else { return [] }
        lingering.insert(dropped.stream)
        return [.cancel(stream: dropped.stream)]
    }

    private mutating func write(_ kind: PacketKind, _ data: ByteBuffer, into out: inout ByteBuffer) {
        guard let running = call else { return }
        Packet(kind, stream: running.stream, message: running.nextMessage, data: data).write(into: &out)
        call?.nextMessage += 1
    }

    private static func tooLong(_ data: ByteBuffer) -> DRPCError {
        DRPCError(.limit, "message of \(data.readableBytes) bytes is longer than \(DRPCLimits.packetBytes)")
    }
}
