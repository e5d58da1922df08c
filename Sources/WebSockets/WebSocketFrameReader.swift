import NIOCore

/// Reads frames for a byte stream, without I/O: the payload of binary messages is passed on as it arrives, so that neither
/// frames nor messages need a limit and at most a header and a control frame are held.
///
/// After an error, or a close, nothing more may be read.
public struct WebSocketFrameReader: Sendable {
    public enum Event: Equatable, Sendable {
        /// The next bytes of the stream; never empty.
        case data(ByteBuffer)
        case ping(ByteBuffer)
        case pong(ByteBuffer)
        case close(WebSocketCloseCode?, reason: String)
    }

    private enum Phase: Equatable {
        case header
        case data(remaining: Int)
        case control(WebSocketFrameHeader.Opcode, length: Int)
    }

    private let role: WebSocketRole
    private var phase = Phase.header
    private var mask: Mask?
    /// Inside a message, between its first frame and the one with FIN.
    private var inMessage = false
    /// The bytes of an incomplete header or control frame.
    private var held = ByteBuffer()
    /// The last payload that was unmasked. Its memory is reused once no other reference to it is left.
    private var plain = ByteBuffer()

    /// - Parameter role: whose side reads.
    public init(role: WebSocketRole) { self.role = role }

    /// Whether part of a data frame is still to come: no control frame can come before its rest.
    public var isInsideData: Bool {
        if case .data = phase { true } else { false }
    }

    /// Takes what it can from `input`; nil once `input` is used up.
    /// - Throws: ``WebSocketError`` with the code to close with.
    public mutating func next(_ input: inout ByteBuffer) throws(WebSocketError) -> Event? {
        while true {
            switch phase {
            case .header:
                guard fill(2, &input) else { return nil }
                let second = held.getInteger(at: held.readerIndex + 1, as: UInt8.self) ?? 0
                guard fill(WebSocketFrameHeader.size(secondByte: second), &input) else { return nil }
                try begin(WebSocketFrameHeader(&held, role: role))
                held.clear()
            case .data(let remaining):
                let count = min(remaining, input.readableBytes)
                guard count > 0 else { return nil }
                guard let slice = input.readSlice(length: count) else { return nil }
                phase = count == remaining ? .header : .data(remaining: remaining - count)
                return .data(unmasked(slice))
            case .control(let opcode, let length):
                guard fill(length, &input) else { return nil }
                phase = .header
                // A copy: `held` is used again for the next header.
                var payload = ByteBuffer()
                if length > 0 { payload.writeImmutableBuffer(held) }
                held.clear()
                return try Self.control(opcode, unmasked(payload))
            }
        }
    }

    /// Moves bytes to `held` until it has `count` of them.
    private mutating func fill(_ count: Int, _ input: inout ByteBuffer) -> Bool {
        let missing = count - held.readableBytes
        if missing > 0, let bytes = input.readSlice(length: min(missing, input.readableBytes)) {
            held.writeImmutableBuffer(bytes)
        }
        return held.readableBytes >= count
    }

    private mutating func begin(_ header: WebSocketFrameHeader) throws(WebSocketError) {
        mask = header.mask.map(Mask.init)
        switch header.opcode {
        case .text:
            throw WebSocketError(
                .violation(.unsupportedData), "the peer sent a text message; only binary ones are spoken")
        case .binary:
            guard !inMessage else { throw .violation("a message began inside another") }
        case .continuation:
            guard inMessage else { throw .violation("a continuation came without a message") }
        case .close, .ping, .pong:
            phase = .control(header.opcode, length: header.length)
            return
        }
        inMessage = !header.fin
        phase = header.length == 0 ? .header : .data(remaining: header.length)
    }

    private static func control(
        _ opcode: WebSocketFrameHeader.Opcode, _ payload: ByteBuffer
    ) throws(WebSocketError) -> Event {
        switch opcode {
        case .ping: return .ping(payload)
        case .pong: return .pong(payload)
        default:
            let (code, reason) = try WebSocketCloseCode.parse(payload)
            return .close(code, reason: reason)
        }
    }

    /// Unmasks into memory of our own: the transport keeps the bytes that it read for its next read,
    /// so unmasking them in place would copy them first.
    private mutating func unmasked(_ bytes: ByteBuffer) -> ByteBuffer {
        guard var mask else { return bytes }
        plain.clear(minimumCapacity: bytes.readableBytes)
        mask.append(bytes, to: &plain)
        self.mask = mask
        return plain
    }

    /// Frees the memory of past payload.
    mutating func shrink() { plain = ByteBuffer() }
}

extension WebSocketCloseCode {
    /// Code and reason of a close frame (RFC 6455 section 5.5.1); no code when the frame is empty.
    /// - Throws: ``WebSocketError`` with the code to close with.
    static func parse(
        _ payload: ByteBuffer
    ) throws(WebSocketError) -> (code: WebSocketCloseCode?, reason: String) {
        var payload = payload
        guard payload.readableBytes > 0 else { return (nil, "") }
        guard let code = payload.readInteger(as: UInt16.self) else {
            throw .violation("a close frame has half a code")
        }
        guard WebSocketCloseCode(code).mayBeSent else { throw .violation("a close frame has the code \(code)") }
        guard let reason = String(validating: payload.readableBytesView, as: UTF8.self) else {
            throw WebSocketError(.violation(.invalidPayload), "a close frame's reason is not UTF-8")
        }
        return (WebSocketCloseCode(code), reason)
    }

    /// Whether the code may be in a close frame (RFC 6455 section 7.4): the others stand for an end without a close
    /// frame, or are unassigned.
    public var mayBeSent: Bool {
        switch value {
        case 1000...1003, 1007...1014, 3000...4999: true
        default: false
        }
    }
}
