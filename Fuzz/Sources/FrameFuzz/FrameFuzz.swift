import DRPC
import NIOCore

/// The frame decoder and the packet reader. What is decoded must encode to bytes that decode to
/// the same; reading in pieces must give what reading at once gives.
func fuzz(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let input = ByteBuffer(bytes: UnsafeRawBufferPointer(start: data, count: count))
    let whole = read([input])

    var frames = input
    while let frame = try? Frame.read(from: &frames) {
        var encoded = ByteBuffer()
        frame.write(into: &encoded)
        guard let again = try? Frame.read(from: &encoded), again == frame else { fatalError("frame changed") }
    }

    var pieces: [ByteBuffer] = []
    var rest = input
    let step = max(1, Int(input.getInteger(at: 0, as: UInt8.self) ?? 1) % 17)
    while let piece = rest.readSlice(length: min(step, rest.readableBytes)), piece.readableBytes > 0 {
        pieces.append(piece)
    }
    guard read(pieces) == whole else { fatalError("pieces gave something else") }

    for packet in whole {
        switch packet.kind {
        case .invokeMetadata:
            if let pairs = try? Metadata.decode(packet.data) {
                guard (try? Metadata.decode(Metadata.encode(pairs))) == pairs else { fatalError("metadata changed") }
            }
        case .error: _ = ErrorPayload(packet.data).encoded()
        default: break
        }
    }
    return 0
}

private func read(_ pieces: [ByteBuffer]) -> [Packet] {
    var reader = PacketReader()
    var packets: [Packet] = []
    for piece in pieces {
        reader.append(piece)
        while let packet = try? reader.next() { packets.append(packet) }
        reader.compact()
    }
    return packets
}
