import FoundationEssentials

/// The recorded exchange of the reference's client and server.
struct RecordedExchange: Decodable {
    struct Step: Decodable {
        var dir: String
        var hex: String
        var bytes: [UInt8] { RecordedExchange.bytes(hex) }
    }

    var tcp: [Step]
    var server_to_client_hex: String

    private enum CodingKeys: String, CodingKey { case tcp, server_to_client_hex }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        server_to_client_hex = try container.decode(String.self, forKey: .server_to_client_hex)
        // The last entries say how the connection ended and have no bytes.
        tcp = try container.decode([Lenient].self, forKey: .tcp).compactMap(\.step)
    }

    private struct Lenient: Decodable {
        var step: Step?
        init(from decoder: any Decoder) throws { step = try? Step(from: decoder) }
    }

    static func load(_ file: String = #filePath) throws -> RecordedExchange {
        let directory = file.split(separator: "/").dropLast(2).joined(separator: "/")
        let url = URL(filePath: "/\(directory)/WebSocketsTests/Vectors/websocket_stack.json")
        return try JSONDecoder().decode(RecordedExchange.self, from: Data(contentsOf: url))
    }

    /// Frames in their order, where adjacent data of one stream is one: how it is cut means nothing.
    static func yamuxFrames(_ bytes: [UInt8]) -> [[UInt8]] {
        var rest = bytes[...]
        var frames: [[UInt8]] = []
        while rest.count >= 12 {
            let header = Array(rest.prefix(12))
            let length = header[1] == 0 ? header[8...].reduce(0) { $0 << 8 | Int($1) } : 0
            let payload = Array(rest.dropFirst(12).prefix(length))
            rest = rest.dropFirst(12 + length)
            // Without the length of data, which depends on the cuts.
            let head = header[1] == 0 ? Array(header.prefix(8)) : header
            if header[1] == 0, let last = frames.last, last.starts(with: head) {
                frames[frames.count - 1] += payload
            } else {
                frames.append(head + payload)
            }
        }
        return frames
    }

    static func bytes(_ text: String) -> [UInt8] {
        let digits = Array(text)
        return stride(from: 0, to: digits.count - 1, by: 2).compactMap { UInt8(String(digits[$0...$0 + 1]), radix: 16) }
    }
}
