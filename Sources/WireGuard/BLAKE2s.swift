/// BLAKE2s (RFC 7693), which libsodium does not have: the hash of WireGuard's handshake.
package struct BLAKE2s {
    /// Bytes that are compressed at once.
    package static let blockCount = 64
    /// Bytes of the longest digest, and of the longest key.
    package static let most = 32

    private typealias Words = (
        UInt32, UInt32, UInt32, UInt32, UInt32, UInt32, UInt32, UInt32,
        UInt32, UInt32, UInt32, UInt32, UInt32, UInt32, UInt32, UInt32
    )

    private var h: SIMD8<UInt32>
    // Bytes that wait: the last block is compressed in another way, so a full one waits for a further byte. As words of
    // a little-endian machine, as all are that this program runs on.
    private var block: Words = Self.noWords
    private var used = 0
    private var total: UInt64 = 0

    /// - Parameters:
    ///   - digestCount: 1 to 32 bytes; others count as the nearest of these.
    ///   - key: at most 32 bytes; empty for a plain hash. What is longer is cut.
    package init(digestCount: Int = most, key: UnsafeRawBufferPointer = .init(start: nil, count: 0)) {
        let digestCount = UInt32(min(max(digestCount, 1), Self.most))
        let keyCount = min(key.count, Self.most)
        h = Self.initial
        h[0] ^= 0x0101_0000 ^ UInt32(keyCount) << 8 ^ digestCount
        guard keyCount > 0 else { return }
        withUnsafeMutableBytes(of: &block) { $0.copyMemory(from: UnsafeRawBufferPointer(rebasing: key[..<keyCount])) }
        used = Self.blockCount
    }

    package mutating func update(_ bytes: UnsafeRawBufferPointer) {
        var rest = bytes[...]
        while !rest.isEmpty {
            if used == Self.blockCount {
                compress(isLast: false)
                used = 0
            }
            let piece = rest.prefix(Self.blockCount - used)
            withUnsafeMutableBytes(of: &block) { block in
                UnsafeMutableRawBufferPointer(rebasing: block[used...]).copyMemory(
                    from: UnsafeRawBufferPointer(rebasing: piece))
            }
            used += piece.count
            rest = rest.dropFirst(piece.count)
        }
    }

    /// Writes the digest, as much of it as there is room for; the value is used up.
    package mutating func finish(into digest: UnsafeMutableRawBufferPointer) {
        withUnsafeMutableBytes(of: &block) { block in
            for index in used..<Self.blockCount { block[index] = 0 }
        }
        compress(isLast: true)
        withUnsafeBytes(of: h) { words in
            digest.copyMemory(from: UnsafeRawBufferPointer(rebasing: words[..<min(digest.count, words.count)]))
        }
        (h, block) = (.zero, Self.noWords)
    }

    private static let noWords: Words = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

    private static var initial: SIMD8<UInt32> {
        SIMD8(
            0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19)
    }

    /// F of RFC 7693, 3.2, with the ten rows of SIGMA (2.7) written out.
    private mutating func compress(isLast: Bool) {
        total &+= UInt64(used)
        let m = block
        var v = Work(h, Self.initial)
        v.d0 ^= UInt32(truncatingIfNeeded: total)
        v.d1 ^= UInt32(truncatingIfNeeded: total >> 32)
        if isLast { v.d2 = ~v.d2 }
        v.round(
            m.0, m.1, m.2, m.3, m.4, m.5, m.6, m.7,
            m.8, m.9, m.10, m.11, m.12, m.13, m.14, m.15)
        v.round(
            m.14, m.10, m.4, m.8, m.9, m.15, m.13, m.6,
            m.1, m.12, m.0, m.2, m.11, m.7, m.5, m.3)
        v.round(
            m.11, m.8, m.12, m.0, m.5, m.2, m.15, m.13,
            m.10, m.14, m.3, m.6, m.7, m.1, m.9, m.4)
        v.round(
            m.7, m.9, m.3, m.1, m.13, m.12, m.11, m.14,
            m.2, m.6, m.5, m.10, m.4, m.0, m.15, m.8)
        v.round(
            m.9, m.0, m.5, m.7, m.2, m.4, m.10, m.15,
            m.14, m.1, m.11, m.12, m.6, m.8, m.3, m.13)
        v.round(
            m.2, m.12, m.6, m.10, m.0, m.11, m.8, m.3,
            m.4, m.13, m.7, m.5, m.15, m.14, m.1, m.9)
        v.round(
            m.12, m.5, m.1, m.15, m.14, m.13, m.4, m.10,
            m.0, m.7, m.6, m.3, m.9, m.2, m.8, m.11)
        v.round(
            m.13, m.11, m.7, m.14, m.12, m.1, m.3, m.9,
            m.5, m.0, m.15, m.4, m.8, m.6, m.2, m.10)
        v.round(
            m.6, m.15, m.14, m.9, m.11, m.3, m.0, m.8,
            m.12, m.2, m.13, m.7, m.1, m.4, m.10, m.5)
        v.round(
            m.10, m.2, m.8, m.4, m.7, m.6, m.1, m.5,
            m.15, m.11, m.9, m.14, m.3, m.12, m.13, m.0)
        h[0] ^= v.a0 ^ v.c0
        h[1] ^= v.a1 ^ v.c1
        h[2] ^= v.a2 ^ v.c2
        h[3] ^= v.a3 ^ v.c3
        h[4] ^= v.b0 ^ v.d0
        h[5] ^= v.b1 ^ v.d1
        h[6] ^= v.b2 ^ v.d2
        h[7] ^= v.b3 ^ v.d3
    }

    /// The work vector: four rows a, b, c and d. As variables of their own, it stays in registers.
    private struct Work {
        var a0, a1, a2, a3: UInt32
        var b0, b1, b2, b3: UInt32
        var c0, c1, c2, c3: UInt32
        var d0, d1, d2, d3: UInt32

        init(_ h: SIMD8<UInt32>, _ iv: SIMD8<UInt32>) {
            (a0, a1, a2, a3, b0, b1, b2, b3) = (h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7])
            (c0, c1, c2, c3, d0, d1, d2, d3) = (iv[0], iv[1], iv[2], iv[3], iv[4], iv[5], iv[6], iv[7])
        }

        /// The four columns, then the four diagonals.
        @inline(__always)
        mutating func round(
            _ m0: UInt32, _ m1: UInt32, _ m2: UInt32, _ m3: UInt32, _ m4: UInt32, _ m5: UInt32, _ m6: UInt32,
            _ m7: UInt32, _ m8: UInt32, _ m9: UInt32, _ m10: UInt32, _ m11: UInt32, _ m12: UInt32, _ m13: UInt32,
            _ m14: UInt32, _ m15: UInt32
        ) {
            Self.mix(&a0, &b0, &c0, &d0, m0, m1)
            Self.mix(&a1, &b1, &c1, &d1, m2, m3)
            Self.mix(&a2, &b2, &c2, &d2, m4, m5)
            Self.mix(&a3, &b3, &c3, &d3, m6, m7)
            Self.mix(&a0, &b1, &c2, &d3, m8, m9)
            Self.mix(&a1, &b2, &c3, &d0, m10, m11)
            Self.mix(&a2, &b3, &c0, &d1, m12, m13)
            Self.mix(&a3, &b0, &c1, &d2, m14, m15)
        }

        /// G of RFC 7693, 3.1.
        @inline(__always)
        private static func mix(
            _ a: inout UInt32, _ b: inout UInt32, _ c: inout UInt32, _ d: inout UInt32, _ x: UInt32, _ y: UInt32
        ) {
            a = a &+ b &+ x
            d = rotated(d ^ a, 16)
            c = c &+ d
            b = rotated(b ^ c, 12)
            a = a &+ b &+ y
            d = rotated(d ^ a, 8)
            c = c &+ d
            b = rotated(b ^ c, 7)
        }

        @inline(__always)
        private static func rotated(_ x: UInt32, _ count: UInt32) -> UInt32 { x &>> count | x &<< (32 &- count) }
    }
}
