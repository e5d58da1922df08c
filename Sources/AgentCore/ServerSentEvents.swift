/// Reads a stream of server-sent events (WHATWG HTML, section 9.2.6), without I/O.
package struct ServerSentEventReader {
    package struct Event: Equatable {
        /// `message` unless the stream says otherwise.
        package var name: String
        /// The data lines, joined with newlines.
        package var data: String
        /// The last event ID: that of this event or of one before it.
        package var id: String

        package init(name: String = "message", data: String, id: String = "") {
            (self.name, self.data, self.id) = (name, data, id)
        }
    }

    private static let (cr, lf) = (UInt8(ascii: "\r"), UInt8(ascii: "\n"))

    /// Bytes of a line, and of an event's data.
    private let limit: Int
    private var line: [UInt8] = []
    /// The line feed that comes next belongs to the line that has ended.
    private var afterCR = false
    private var isFirstLine = true
    private var name = ""
    private var data: [UInt8]?
    private var id = ""
    /// How long the server wants a client to wait before it connects again; nil until it says so.
    package private(set) var retry: Duration?

    /// - Parameter limit: bytes of a line, and of an event's data.
    package init(limit: Int) { self.limit = limit }

    /// - Returns: the events that these bytes complete; none for an event without data. An event
    ///   that the stream ends in the middle of is not one either.
    /// - Throws: ``CoreError`` `.invalid` for lines or events that are too long.
    package mutating func read(_ bytes: [UInt8]) throws(CoreError) -> [Event] {
        var events: [Event] = []
        var rest = bytes[...]
        while let first = rest.first {
            if afterCR, first == Self.lf { rest.removeFirst() }
            afterCR = false
            guard let end = rest.firstIndex(where: { $0 == Self.lf || $0 == Self.cr }) else {
                try append(rest)
                break
            }
            try append(rest[..<end])
            afterCR = rest[end] == Self.cr
            rest = rest[(end + 1)...]
            if let event = try endLine() { events.append(event) }
            line.removeAll(keepingCapacity: true)
        }
        return events
    }

    private mutating func append(_ bytes: ArraySlice<UInt8>) throws(CoreError) {
        guard bytes.count <= limit - line.count else { throw tooLong }
        line += bytes
    }

    private var tooLong: CoreError { CoreError(.invalid, "a server-sent event is longer than \(limit) bytes") }

    private mutating func endLine() throws(CoreError) -> Event? {
        if isFirstLine {
            isFirstLine = false
            if line.starts(with: [0xEF, 0xBB, 0xBF]) { line.removeFirst(3) }
        }
        guard !line.isEmpty else {
            defer { (name, data) = ("", nil) }
            guard let data else { return nil }
            return Event(name: name.isEmpty ? "message" : name, data: String(decoding: data, as: UTF8.self), id: id)
        }
        // A comment begins with the colon, so that its field has no name.
        let field = line.prefix { $0 != UInt8(ascii: ":") }
        var value = line.dropFirst(field.count + 1)
        if value.first == UInt8(ascii: " ") { value = value.dropFirst() }
        switch String(decoding: field, as: UTF8.self) {
        case "data":
            guard (data?.count ?? 0) + value.count < limit else { throw tooLong }
            data = data.map { $0 + [Self.lf] + value } ?? Array(value)
        case "event": name = String(decoding: value, as: UTF8.self)
        case "id" where !value.contains(0): id = String(decoding: value, as: UTF8.self)
        case "retry":
            let digits = String(decoding: value, as: UTF8.self)
            if digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let milliseconds = Int64(digits) {
                retry = .milliseconds(milliseconds)
            }
        default: break
        }
        return nil
    }
}
