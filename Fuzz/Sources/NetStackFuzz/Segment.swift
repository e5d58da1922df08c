import FuzzInput
@testable import IPAddresses
@testable import NetStack

/// Distances from what would be right.
private let distances = [
    0, 0, 0, 1, -1, 2, 100, 1_000, 1_208, -1_208, 65_535, 131_072, -70_000, 3 << 20, 1 << 30, -1 << 30,
]

private func big(_ value: UInt32) -> [UInt8] {
    stride(from: 24, through: 0, by: -8).map { UInt8(truncatingIfNeeded: value >> UInt32($0)) }
}

private func big(_ value: UInt16) -> [UInt8] { [UInt8(value >> 8), UInt8(value & 255)] }

/// A segment for a connection, made by one who knows its numbers.
func segment(for connection: Connection, now: Duration, _ input: inout FuzzInput) -> [UInt8] {
    let (flags, places, shape) = (input.byte(), input.byte(), input.byte())
    let sequence = connection.receive.next + distances[Int(places & 15)]
    let acknowledgment = connection.send.next + distances[Int(places >> 4)]
    var options: [UInt8] = []
    if shape & 1 != 0 {
        // Selective acknowledgments of what was sent, or not.
        let count = 1 + Int(shape >> 1 & 3)
        options += [1, 1, 5, UInt8(2 + 8 * count)]
        for _ in 0..<count {
            let start = connection.send.unacknowledged + input.word()
            options += big(start.value) + big((start + input.word()).value)
        }
    }
    if shape & 8 != 0, options.count <= 28 {
        let stamp = connection.recentStamp &+ UInt32(truncatingIfNeeded: Int(Int8(bitPattern: input.byte())))
        options += [1, 1, 8, 10] + big(stamp) + big(connection.stamp(Microseconds(now)))
    }
    if shape & 16 != 0, options.count <= 32 { options += input.take(8) }
    while options.count % 4 != 0 { options.append(0) }
    let payload = [UInt8](repeating: 3, count: shape & 32 == 0 ? 0 : input.word() % 1_220)
    let remote = connection.key.remote
    let local = connection.key.local
    var packet: [UInt8] = [0x60, 0, 0, 0, 0, 0, 6, 64] + remote.address.bytes + local.address.bytes
    packet += big(remote.port) + big(local.port) + big(sequence.value) + big(acknowledgment.value)
    packet += [UInt8(5 + options.count / 4) << 4, flags & 31, input.byte(), input.byte(), 0, 0, 0, 0]
    packet += options + payload
    packet.replaceSubrange(4..<6, with: big(UInt16(packet.count - 40)))
    mendChecksum(&packet)
    return packet
}
