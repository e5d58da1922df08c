import IPAddresses

/// Both ends of a connection or flow.
struct FlowKey: Hashable, Sendable {
    var local: Endpoint
    var remote: Endpoint

    func hash(into hasher: inout Hasher) {
        hasher.combine(remote.address.high)
        hasher.combine(remote.address.low)
        hasher.combine(local.address.high ^ local.address.low)
        hasher.combine(UInt32(local.port) << 16 | UInt32(remote.port))
    }

    static func == (a: Self, b: Self) -> Bool {
        a.remote.port == b.remote.port && a.local.port == b.local.port && a.remote.address.low == b.remote.address.low
            && a.remote.address.high == b.remote.address.high && a.local.address.high == b.local.address.high
            && a.local.address.low == b.local.address.low
    }
}

/// SipHash-2-4 over the ends of a connection (Aumasson, Bernstein 2012), the keyed function that RFC 6528 and
/// RFC 7323, 5.4 ask for. Swift's `Hasher` is keyed too, but not by the generator that tests inject.
struct FlowHash: Sendable {
    private let key0: UInt64
    private let key1: UInt64

    init(random: inout some RandomNumberGenerator) { (key0, key1) = (random.next(), random.next()) }

    func callAsFunction(_ key: FlowKey, salt: UInt64) -> UInt64 {
        var v0 = key0 ^ 0x736f_6d65_7073_6575
        var v1 = key1 ^ 0x646f_7261_6e64_6f6d
        var v2 = key0 ^ 0x6c79_6765_6e65_7261
        var v3 = key1 ^ 0x7465_6462_7974_6573
        func rotated(_ word: UInt64, _ bits: UInt64) -> UInt64 { word &<< bits | word &>> (64 &- bits) }
        func round() {
            v0 &+= v1
            v1 = rotated(v1, 13) ^ v0
            v0 = rotated(v0, 32)
            v2 &+= v3
            v3 = rotated(v3, 16) ^ v2
            v0 &+= v3
            v3 = rotated(v3, 21) ^ v0
            v2 &+= v1
            v1 = rotated(v1, 17) ^ v2
            v2 = rotated(v2, 32)
        }
        let ports = UInt64(key.local.port) << 16 | UInt64(key.remote.port)
        let words: InlineArray<6, UInt64> = [
            key.local.address.high, key.local.address.low, key.remote.address.high, key.remote.address.low,
            ports | salt << 32, 48 << 56,
        ]
        for index in words.indices {
            v3 ^= words[index]
            round()
            round()
            v0 ^= words[index]
        }
        v2 ^= 0xff
        for _ in 0..<4 { round() }
        return v0 ^ v1 ^ v2 ^ v3
    }
}
