import NIOCore

/// The states of a WebSocket that carries a byte stream, without I/O.
struct ByteStreamState {
    enum Action: Equatable {
        case none
        case deliver(ByteBuffer)
        case sendPong(ByteBuffer)
        /// Send a close frame and wait for the peer's; the error, if any, is for the layers above.
        case sendClose(WebSocketCloseCode, WebSocketError?)
        /// Answer the peer's close frame with its code, then close the transport.
        case echoCloseAndEnd(WebSocketCloseCode?, WebSocketError?)
        /// Close the transport.
        case end(WebSocketError?)
    }

    private enum Phase { case open, closeSent, closed }
    private var phase = Phase.open

    /// Whether bytes may still be sent.
    var isOpen: Bool { phase == .open }
    /// Whether frames of the peer are still handled.
    var isReading: Bool { phase != .closed }

    mutating func received(_ event: WebSocketFrameReader.Event) -> Action {
        switch (phase, event) {
        case (.open, .data(let bytes)): return .deliver(bytes)
        case (.open, .ping(let payload)): return .sendPong(payload)
        case (.open, .close(let code, let reason)):
            phase = .closed
            return .echoCloseAndEnd(code, code == nil || code == .normal ? nil : Self.peerClosed(code, reason))
        case (.closeSent, .close):
            phase = .closed
            return .end(nil)
        default: return .none
        }
    }

    mutating func failed(_ error: WebSocketError) -> Action {
        guard phase == .open, case .violation(let code) = error.code else {
            phase = .closed
            return .end(nil)
        }
        phase = .closeSent
        return .sendClose(code, error)
    }

    mutating func close(_ code: WebSocketCloseCode = .normal) -> Action {
        guard phase == .open else { return .none }
        phase = .closeSent
        return .sendClose(code, nil)
    }

    mutating func closeTimedOut() -> Action {
        guard phase == .closeSent else { return .none }
        phase = .closed
        return .end(nil)
    }

    mutating func peerGone(_ error: WebSocketError) -> Action {
        guard phase == .open else { return .none }
        phase = .closed
        return .end(error)
    }

    /// - Returns: what the layers above should know about an end of the transport.
    mutating func transportClosed() -> WebSocketError? {
        defer { phase = .closed }
        return phase == .open
            ? WebSocketError(.cutOff, "the connection ended without a WebSocket close frame") : nil
    }

    private static func peerClosed(_ code: WebSocketCloseCode?, _ reason: String) -> WebSocketError {
        let number = code.map { " with code \($0.value)" } ?? ""
        // The reason is the peer's text: it must not add lines to the log.
        let text = reason.unicodeScalars.map { $0.properties.generalCategory == .control ? " " : String($0) }.joined()
        return WebSocketError(
            .peerClosed(code), "the peer closed the WebSocket\(number)\(text.isEmpty ? "" : ": \(text)")")
    }
}
