import Foundation
import NIOCore

@testable import WebSockets

func bytes(hex: String) -> ByteBuffer {
    var buffer = ByteBuffer()
    var rest = Substring(hex)
    while let byte = UInt8(rest.prefix(2), radix: 16) {
        buffer.writeInteger(byte)
        rest = rest.dropFirst(2)
    }
    return buffer
}

/// Everything that the input says, read in pieces of so many bytes.
func events(
    _ input: ByteBuffer, role: WebSocketRole, step: Int = .max
) throws -> [WebSocketFrameReader.Event] {
    var reader = WebSocketFrameReader(role: role)
    var events: [WebSocketFrameReader.Event] = []
    var rest = input
    while var piece = rest.readSlice(length: min(step, rest.readableBytes)), piece.readableBytes > 0 {
        while let event = try reader.next(&piece) {
            // Where data is cut says nothing.
            if case .data(let more) = event, case .data(var before)? = events.last {
                before.writeImmutableBuffer(more)
                events[events.count - 1] = .data(before)
            } else {
                events.append(event)
            }
        }
    }
    return events
}

/// A frame as a test means it, right or wrong.
func frame(
    _ first: UInt8, _ payload: [UInt8] = [], key: [UInt8]? = nil, length: [UInt8]? = nil
) -> ByteBuffer {
    var buffer = ByteBuffer(bytes: [first])
    let masked: UInt8 = key == nil ? 0 : 0x80
    if let length {
        buffer.writeBytes([masked | length[0]] + length.dropFirst())
    } else if payload.count < 126 {
        buffer.writeInteger(masked | UInt8(payload.count))
    } else if payload.count < 65_536 {
        buffer.writeInteger(masked | 126)
        buffer.writeInteger(UInt16(payload.count))
    } else {
        buffer.writeInteger(masked | 127)
        buffer.writeInteger(UInt64(payload.count))
    }
    if let key {
        buffer.writeBytes(key)
        buffer.writeBytes(payload.enumerated().map { $0.element ^ key[$0.offset % 4] })
    } else {
        buffer.writeBytes(payload)
    }
    return buffer
}

enum Vectors {
    static func stack() throws -> [String: Any] {
        let path = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("Vectors/websocket_stack.json")
        return try JSONSerialization.jsonObject(with: Data(contentsOf: path)) as? [String: Any] ?? [:]
    }
}
