import IPAddresses
import Sodium

/// The layout of the messages (docs/contracts/wireguard.md#messages; whitepaper, 5.4). All numbers are little-endian.
package enum Message {
    package static let initiation: UInt32 = 1
    package static let response: UInt32 = 2
    package static let cookieReply: UInt32 = 3
    package static let transport: UInt32 = 4

    package static let initiationCount = 148
    package static let responseCount = 92
    package static let cookieReplyCount = 64
    /// Where the sealed packet of a transport message begins.
    package static let transportHeader = 16
    /// Bytes by which a transport message is longer than its padded packet.
    package static let transportOverhead = transportHeader + AEAD.tagCount
    /// Bytes of the two MACs at the end of a handshake message.
    static let macsCount = 2 * MAC.count

    /// 0 where there are no four bytes.
    @inline(__always)
    static func uint32(_ bytes: UnsafeRawBufferPointer, at offset: Int) -> UInt32 {
        guard offset >= 0, offset <= bytes.count - 4 else { return 0 }
        return UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    }

    /// 0 where there are no eight bytes.
    @inline(__always)
    static func uint64(_ bytes: UnsafeRawBufferPointer, at offset: Int) -> UInt64 {
        guard offset >= 0, offset <= bytes.count - 8 else { return 0 }
        return UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    }

    static func bytes(_ numbers: UInt32...) -> [UInt8] {
        numbers.flatMap { number in (0..<4).map { UInt8(truncatingIfNeeded: number >> UInt32(8 * $0)) } }
    }

    /// The key that the MAC of messages to this peer is made with.
    static func mac1Key(_ receiver: PublicKey) -> SecretBytes {
        SecretBytes(KeyDerivation.hash(Array("mac1----".utf8), receiver.bytes))
    }

    /// The key that the cookies of this peer are sealed with.
    static func cookieKey(_ responder: PublicKey) -> SecretBytes {
        SecretBytes(KeyDerivation.hash(Array("cookie--".utf8), responder.bytes))
    }

    /// Appends both MACs to a handshake message; the second one is zero without a cookie.
    /// - Returns: the first one, which a cookie reply refers to.
    static func appendMACs(to message: inout [UInt8], receiver: PublicKey, cookie: MAC?) -> MAC {
        let mac1 = mac1Key(receiver).withBytes { key in
            message.withUnsafeBytes { KeyDerivation.mac(key: key, $0) }
        }
        mac1.withBytes { message += $0 }
        let mac2 = cookie.map { cookie in
            cookie.withBytes { key in message.withUnsafeBytes { KeyDerivation.mac(key: key, $0) } }
        }
        (mac2 ?? .zero).withBytes { message += $0 }
        return mac1
    }

    /// Whether the first MAC of a handshake message is right; of at least ``macsCount`` bytes.
    static func hasMAC1(_ message: UnsafeRawBufferPointer, key: SecretBytes) -> Bool {
        let end = message.count - macsCount
        guard end >= 0 else { return false }
        let mac = key.withBytes { KeyDerivation.mac(key: $0, .init(rebasing: message[..<end])) }
        return mac.isSame(as: .init(rebasing: message[end..<end + MAC.count]))
    }
}

/// Where a datagram came from, as its cookie depends on it: a sender's key at the relay, or an address and a port.
package struct Source: Hashable, Sendable {
    private var words: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)
    private let count: UInt8

    /// What is over 32 bytes does not count.
    package init(_ bytes: some Collection<UInt8>) {
        count = UInt8(min(bytes.count, 32))
        withUnsafeMutableBytes(of: &words) { $0.copyBytes(from: bytes.prefix(32)) }
    }

    /// A sender at a relay.
    package init(_ key: PublicKey) {
        count = UInt8(PublicKey.count)
        key.withBytes { key in withUnsafeMutableBytes(of: &words) { $0.copyMemory(from: key) } }
    }

    /// A socket: 4 or 16 bytes of address, 2 of port.
    package init(_ endpoint: Endpoint) {
        let port = UInt64(endpoint.port.bigEndian)
        if let v4 = endpoint.address.v4 {
            words.0 = (UInt64(v4.bigEndian) | port << 32).littleEndian
            count = 6
        } else {
            words = (endpoint.address.high.bigEndian, endpoint.address.low.bigEndian, port.littleEndian, 0)
            count = 18
        }
    }

    /// The socket that this is; nil for a sender at a relay.
    package var endpoint: Endpoint? {
        withBytes { bytes in
            guard bytes.count == 6 || bytes.count == 18, let address = IPAddress(bytes.dropLast(2)) else { return nil }
            return Endpoint(address, UInt16(bytes[bytes.count - 2]) << 8 | UInt16(bytes[bytes.count - 1]))
        }
    }

    package func withBytes<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R {
        withUnsafeBytes(of: words) { body(UnsafeRawBufferPointer(rebasing: $0[..<Int(count)])) }
    }

    package static func == (a: Self, b: Self) -> Bool { a.words == b.words && a.count == b.count }

    package func hash(into hasher: inout Hasher) { withBytes { hasher.combine(bytes: $0) } }
}
