import Sodium

/// The functions that WireGuard makes of BLAKE2s (whitepaper, 5.4).
package enum KeyDerivation {
    /// Hash(parts, one after the other): 32 bytes.
    package static func hash(_ parts: [UInt8]...) -> [UInt8] {
        var state = BLAKE2s()
        for part in parts { part.withUnsafeBytes { state.update($0) } }
        var digest = [UInt8](repeating: 0, count: BLAKE2s.most)
        digest.withUnsafeMutableBytes { state.finish(into: $0) }
        return digest
    }

    /// Mac(key, input): keyed BLAKE2s with 16 bytes.
    package static func mac(key: UnsafeRawBufferPointer, _ input: UnsafeRawBufferPointer) -> MAC {
        var state = BLAKE2s(digestCount: MAC.count, key: key)
        state.update(input)
        var mac = MAC.zero
        mac.withMutableBytes { state.finish(into: $0) }
        return mac
    }

    /// Hmac(key, parts, one after the other) with BLAKE2s: 32 bytes.
    package static func hmac(key: SecretBytes, _ parts: UnsafeRawBufferPointer...) -> SecretBytes {
        hmac(key: key, parts)
    }

    private static func hmac(key: SecretBytes, _ parts: [UnsafeRawBufferPointer]) -> SecretBytes {
        // RFC 2104. The keys here are never longer than a block.
        func padded(with byte: UInt8) -> SecretBytes {
            SecretBytes(count: BLAKE2s.blockCount) { block in
                key.withBytes { key in
                    for index in block.indices { block[index] = (index < key.count ? key[index] : 0) ^ byte }
                }
            }
        }
        var inner = BLAKE2s()
        padded(with: 0x36).withBytes { inner.update($0) }
        for part in parts { inner.update(part) }
        let digest = SecretBytes(count: BLAKE2s.most) { inner.finish(into: $0) }
        var outer = BLAKE2s()
        padded(with: 0x5c).withBytes { outer.update($0) }
        digest.withBytes { outer.update($0) }
        return SecretBytes(count: BLAKE2s.most) { outer.finish(into: $0) }
    }

    /// Kdf1(key, input).
    package static func kdf1(key: SecretBytes, _ input: UnsafeRawBufferPointer) -> SecretBytes {
        first(of: hmac(key: key, input))
    }

    /// Kdf2(key, input).
    package static func kdf2(key: SecretBytes, _ input: UnsafeRawBufferPointer) -> (SecretBytes, SecretBytes) {
        let secret = hmac(key: key, input)
        let one = first(of: secret)
        return (one, following(one, 2, of: secret))
    }

    /// Kdf3(key, input).
    package static func kdf3(
        key: SecretBytes, _ input: UnsafeRawBufferPointer
    ) -> (SecretBytes, SecretBytes, SecretBytes) {
        let secret = hmac(key: key, input)
        let one = first(of: secret)
        let two = following(one, 2, of: secret)
        return (one, two, following(two, 3, of: secret))
    }

    private static func first(of secret: SecretBytes) -> SecretBytes {
        [UInt8(1)].withUnsafeBytes { hmac(key: secret, $0) }
    }

    private static func following(_ previous: SecretBytes, _ number: UInt8, of secret: SecretBytes) -> SecretBytes {
        previous.withBytes { previous in [number].withUnsafeBytes { hmac(key: secret, previous, $0) } }
    }
}

/// 16 bytes at the end of a handshake message, or a cookie.
package struct MAC: Sendable {
    package static let count = 16
    package static let zero = MAC()
    private var words: (UInt64, UInt64) = (0, 0)

    private init() {}

    /// nil unless these are 16 bytes.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count == Self.count else { return nil }
        withMutableBytes { $0.copyMemory(from: bytes) }
    }

    package func withBytes<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R { withUnsafeBytes(of: words, body) }

    package mutating func withMutableBytes(_ body: (UnsafeMutableRawBufferPointer) -> Void) {
        withUnsafeMutableBytes(of: &words, body)
    }

    /// Whether these are the same bytes, in a time that does not depend on them.
    package func isSame(as bytes: UnsafeRawBufferPointer) -> Bool { withBytes { isSameInConstantTime($0, bytes) } }
}
