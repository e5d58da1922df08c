import DRPC
import Foundation
import NIOCore

/// The recorded vectors, read from beside this file.
enum Vectors {
    static func load(_ name: String) throws -> [String: Any] {
        let url = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("Vectors/\(name)")
        return try JSONSerialization.jsonObject(with: Data(contentsOf: url)) as? [String: Any] ?? [:]
    }

    static func list(_ file: String, _ key: String) throws -> [[String: Any]] {
        try load(file)[key] as? [[String: Any]] ?? []
    }
}

func bytes(hex: String) -> ByteBuffer {
    func digit(_ byte: UInt8) -> UInt8 { byte < 0x3A ? byte - 0x30 : byte - 0x57 }
    let digits = Array(hex.utf8)
    return ByteBuffer(
        bytes: stride(from: 0, to: digits.count - 1, by: 2).map { digit(digits[$0]) << 4 | digit(digits[$0 + 1]) })
}

func hex(_ buffer: ByteBuffer) -> String {
    let digits = Array("0123456789abcdef".utf8)
    return String(
        decoding: buffer.readableBytesView.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
}

extension Packet {
    var encoded: ByteBuffer {
        var buffer = ByteBuffer()
        write(into: &buffer)
        return buffer
    }
}

/// All packets of the bytes; what is left must be nothing.
func packets(_ bytes: ByteBuffer) throws -> [Packet] {
    var reader = PacketReader()
    reader.append(bytes)
    var packets: [Packet] = []
    while let packet = try reader.next() { packets.append(packet) }
    return packets
}

/// A random generator whose seed a failing test prints.
struct SeededRandom: RandomNumberGenerator {
    var state: UInt64
    init(seed: UInt64) { state = seed }
    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}

func testSeed() -> UInt64 {
    ProcessInfo.processInfo.environment["TEST_SEED"].flatMap(UInt64.init) ?? UInt64.random(in: 0...UInt64.max)
}
