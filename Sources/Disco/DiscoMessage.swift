import IPAddresses
import Sodium

/// Twelve random bytes by which an answer, of disco or STUN, is matched to what was asked.
package struct TransactionID: Hashable, Sendable {
    package static let count = 12
    private let high: UInt64
    private let low: UInt32

    /// nil unless these are 12 bytes.
    package init?(_ bytes: some Collection<UInt8>) {
        guard bytes.count == Self.count else { return nil }
        high = bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
        low = bytes.dropFirst(8).reduce(0) { $0 << 8 | UInt32($1) }
    }

    package init(random: inout some RandomNumberGenerator) {
        (high, low) = (random.next(), random.next())
    }

    package var bytes: [UInt8] { bigEndian(high) + bigEndian(low) }
}

func bigEndian(_ number: some FixedWidthInteger) -> [UInt8] { withUnsafeBytes(of: number.bigEndian) { Array($0) } }

/// What a disco packet says (docs/contracts/disco.md#packets).
package enum DiscoMessage: Hashable, Sendable {
    /// - nodeKey: the sender's; older ones leave it out.
    case ping(TransactionID, nodeKey: PublicKey?)
    /// - source: where the ping came from, as its receiver saw it; 127.3.3.40 and the region for a relay.
    case pong(TransactionID, source: Endpoint)
    /// The sender's endpoints; it pings ours now.
    case callMeMaybe([Endpoint])

    /// Pings and pongs are padded so that the packet has 1,310 bytes and proves that large packets arrive.
    static let paddedCount = 1_310 - DiscoPacket.overhead

    package var plaintext: [UInt8] {
        switch self {
        case .ping(let tx, let nodeKey):
            Self.padded([1, 1] + tx.bytes + (nodeKey?.bytes ?? [UInt8](repeating: 0, count: PublicKey.count)))
        case .pong(let tx, let source): Self.padded([2, 1] + tx.bytes + Self.bytes(source))
        case .callMeMaybe(let endpoints): [3, 0] + endpoints.flatMap(Self.bytes)
        }
    }

    private static func padded(_ bytes: [UInt8]) -> [UInt8] {
        bytes + [UInt8](repeating: 0, count: max(0, paddedCount - bytes.count))
    }

    private static func bytes(_ endpoint: Endpoint) -> [UInt8] { endpoint.address.bytes + bigEndian(endpoint.port) }

    package init(plaintext: [UInt8]) throws(DiscoDrop) {
        guard plaintext.count >= 2 else { throw .short }
        let body = plaintext[2...]
        switch plaintext[0] {
        case 1:
            guard let tx = TransactionID(body.prefix(12)) else { throw .short }
            let key = PublicKey(body.dropFirst(12).prefix(PublicKey.count))
            self = .ping(tx, nodeKey: key.flatMap { $0.isZero ? nil : $0 })
        case 2:
            guard let tx = TransactionID(body.prefix(12)), let source = Self.endpoint(body.dropFirst(12).prefix(18))
            else { throw .short }
            self = .pong(tx, source: source)
        case 3:
            // Of another version, or of an odd length: no endpoints.
            guard plaintext[1] == 0, body.count.isMultiple(of: 18) else {
                self = .callMeMaybe([])
                return
            }
            var endpoints: [Endpoint] = []
            for start in stride(from: body.startIndex, to: body.endIndex, by: 18) {
                guard endpoints.count < DiscoLimits.candidates, let endpoint = Self.endpoint(body[start..<start + 18])
                else { break }
                endpoints.append(endpoint)
            }
            self = .callMeMaybe(endpoints)
        case let type: throw .unknownType(type)
        }
    }

    private static func endpoint(_ bytes: ArraySlice<UInt8>) -> Endpoint? {
        guard bytes.count == 18, let address = IPAddress(bytes.prefix(16)) else { return nil }
        return Endpoint(address, bytes.suffix(2).reduce(0) { $0 << 8 | UInt16($1) })
    }
}

/// A disco packet: magic, the sender's disco key, a nonce, and the message in a box.
package enum DiscoPacket {
    package static let magic: [UInt8] = [0x54, 0x53, 0xf0, 0x9f, 0x92, 0xac]
    static let headerCount = magic.count + PublicKey.count + Box.nonceCount
    static let overhead = headerCount + Box.overhead
    /// A shorter packet isn't disco.
    package static let leastCount = headerCount

    /// - Parameter box: between the sender's disco key and the receiver's.
    static func seal(
        _ message: DiscoMessage, from sender: PublicKey, box: Box, random: inout some RandomNumberGenerator
    ) -> [UInt8]? {
        let nonce = (0..<3).flatMap { _ in
            let word: UInt64 = random.next()
            return withUnsafeBytes(of: word.littleEndian) { Array($0) }
        }
        guard let sealed = box.seal(message.plaintext, nonce: nonce) else { return nil }
        return magic + sender.bytes + nonce + sealed
    }

    /// The disco key that the packet claims to come from; nil when it isn't disco.
    package static func sender(of packet: [UInt8]) -> PublicKey? {
        guard packet.count >= leastCount, packet.count <= DiscoLimits.packetBytes, packet.starts(with: magic) else {
            return nil
        }
        return PublicKey(packet[magic.count..<magic.count + PublicKey.count])
    }

    static func open(_ packet: [UInt8], box: Box) throws(DiscoDrop) -> DiscoMessage {
        guard packet.count >= leastCount else { throw .notDisco }
        let nonce = Array(packet[(headerCount - Box.nonceCount)..<headerCount])
        guard let plaintext = box.open(Array(packet[headerCount...]), nonce: nonce) else { throw .notAuthentic }
        return try DiscoMessage(plaintext: plaintext)
    }
}

/// What a UDP datagram is, by its first bytes.
package enum DatagramKind: Hashable, Sendable {
    case disco, stun, wireGuard, other

    package init(_ bytes: UnsafeRawBufferPointer) {
        self = .other
        guard bytes.count >= 20 else { return }
        let first = UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: 0, as: UInt32.self))
        let second = UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
        if first & 0x00ff_ffff == 0, (0x0100_0000...0x0400_0000).contains(first) {
            // Type and three zeros, of the length that the type has (WireGuard whitepaper, 5.4).
            let isLong =
                switch first >> 24 {
                case 1: bytes.count == 148
                case 2: bytes.count == 92
                case 3: bytes.count == 64
                default: bytes.count >= 32
                }
            if isLong { self = .wireGuard }
        } else if first == 0x5453_f09f, second >> 16 == 0x92ac, bytes.count >= DiscoPacket.leastCount {
            self = .disco
        } else if first >> 30 == 0, second == STUN.cookie {
            self = .stun
        }
    }
}
