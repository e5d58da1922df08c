import Foundation
import NIOCore

@testable import Yamux

/// The recorded vectors, read from beside this file.
enum Vectors {
    static func all() throws -> [[String: Any]] {
        let url = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("Vectors/yamux_exchanges.json")
        let file = try JSONSerialization.jsonObject(with: Data(contentsOf: url)) as? [String: Any]
        return file?["vectors"] as? [[String: Any]] ?? []
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

private let patternPeriod = 65_521

/// Ever the same 65,521 bytes; made once, since the tests that use it count every millisecond.
private let patternBase: ByteBuffer = {
    var base = ByteBufferAllocator().buffer(capacity: 2_200_000)
    base.writeBytes((0..<patternPeriod).map { UInt8(truncatingIfNeeded: ($0 &* 31) ^ ($0 >> 8)) })
    while base.readableBytes < 1_100_000 { base.writeImmutableBuffer(base) }
    return base
}()

/// Bytes that tell their place, so that lost, doubled and swapped ones show. At most a million.
func pattern(_ offset: Int, _ count: Int, salt: Int = 0) -> ByteBuffer {
    patternBase.getSlice(at: (offset + salt * 7_919) % patternPeriod, length: count) ?? ByteBuffer()
}

extension YamuxHeader {
    var encoded: ByteBuffer {
        var buffer = ByteBuffer()
        write(into: &buffer)
        return buffer
    }
}

/// Everything in the bytes.
func elements(_ bytes: ByteBuffer) throws -> [YamuxDecoder.Element] {
    var decoder = YamuxDecoder()
    var bytes = bytes
    var elements: [YamuxDecoder.Element] = []
    while let element = try decoder.next(from: &bytes) { elements.append(element) }
    return elements
}

extension YamuxSession {
    mutating func receive(_ header: YamuxHeader, _ payload: ByteBuffer? = nil) {
        receive(.header(header))
        if let payload { receive(.payload(payload)) }
    }

    /// All actions that wait.
    mutating func drain() -> [Action] {
        var actions: [Action] = []
        while let action = nextAction() { actions.append(action) }
        return actions
    }

    /// The frames among the actions that wait.
    mutating func frames() -> [YamuxHeader] {
        drain().compactMap {
            switch $0 {
            case .send(let header), .sendData(let header, _): header
            default: nil
            }
        }
    }

    mutating func transmitAll() { while transmit() > 0 {} }
}

/// `#expect` cannot look at the result of a mutating method; the result of this it can.
func after<Value, Result>(_ value: inout Value, _ body: (inout Value) throws -> Result) rethrows -> Result {
    try body(&value)
}
