import NIOCore

/// The client's side of one connection: what the caller wants in, bytes out; packets in, events
/// out. It does no I/O. One call runs at a time.
public struct ClientConnection: Sendable {
    /// What a packet of the server means for the running call.
    public enum Event: Sendable, Equatable {
        /// One response; the call goes on.
        case message(ByteBuffer)
        /// The response of a method that has one; the call is over.
        case reply(ByteBuffer)
        /// No more responses come. The call is over unless the caller still sends.
        case end
        /// The call failed and is over; the connection stays usable.
        case failed(DRPCError)
    }

    private struct Call {
        let kind: MethodKind
        var nextMessage: UInt64 = 1
        var sendingEnded = false
        var receivingEnded = false
    }

    private var call: Call?
    private var stream: UInt64 = 0

    public init() {}

    /// Whether a call is going on, so that another has to wait.
    public var isBusy: Bool { call != nil }

    /// The stream of the call that runs or ran last.
    public var currentStream: UInt64 { stream }

    /// Starts a call: appends its metadata, when there is any, and the Invoke.
    /// - Returns: the call's stream id.
    public mutating func open(
        rpc: String, kind: MethodKind, metadata: [String: String], into out: inout ByteBuffer
    ) throws(DRPCError) -> UInt64 {
        guard call == nil else { throw DRPCError(.limit, "a call runs already on this connection") }
        let pairs = metadata.isEmpty ? nil : Metadata.encode(metadata)
        guard rpc.utf8.count <= DRPCLimits.packetBytes else {
            throw DRPCError(.limit, "name of a call is longer than \(DRPCLimits.packetBytes)")
        }
        guard metadata.count <= DRPCLimits.metadataPairs, pairs?.readableBytes ?? 0 <= DRPCLimits.metadataBytes else {
            throw DRPCError(
                .limit,
                "metadata of a call has more than \(DRPCLimits.metadataPairs) pairs or \(DRPCLimits.metadataBytes) bytes"
            )
        }
        stream += 1
        call = Call(kind: kind)
        if let pairs { write(.invokeMetadata, pairs, into: &out) }
        write(.invoke, ByteBuffer(string: rpc), into: &out)
        return stream
    }

    /// Appends a message.
    public mutating func send(_ data: ByteBuffer, stream: UInt64, into out: inout ByteBuffer) throws(DRPCError) {
        guard let running = call, stream == self.stream else { throw DRPCError(.cancelled, "the call is over") }
        guard !running.sendingEnded else { throw DRPCError(.closed, "the call's sending side was ended") }
        guard data.readableBytes <= DRPCLimits.packetBytes else {
            throw DRPCError(.limit, "message of \(data.readableBytes) bytes is longer than \(DRPCLimits.packetBytes)")
        }
        write(.message, data, into: &out)
    }

    /// Ends the sending side. A second time, or after the end, it does nothing.
    public mutating func closeSend(stream: UInt64, into out: inout ByteBuffer) {
        guard let running = call, stream == self.stream, !running.sendingEnded else { return }
        write(.closeSend, ByteBuffer(), into: &out)
        call?.sendingEnded = true
        if running.receivingEnded { call = nil }
    }

    /// Cancels the call on a connection that stays open: appends a Cancel.
    public mutating func cancel(stream: UInt64, into out: inout ByteBuffer) {
        guard call != nil, stream == self.stream else { return }
        write(.cancel, ByteBuffer(), into: &out)
        call = nil
    }

    /// Takes a packet of the server. May append what the protocol answers to it.
    /// - Returns: nil when the packet does not belong to the running call.
    /// - Throws: a protocol violation, for which the connection is to be closed.
    public mutating func receive(_ packet: Packet, into out: inout ByteBuffer) throws(DRPCError) -> Event? {
        guard packet.stream <= stream else {
            throw .violation("packet of stream \(packet.stream), which we didn't open")
        }
        if packet.kind == .invoke || packet.kind == .invokeMetadata {
            throw .violation("a server can't invoke")
        }
        guard let running = call, packet.stream == stream else { return nil }
        switch packet.kind {
        case .message:
            guard !running.receivingEnded else { return nil }
            guard running.kind.hasSingleResponse else { return .message(packet.data) }
            // Ends the stream also for a server that still waits for our side.
            write(.close, ByteBuffer(), into: &out)
            call = nil
            return .reply(packet.data)
        case .closeSend, .close:
            guard !running.receivingEnded else { return nil }
            if running.kind.hasSingleResponse {
                call = nil
                return .failed(.endOfStream)
            }
            call?.receivingEnded = true
            if packet.kind == .close || running.sendingEnded { call = nil }
            return .end
        case .error:
            let payload = ErrorPayload(packet.data)
            call = nil
            return .failed(DRPCError(.remote(payload.code), payload.text))
        case .cancel:
            call = nil
            return .failed(DRPCError(.cancelled, "the server cancelled the call"))
        case .invoke, .invokeMetadata:
            return nil
        }
    }

    private mutating func write(_ kind: PacketKind, _ data: ByteBuffer, into out: inout ByteBuffer) {
        guard let running = call else { return }
        Packet(kind, stream: stream, message: running.nextMessage, data: data).write(into: &out)
        call?.nextMessage += 1
    }
}
