import NIOCore
import NIOWebSocket

/// The rules of a WebSocket connection (RFC 6455), without I/O: frames and timers in, actions out.
package struct WebSocketState {
    package typealias Role = WebSocketRole

    package enum Action: Equatable {
        case none
        case deliver(WebSocketMessage)
        case sendPong(ByteBuffer)
        case sendPing
        /// Send a close frame with the code and wait for the peer's.
        case sendClose(WebSocketCloseCode, String)
        /// Answer the peer's close frame with this code, its own unless that is wrong, then close the transport.
        case answerCloseAndEnd(WebSocketCloseCode)
        /// Close the transport.
        case end
    }

    private enum Phase { case open, closeSent, closed }

    package let role: Role
    /// Bytes of one message; nil is unlimited.
    package let maximumMessage: Int?
    private var phase = Phase.open
    private var partial: ByteBuffer?
    private var partialIsText = false
    private var awaitingPong = false

    package init(role: Role, maximumMessage: Int?) {
        self.role = role
        self.maximumMessage = maximumMessage
    }

    package var isOpen: Bool { phase == .open }

    package mutating func received(_ frame: WebSocketFrame) -> Action {
        guard phase != .closed else { return .none }
        if (role == .server) != (frame.maskKey != nil) { return fail(.protocolError, "wrong masking") }
        if frame.rsv1 || frame.rsv2 || frame.rsv3 { return fail(.protocolError, "reserved bits are set") }
        switch frame.opcode {
        case .connectionClose: return receivedClose(frame.unmaskedData)
        case .ping: return phase == .open ? .sendPong(frame.unmaskedData) : .none
        case .pong:
            awaitingPong = false
            return .none
        case .text, .binary:
            guard phase == .open else { return .none }
            guard partial == nil else { return fail(.protocolError, "a message began inside another") }
            partialIsText = frame.opcode == .text
            partial = ByteBuffer()
            return append(frame)
        case .continuation:
            guard phase == .open else { return .none }
            guard partial != nil else { return fail(.protocolError, "nothing to continue") }
            return append(frame)
        default: return fail(.protocolError, "unknown opcode")
        }
    }

    /// The bytes do not decode as frames.
    package mutating func decoderFailed(_ error: NIOWebSocketError) -> Action {
        switch error {
        case .invalidFrameLength: fail(.messageTooBig, "frame too large")
        case .fragmentedControlFrame, .multiByteControlFrameLength: fail(.protocolError, "bad control frame")
        }
    }

    /// It is time for a ping.
    package mutating func pingDue() -> Action {
        guard phase == .open else { return .none }
        awaitingPong = true
        return .sendPing
    }

    /// The time for the pong is over.
    /// - Parameter isSilent: false when the peer may be alive all the same: we did not read meanwhile, so that a pong
    ///   may be waiting, and none of our output waits, or the peer accepted some of it.
    package mutating func pongDue(isSilent: Bool) -> Action {
        guard phase == .open, awaitingPong, isSilent else { return .none }
        return fail(.goingAway, "no pong")
    }

    package mutating func close(_ code: WebSocketCloseCode, _ reason: String) -> Action {
        guard phase == .open else { return .none }
        return fail(code, reason)
    }

    /// The peer did not answer our close frame in time.
    package mutating func closeTimedOut() -> Action {
        guard phase != .closed else { return .none }
        phase = .closed
        return .end
    }

    package mutating func transportClosed() { phase = .closed }

    private mutating func append(_ frame: WebSocketFrame) -> Action {
        var data = frame.unmaskedData
        let size = (partial?.readableBytes ?? 0) + data.readableBytes
        if let maximumMessage, size > maximumMessage {
            return fail(.messageTooBig, "messages are limited to \(maximumMessage) bytes")
        }
        partial?.writeBuffer(&data)
        guard frame.fin, let whole = partial else { return .none }
        partial = nil
        guard partialIsText else { return .deliver(.binary(whole)) }
        guard let text = String(validating: whole.readableBytesView, as: UTF8.self) else {
            return fail(.invalidPayload, "text is not UTF-8")
        }
        return .deliver(.text(text))
    }

    private mutating func receivedClose(_ data: ByteBuffer) -> Action {
        defer { phase = .closed }
        guard phase != .closeSent else { return .end }
        do throws(WebSocketError) {
            return .answerCloseAndEnd(try WebSocketCloseCode.parse(data).code ?? .normal)
        } catch {
            guard case .violation(let code) = error.code else { return .end }
            return .answerCloseAndEnd(code)
        }
    }

    private mutating func fail(_ code: WebSocketCloseCode, _ reason: String) -> Action {
        guard phase == .open else {
            phase = .closed
            return .end
        }
        phase = .closeSent
        return .sendClose(code, reason)
    }
}
