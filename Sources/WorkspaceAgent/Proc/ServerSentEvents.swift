import LocalAgent

/// Server-sent events of an answer.
struct ServerSentEvents {
    struct Event {
        var name: String
        var data: [UInt8]
    }

    private let response: LocalResponse
    private var lines: [UInt8] = []
    /// Where the search for the end of a line goes on.
    private var seen = 0

    init(_ response: LocalResponse) { self.response = response }

    /// The next event with data; nil at the end of the stream.
    mutating func next() throws -> Event? {
        var event = Event(name: "message", data: [])
        while let line = try line() {
            if line.isEmpty {
                if !event.data.isEmpty { return event }
                event.name = "message"
                continue
            }
            // A comment begins with the colon.
            guard let colon = line.firstIndex(of: UInt8(ascii: ":")), colon > line.startIndex else { continue }
            var value = line[(colon + 1)...]
            if value.first == UInt8(ascii: " ") { value = value.dropFirst() }
            switch String(decoding: line[..<colon], as: UTF8.self) {
            case "event": event.name = String(decoding: value, as: UTF8.self)
            case "data": event.data += (event.data.isEmpty ? [] : [10]) + value
            default: break
            }
        }
        return nil
    }

    private mutating func line() throws -> [UInt8]? {
        while true {
            if let end = lines[seen...].firstIndex(of: 10) {
                let line = Array(lines[..<end])
                lines.removeFirst(end + 1)
                seen = 0
                return line.last == 13 ? line.dropLast() : line
            }
            seen = lines.count
            guard let more = try response.next() else { return nil }
            lines += more
        }
    }
}
