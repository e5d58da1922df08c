import Foundation

/// Server-sent events on a raw connection, with chunked transfer coding.
public final class EventStream {
    public struct Event {
        public var kind = ""
        public var id = ""
        public var data = ""
        /// Comment lines.
        public var comments = 0

        public var json: [String: Any] {
            (try? JSONSerialization.jsonObject(with: Data(data.utf8))) as? [String: Any] ?? [:]
        }

        /// The bytes of an `output` event.
        public var bytes: Data {
            if let text = json["text"] as? String { return Data(text.utf8) }
            return (json["base64"] as? String).flatMap { Data(base64Encoded: $0) } ?? Data()
        }
    }

    public let connection: RawConnection
    private var text: [UInt8] = []
    private var position = 0
    private var isAtEnd = false

    public init(_ connection: RawConnection, _ path: String, headers: [String: String] = [:]) throws {
        self.connection = connection
        try connection.send("GET", path, headers: headers)
        let head = try connection.head()
        guard head.status == 200, head.headers["content-type"] == "text/event-stream; charset=utf-8" else {
            throw RawConnection.Failure(description: "\(path): \(head)")
        }
    }

    /// The next event; nil at the end of the stream.
    public func next() throws -> Event? {
        var event = Event()
        while let line = try line() {
            if line.isEmpty {
                if event.kind.isEmpty && event.comments == 0 { continue }
                return event
            }
            if line.hasPrefix(":") { event.comments += 1 }
            if line.hasPrefix("event: ") { event.kind = String(line.dropFirst(7)) }
            if line.hasPrefix("id: ") { event.id = String(line.dropFirst(4)) }
            if line.hasPrefix("data: ") { event.data = String(line.dropFirst(6)) }
        }
        return nil
    }

    private func line() throws -> String? {
        while true {
            if let newline = text[position...].firstIndex(of: 10) {
                defer { position = newline + 1 }
                return String(decoding: text[position..<newline], as: UTF8.self)
            }
            text.removeFirst(position)
            position = 0
            guard !isAtEnd, let chunk = try connection.chunk() else {
                isAtEnd = true
                return nil
            }
            text += chunk
        }
    }
}
