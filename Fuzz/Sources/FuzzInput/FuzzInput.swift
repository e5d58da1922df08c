/// The fuzzer's bytes, from which a target takes its decisions. Zeros follow the last one.
public struct FuzzInput {
    private let bytes: [UInt8]
    private var index = 0

    public init(_ data: UnsafePointer<UInt8>?, _ count: Int) {
        bytes = Array(UnsafeBufferPointer(start: data, count: data == nil ? 0 : count))
    }

    public var isEmpty: Bool { index >= bytes.count }

    public mutating func byte() -> UInt8 {
        guard index < bytes.count else { return 0 }
        index += 1
        return bytes[index - 1]
    }

    /// Two bytes, big-endian.
    public mutating func word() -> Int { Int(byte()) << 8 | Int(byte()) }

    /// As many as there are, at most.
    public mutating func take(_ count: Int) -> [UInt8] {
        let end = min(bytes.count, index + count)
        defer { index = max(index, end) }
        return index < end ? Array(bytes[index..<end]) : []
    }

    public mutating func rest() -> [UInt8] { take(bytes.count) }

    /// What a length of two bytes stands before.
    public mutating func block() -> [UInt8] {
        let count = word()
        return take(count)
    }
}

/// The same values at each run: SplitMix64.
public struct SeededRandom: RandomNumberGenerator, Sendable {
    private var state: UInt64

    public init(_ seed: UInt64) { state = seed }

    public mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var z = state
        z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
        return z ^ (z >> 31)
    }
}

/// Ends the fuzzer unless the condition holds.
@inlinable
public func check(_ condition: Bool, _ what: @autoclosure () -> String) {
    if !condition { fatalError(what()) }
}
