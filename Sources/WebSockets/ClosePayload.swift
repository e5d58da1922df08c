import NIOCore

extension WebSocketCloseCode {
    /// The payload of a close frame of ours.
    /// - Parameter reason: cut at a character where it has more bytes than a control frame holds.
    package func payload(reason: String) -> ByteBuffer {
        var payload = ByteBuffer(integer: value)
        var end = reason.endIndex
        if let limit = reason.utf8.index(reason.startIndex, offsetBy: WebSocketLimits.reasonBytes, limitedBy: end) {
            // Back to the beginning of the character that does not fit.
            end = limit
            while end.samePosition(in: reason) == nil { end = reason.utf8.index(before: end) }
        }
        payload.writeSubstring(reason[..<end])
        return payload
    }
}
