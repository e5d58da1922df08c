/// The bytes are no message of the expected type.
public struct Malformed: Error, Equatable {
    public init() {}
}

/// Reads protobuf's wire format in place. It takes and refuses exactly what SwiftProtobuf's binary
/// decoder does, which tests and a fuzzer compare it with.
struct WireReader {
    enum Wire: UInt8 {
        case varint = 0
        case fixed64 = 1
        case bytes = 2
        case startGroup = 3
        case endGroup = 4
        case fixed32 = 5
    }

    struct Field {
        var number: Int
        var wire: Wire
    }

    /// SwiftProtobuf's default: messages and groups inside one another.
    static let depth = 100

    private let bytes: UnsafeRawBufferPointer
    private(set) var at: Int
    private let end: Int
    private let budget: Int

    /// - Parameter depth: messages around this one.
    init(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>, depth: Int) {
        self.bytes = bytes
        at = range.lowerBound
        end = range.upperBound
        budget = Self.depth - depth - 1
    }

    /// The next field of the message; nil at its end.
    mutating func field() throws(Malformed) -> Field? {
        guard at < end else { return nil }
        let first = bytes[at]
        guard let wire = Wire(rawValue: first & 7), wire != .endGroup else { throw Malformed() }
        at += 1
        var number = Int(first & 0x7f) >> 3
        if first >= 0x80 {
            var shift = 4
            while true {
                guard at < end else { throw Malformed() }
                let next = bytes[at]
                at += 1
                // The fifth byte holds what is left of 32 bits.
                guard shift < 25 || next <= 15 else { throw Malformed() }
                number |= Int(next & 0x7f) &<< shift
                if next < 0x80 { break }
                shift &+= 7
            }
        }
        guard number != 0 else { throw Malformed() }
        return Field(number: number, wire: wire)
    }

    mutating func varint() throws(Malformed) -> UInt64 {
        guard at < end else { throw Malformed() }
        let first = bytes[at]
        at += 1
        if first < 0x80 { return UInt64(first) }
        var value = UInt64(first & 0x7f)
        var shift: UInt64 = 7
        while true {
            guard at < end, shift <= 63 else { throw Malformed() }
            let next = bytes[at]
            at += 1
            value |= UInt64(next & 0x7f) &<< shift
            if next < 0x80 { return value }
            shift &+= 7
        }
    }

    /// The place of a length-delimited value.
    mutating func body() throws(Malformed) -> Range<Int> {
        let length = try varint()
        guard length <= UInt64(end - at) else { throw Malformed() }
        let start = at
        at += Int(length)
        return start..<at
    }

    /// A string's place; it must be UTF-8.
    mutating func string() throws(Malformed) -> Range<Int> {
        let range = try body()
        guard isUTF8(UnsafeRawBufferPointer(rebasing: bytes[range])) else { throw Malformed() }
        return range
    }

    /// Skips the value of an unknown field.
    mutating func skip(_ field: Field) throws(Malformed) { try skip(field, budget: budget) }

    private mutating func skip(_ field: Field, budget: Int) throws(Malformed) {
        switch field.wire {
        case .varint: _ = try varint()
        case .fixed64: try advance(8)
        case .fixed32: try advance(4)
        case .bytes: _ = try body()
        case .endGroup: throw Malformed()
        case .startGroup:
            guard budget > 0 else { throw Malformed() }
            while true {
                let inner = try looseTag()
                if inner.wire == .endGroup {
                    guard inner.number == field.number else { throw Malformed() }
                    return
                }
                try skip(inner, budget: budget - 1)
            }
        }
    }

    /// A tag inside a group, where any encoding of the number will do.
    private mutating func looseTag() throws(Malformed) -> Field {
        let raw = try varint()
        guard raw < UInt64(UInt32.max), raw >= 8, let wire = Wire(rawValue: UInt8(raw & 7)) else { throw Malformed() }
        return Field(number: Int(raw >> 3), wire: wire)
    }

    private mutating func advance(_ count: Int) throws(Malformed) {
        guard end - at >= count else { throw Malformed() }
        at += count
    }
}

/// As SwiftProtobuf checks it, with a fast path for ASCII.
private func isUTF8(_ bytes: UnsafeRawBufferPointer) -> Bool {
    var at = 0
    while bytes.count - at >= 8 {
        if bytes.loadUnaligned(fromByteOffset: at, as: UInt64.self) & 0x8080_8080_8080_8080 != 0 { break }
        at += 8
    }
    while at < bytes.count, bytes[at] < 0x80 { at += 1 }
    guard at < bytes.count else { return true }
    var parser = Unicode.UTF8.ForwardParser()
    var rest = bytes[at...].makeIterator()
    while true {
        switch parser.parseScalar(from: &rest) {
        case .valid: continue
        case .error: return false
        case .emptyInput: return true
        }
    }
}
