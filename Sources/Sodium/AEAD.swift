import CSodium

/// ChaCha20-Poly1305 (RFC 8439) and XChaCha20-Poly1305 with a key of 32 bytes.
///
/// The memory that these take comes from its caller; each states what must fit, and answers false where it does not.
package enum AEAD {
    /// Bytes by which a sealed text is longer.
    package static let tagCount = 16

    /// Seals with WireGuard's nonce: four zero bytes and the counter, little-endian.
    /// - Parameters:
    ///   - input: may lie at the beginning of the output.
    ///   - output: ``tagCount`` bytes more than the input, or more.
    package static func seal(
        _ input: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer, counter: UInt64,
        aad: UnsafeRawBufferPointer = .init(start: nil, count: 0), key: SecretBytes
    ) -> Bool {
        guard key.count == 32, output.count >= input.count + tagCount, let base = output.baseAddress else {
            return false
        }
        return withNonce(counter) { nonce in
            key.withBytes { key in
                guard let key = key.baseAddress else { return false }
                return wsd_seal(base, input.baseAddress ?? nonce, input.count, aad.baseAddress, aad.count, nonce, key)
                    == 0
            }
        }
    }

    /// Opens what ``seal(_:into:counter:aad:key:)`` made.
    /// - Parameters:
    ///   - input: may lie at the same place as the output.
    ///   - output: as long as the input without its tag, or longer. Its content is worthless when this is false.
    package static func open(
        _ input: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer, counter: UInt64,
        aad: UnsafeRawBufferPointer = .init(start: nil, count: 0), key: SecretBytes
    ) -> Bool {
        guard key.count == 32, input.count >= tagCount, output.count >= input.count - tagCount,
            let from = input.baseAddress
        else { return false }
        return withNonce(counter) { nonce in
            key.withBytes { key in
                guard let key = key.baseAddress else { return false }
                // Where there is nothing to write, nothing is written.
                let base = output.baseAddress ?? UnsafeMutableRawPointer(mutating: from)
                return wsd_open(base, from, input.count, aad.baseAddress, aad.count, nonce, key) == 0
            }
        }
    }

    /// XChaCha20-Poly1305; nil unless the key has 32 and the nonce 24 bytes.
    package static func xseal(_ input: [UInt8], nonce: [UInt8], aad: [UInt8], key: SecretBytes) -> [UInt8]? {
        guard key.count == 32, nonce.count == 24 else { return nil }
        var output = [UInt8](repeating: 0, count: input.count + tagCount)
        let result = key.withBytes { key in
            key.baseAddress.map { wsd_xseal(&output, input, input.count, aad, aad.count, nonce, $0) }
        }
        return result == 0 ? output : nil
    }

    /// nil when it is not authentic.
    package static func xopen(_ input: [UInt8], nonce: [UInt8], aad: [UInt8], key: SecretBytes) -> [UInt8]? {
        guard key.count == 32, nonce.count == 24, input.count >= tagCount else { return nil }
        var output = [UInt8](repeating: 0, count: max(1, input.count - tagCount))
        let result = key.withBytes { key in
            key.baseAddress.map { wsd_xopen(&output, input, input.count, aad, aad.count, nonce, $0) }
        }
        return result == 0 ? Array(output.prefix(input.count - tagCount)) : nil
    }

    @inline(__always)
    private static func withNonce(_ counter: UInt64, _ body: (UnsafeRawPointer) -> Bool) -> Bool {
        var nonce: (UInt32, UInt32, UInt32) = (
            0, UInt32(truncatingIfNeeded: counter).littleEndian, UInt32(truncatingIfNeeded: counter >> 32).littleEndian
        )
        return withUnsafeBytes(of: &nonce) { $0.baseAddress.map(body) ?? false }
    }
}
