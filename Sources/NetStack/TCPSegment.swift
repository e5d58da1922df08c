/// The flags of a TCP segment.
struct TCPFlags: OptionSet, Sendable {
    var rawValue: UInt8
    static let fin = TCPFlags(rawValue: 1)
    static let syn = TCPFlags(rawValue: 2)
    static let rst = TCPFlags(rawValue: 4)
    static let psh = TCPFlags(rawValue: 8)
    static let ack = TCPFlags(rawValue: 16)
}

/// Up to four ranges of selective acknowledgement, in the order of the option (RFC 2018).
struct SACKBlocks: Sendable {
    private var blocks: InlineArray<4, SequenceRange> = .init(
        repeating: SequenceRange(start: SequenceNumber(0), end: SequenceNumber(0)))
    private(set) var count = 0

    subscript(index: Int) -> SequenceRange { blocks[index] }

    mutating func append(_ block: SequenceRange) {
        guard count < 4 else { return }
        blocks[count] = block
        count += 1
    }
}

/// A received TCP segment, as a view of the driver's memory.
struct TCPSegment {
    static let headerBytes = 20
    /// NOP, NOP and the timestamps: the options of nearly every segment.
    static let timestampBytes = 12

    var sourcePort: UInt16
    var destinationPort: UInt16
    var sequence: SequenceNumber
    var acknowledgment: SequenceNumber
    var flags: TCPFlags
    /// As it stands in the header, not scaled.
    var window: UInt16
    var timestamps: Timestamps?
    var mss: UInt16?
    /// At most 14 (RFC 7323, 2.3).
    var windowScale: UInt8?
    var sackPermitted = false
    var sack = SACKBlocks()
    var payload: UnsafeRawBufferPointer

    struct Timestamps {
        var value: UInt32
        var echo: UInt32
    }

    /// Bytes in sequence space.
    var length: Int { payload.count + (flags.contains(.syn) ? 1 : 0) + (flags.contains(.fin) ? 1 : 0) }

    /// Reads a segment whose checksum was checked; nil when its lengths contradict each other.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count >= Self.headerBytes else { return nil }
        let header = Int(bytes[12] >> 4) * 4
        guard header >= Self.headerBytes, header <= bytes.count else { return nil }
        sourcePort = bytes.number(at: 0)
        destinationPort = bytes.number(at: 2)
        sequence = SequenceNumber(bytes.number(at: 4))
        acknowledgment = SequenceNumber(bytes.number(at: 8))
        flags = TCPFlags(rawValue: bytes[13] & 0x1f)
        window = bytes.number(at: 14)
        payload = UnsafeRawBufferPointer(rebasing: bytes[header...])
        if header == Self.headerBytes + Self.timestampBytes, bytes.number(at: 20, as: UInt32.self) == 0x0101_080a {
            timestamps = Timestamps(value: bytes.number(at: 24), echo: bytes.number(at: 28))
        } else if header > Self.headerBytes {
            guard readOptions(UnsafeRawBufferPointer(rebasing: bytes[Self.headerBytes..<header])) else { return nil }
        }
    }

    /// False when an option's length is wrong. Unknown options are skipped (RFC 9293, MUST-6).
    private mutating func readOptions(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var offset = 0
        while offset < bytes.count {
            let kind = bytes[offset]
            if kind == 0 { break }
            if kind == 1 {
                offset += 1
                continue
            }
            guard offset + 1 < bytes.count else { return false }
            let count = Int(bytes[offset + 1])
            guard count >= 2, offset + count <= bytes.count else { return false }
            readOption(kind, UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + count]))
            offset += count
        }
        return true
    }

    /// - Parameter option: with its kind and length.
    private mutating func readOption(_ kind: UInt8, _ option: UnsafeRawBufferPointer) {
        switch (kind, option.count) {
        case (2, 4): mss = option.number(at: 2)
        case (3, 3): windowScale = min(14, option[2])
        case (4, 2): sackPermitted = true
        case (5, 10), (5, 18), (5, 26), (5, 34):
            for offset in stride(from: 2, to: option.count, by: 8) {
                sack.append(
                    SequenceRange(
                        start: SequenceNumber(option.number(at: offset)),
                        end: SequenceNumber(option.number(at: offset + 4))))
            }
        case (8, 10): timestamps = Timestamps(value: option.number(at: 2), echo: option.number(at: 6))
        default: break
        }
    }
}
