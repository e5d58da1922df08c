import Glibc

/// A generator whose seed is printed, so that a failing property test can be run again with
/// `TEST_SEED=N`.
public struct SeededGenerator: RandomNumberGenerator {
    public let seed: UInt64
    private var state: UInt64

    public init(_ name: String) {
        let given = getenv("TEST_SEED").flatMap { UInt64(String(cString: $0)) }
        seed = given ?? UInt64.random(in: 1...UInt64(UInt32.max))
        state = seed
        print("\(name): TEST_SEED=\(seed)")
    }

    // SplitMix64 (Steele, Lea, Flood 2014).
    public mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var z = state
        z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
        return z ^ (z >> 31)
    }
}
