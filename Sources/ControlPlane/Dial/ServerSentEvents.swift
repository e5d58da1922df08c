import NIOCore

/// Reads a stream of server-sent events (WHATWG HTML, section 9.2), without I/O.
struct ServerSentEventReader {
    struct Event: Equatable {
        /// `message` unless the stream says otherwise.
        var name = "message"
        /// The data lines, joined with newlines.
        var data = ""
    }

    private var line: [UInt8] = []
    private var afterCR = false
    private var isFirstLine = true
    private var name = ""
    private var data: [UInt8]?

    /// - Returns: the events that these bytes complete. An event without data is none.
    /// - Throws: ``ControlPlaneError`` `.protocolViolation` for lines or events that are too long.
    mutating func read(_ bytes: ByteBuffer) throws(ControlPlaneError) -> [Event] {
        var events: [Event] = []
        for byte in bytes.readableBytesView {
            let isSecondHalf = afterCR && byte == UInt8(ascii: "\n")
            afterCR = byte == UInt8(ascii: "\r")
            if isSecondHalf { continue }
            if afterCR || byte == UInt8(ascii: "\n") {
                if let event = try endLine() { events.append(event) }
                line.removeAll(keepingCapacity: true)
            } else {
                guard line.count < DialLimits.eventBytes else { throw Self.tooLong }
                line.append(byte)
            }
        }
        return events
    }

    private static var tooLong: ControlPlaneError {
        ControlPlaneError(.protocolViolation, "a server-sent event is longer than \(DialLimits.eventBytes) bytes")
    }

    private mutating func endLine() throws(ControlPlaneError) -> Event? {
        if isFirstLine {
            isFirstLine = false
            if line.starts(with: [0xEF, 0xBB, 0xBF]) { line.removeFirst(3) }
        }
        guard !line.isEmpty else {
            defer { (name, data) = ("", nil) }
            guard let data else { return nil }
            return Event(name: name.isEmpty ? "message" : name, data: String(decoding: data, as: UTF8.self))
        }
        let field = line.prefix { $0 != UInt8(ascii: ":") }
        var value = line.dropFirst(field.count + 1)
        if value.first == UInt8(ascii: " ") { value = value.dropFirst() }
        if field.elementsEqual("data".utf8) {
            guard (data?.count ?? 0) + value.count < DialLimits.eventBytes else { throw Self.tooLong }
            data = data.map { $0 + [UInt8(ascii: "\n")] + value } ?? Array(value)
        } else if field.elementsEqual("event".utf8) {
            name = String(decoding: value, as: UTF8.self)
        }
        return nil
    }
}
