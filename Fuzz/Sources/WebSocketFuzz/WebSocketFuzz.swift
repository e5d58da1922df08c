import NIOCore
import WebSockets

/// The frame reader; the first byte says whose side reads and how the rest is cut. Reading in
/// pieces must give what reading at once gives, and frames of ours must read back.
func fuzz(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard let data, count > 0 else { return 0 }
    let role: WebSocketRole = data[0] & 1 == 0 ? .client : .server
    let input = ByteBuffer(bytes: UnsafeRawBufferPointer(start: data + 1, count: count - 1))
    let whole = read(input, role, step: .max)
    guard read(input, role, step: 1 + Int(data[0] >> 1) % 17) == whole else { fatalError("pieces gave something else") }

    guard case .data(let bytes)? = whole.events.first else { return 0 }
    var again = ByteBuffer()
    WebSocketFrameHeader(opcode: .binary, mask: nil, length: bytes.readableBytes).write(into: &again)
    again.writeImmutableBuffer(bytes)
    guard read(again, .client, step: .max).events == [.data(bytes)] else { fatalError("a frame changed") }
    return 0
}

private struct Outcome: Equatable {
    var events: [WebSocketFrameReader.Event] = []
    var error: WebSocketError?
}

private func read(_ input: ByteBuffer, _ role: WebSocketRole, step: Int) -> Outcome {
    var reader = WebSocketFrameReader(role: role)
    var rest = input
    var outcome = Outcome()
    do {
        while var piece = rest.readSlice(length: min(step, rest.readableBytes)), piece.readableBytes > 0 {
            while let event = try reader.next(&piece) {
                // Where data is cut says nothing.
                if case .data(let more) = event, case .data(var before)? = outcome.events.last {
                    before.writeImmutableBuffer(more)
                    outcome.events[outcome.events.count - 1] = .data(before)
                } else {
                    outcome.events.append(event)
                }
                if case .close = event { return outcome }
            }
        }
    } catch {
        outcome.error = error as? WebSocketError
    }
    return outcome
}
