/// A TCP sequence number: a place on a circle of 2³². Comparisons are right for numbers less than 2³¹ apart
/// (RFC 9293, 3.4), which is why this isn't `Comparable`.
struct SequenceNumber: Equatable, Sendable, CustomStringConvertible {
    var value: UInt32

    init(_ value: UInt32) { self.value = value }

    /// How far `a` lies after `b`; negative when before.
    static func - (a: Self, b: Self) -> Int { Int(Int32(bitPattern: a.value &- b.value)) }
    static func + (a: Self, bytes: Int) -> Self { Self(a.value &+ UInt32(truncatingIfNeeded: bytes)) }
    static func - (a: Self, bytes: Int) -> Self { Self(a.value &- UInt32(truncatingIfNeeded: bytes)) }
    static func += (a: inout Self, bytes: Int) { a = a + bytes }
    static func < (a: Self, b: Self) -> Bool { a - b < 0 }
    static func <= (a: Self, b: Self) -> Bool { a - b <= 0 }
    static func > (a: Self, b: Self) -> Bool { a - b > 0 }
    static func >= (a: Self, b: Self) -> Bool { a - b >= 0 }

    static func later(_ a: Self, _ b: Self) -> Self { a > b ? a : b }
    static func earlier(_ a: Self, _ b: Self) -> Self { a < b ? a : b }

    var description: String { "\(value)" }
}

/// Sequence numbers from `start` up to, not including, `end`.
struct SequenceRange: Equatable, Sendable {
    var start: SequenceNumber
    var end: SequenceNumber

    var count: Int { end - start }

    func contains(_ other: SequenceRange) -> Bool { start <= other.start && other.end <= end }
}
