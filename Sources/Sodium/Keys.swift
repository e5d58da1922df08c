import CSodium

/// A public key of Curve25519: of a WireGuard node, of its disco, or of a relay.
package struct PublicKey: Hashable, Sendable, CustomStringConvertible {
    package static let count = 32
    private let words: (UInt64, UInt64, UInt64, UInt64)

    /// nil unless these are 32 bytes.
    package init?(_ bytes: some Collection<UInt8>) {
        guard bytes.count == Self.count else { return nil }
        var words: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)
        withUnsafeMutableBytes(of: &words) { $0.copyBytes(from: bytes) }
        self.words = words
    }

    package func withBytes<R, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> R) throws(E) -> R {
        try withUnsafeBytes(of: words, body)
    }

    package var bytes: [UInt8] { withBytes { Array($0) } }
    package var isZero: Bool { words == (0, 0, 0, 0) }

    package static func == (a: Self, b: Self) -> Bool { a.words == b.words }
    package func hash(into hasher: inout Hasher) { withBytes { hasher.combine(bytes: $0) } }

    /// As logs name it: `[` and the first five characters of its base64 form and `]`.
    package var description: String {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
        let bits = bytes.prefix(4).reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        let text = (0..<5).map { alphabet[Int(bits >> (26 - 6 * UInt32($0)) & 63)] }
        return "[\(String(decoding: text, as: UTF8.self))]"
    }
}

/// A private key of Curve25519.
package struct PrivateKey: Sendable, CustomStringConvertible {
    package let secret: SecretBytes
    package let publicKey: PublicKey

    /// - Parameter bytes: 32 of them, any.
    /// - Throws: for another count, and where libsodium is missing.
    package init(_ bytes: some Collection<UInt8>) throws(SodiumError) {
        guard bytes.count == 32 else {
            throw SodiumError(description: "a private key has 32 bytes, not \(bytes.count)")
        }
        try self.init(secret: SecretBytes(bytes))
    }

    /// A new one.
    /// - Throws: where libsodium is missing.
    package init(random: inout some RandomNumberGenerator) throws(SodiumError) {
        try self.init(
            secret: SecretBytes(count: 32) { bytes in
                for index in bytes.indices { bytes[index] = random.next() }
                // As Curve25519 wants it (RFC 7748, 5); X25519 would do it at each use, and others look at the key's text.
                bytes[0] &= 248
                bytes[31] = bytes[31] & 127 | 64
            })
    }

    private init(secret: SecretBytes) throws(SodiumError) {
        var bytes = [UInt8](repeating: 0, count: 32)
        let isMade = secret.withBytes { secret in
            guard let base = secret.baseAddress else { return false }
            return wsd_public_key(&bytes, base) == 0
        }
        guard isMade, let publicKey = PublicKey(bytes) else {
            throw SodiumError(description: Sodium.problem ?? "no public key can be made of a private key")
        }
        (self.secret, self.publicKey) = (secret, publicKey)
    }

    /// X25519; nil when the result is all zero, as it is for a public key of low order.
    package func shared(with other: PublicKey) -> SecretBytes? {
        var isMade = false
        let result = SecretBytes(count: 32) { output in
            secret.withBytes { secret in
                other.withBytes { other in
                    guard let output = output.baseAddress, let secret = secret.baseAddress,
                        let other = other.baseAddress
                    else { return }
                    isMade = wsd_shared_secret(output, secret, other) == 0
                }
            }
        }
        return isMade ? result : nil
    }

    package var description: String { "***" }
}

/// NaCl's box between two keys, as disco and DERP use it.
package struct Box: Sendable {
    package static let nonceCount = 24
    /// Bytes by which a box is longer than what it holds.
    package static let overhead = 16
    private let key: SecretBytes

    /// nil for a public key of low order.
    package init?(_ own: PrivateKey, _ other: PublicKey) {
        var isMade = false
        key = SecretBytes(count: 32) { output in
            own.secret.withBytes { own in
                other.withBytes { other in
                    guard let output = output.baseAddress, let own = own.baseAddress, let other = other.baseAddress
                    else { return }
                    isMade = wsd_box_key(output, other, own) == 0
                }
            }
        }
        guard isMade else { return nil }
    }

    /// - Parameter nonce: ``nonceCount`` bytes, never the same twice; nil for another count.
    package func seal(_ message: [UInt8], nonce: [UInt8]) -> [UInt8]? {
        guard nonce.count == Self.nonceCount else { return nil }
        var output = [UInt8](repeating: 0, count: message.count + Self.overhead)
        let result = key.withBytes { key in
            key.baseAddress.map { wsd_box_seal(&output, message, message.count, nonce, $0) }
        }
        return result == 0 ? output : nil
    }

    /// nil when it is not authentic.
    package func open(_ box: [UInt8], nonce: [UInt8]) -> [UInt8]? {
        guard nonce.count == Self.nonceCount, box.count >= Self.overhead else { return nil }
        var output = [UInt8](repeating: 0, count: max(1, box.count - Self.overhead))
        let result = key.withBytes { key in key.baseAddress.map { wsd_box_open(&output, box, box.count, nonce, $0) } }
        guard result == 0 else { return nil }
        output.removeLast(output.count - (box.count - Self.overhead))
        return output
    }
}
