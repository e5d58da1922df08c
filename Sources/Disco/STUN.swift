import IPAddresses

/// The binding request of STUN and its answer (RFC 8489).
package enum STUN {
    package enum ReadError: Error, Hashable, Sendable, CustomStringConvertible {
        case notAResponse, malformed

        package var description: String {
            switch self {
            case .notAResponse: "STUN packet is not a response"
            case .malformed: "STUN response has malformed attributes"
            }
        }
    }

    static let cookie: UInt32 = 0x2112_a442
    static let headerCount = 20
    private static let request: UInt16 = 0x0001
    private static let success: UInt16 = 0x0101
    private static let mappedAddress: UInt16 = 0x0001
    private static let xorMappedAddress: UInt16 = 0x0020
    /// What servers sent before the attribute had its number.
    private static let oldXorMappedAddress: UInt16 = 0x8020
    private static let software: UInt16 = 0x8022
    private static let fingerprint: UInt16 = 0x8028
    private static let softwareName = Array("tailnode".utf8)

    // MARK: Requests

    /// A binding request. The control plane's server ignores one without this SOFTWARE and FINGERPRINT.
    package static func makeRequest(_ tx: TransactionID) -> [UInt8] {
        // The length counts the fingerprint already (RFC 8489, 14.7).
        let head = bigEndian(request) + bigEndian(UInt16(20)) + bigEndian(cookie) + tx.bytes
        let text = head + bigEndian(software) + bigEndian(UInt16(softwareName.count)) + softwareName
        return text + bigEndian(fingerprint) + bigEndian(UInt16(4)) + bigEndian(checksum(text[...]))
    }

    /// The answer of a server to a request of ours that came from `source`; nil for anything else.
    package static func answer(_ packet: [UInt8], from source: Endpoint) -> [UInt8]? {
        guard let (type, tx, attributes) = parse(packet), type == request, attributes.count == 2,
            attributes[0].type == software, attributes[0].value.elementsEqual(softwareName),
            attributes[1].type == fingerprint,
            attributes[1].value.elementsEqual(bigEndian(checksum(packet.dropLast(8))))
        else { return nil }
        let address = source.address.v4.map(bigEndian) ?? source.address.bytes
        let mask = bigEndian(cookie) + tx.bytes
        let value =
            [0, source.address.v4 == nil ? 2 : 1] + bigEndian(source.port ^ UInt16(truncatingIfNeeded: cookie >> 16))
            + zip(address, mask).map { $0 ^ $1 }
        return bigEndian(success) + bigEndian(UInt16(4 + value.count)) + bigEndian(cookie) + tx.bytes
            + bigEndian(xorMappedAddress) + bigEndian(UInt16(value.count)) + value
    }

    /// CRC-32 as in Ethernet, xor a constant (RFC 8489, 14.7).
    private static func checksum(_ bytes: ArraySlice<UInt8>) -> UInt32 {
        var crc = UInt32.max
        for byte in bytes {
            crc ^= UInt32(byte)
            for _ in 0..<8 { crc = crc & 1 == 1 ? crc >> 1 ^ 0xedb8_8320 : crc >> 1 }
        }
        return ~crc ^ 0x5354_554e
    }

    // MARK: Answers

    /// Where the server saw our request come from.
    package static func readResponse(_ packet: [UInt8]) throws(ReadError) -> (tx: TransactionID, address: Endpoint) {
        guard let kind = kind(packet), kind == success else { throw .notAResponse }
        guard let (_, tx, attributes) = parse(packet) else { throw .malformed }
        let mask = bigEndian(cookie) + tx.bytes
        for type in [xorMappedAddress, oldXorMappedAddress, mappedAddress] {
            guard let value = attributes.first(where: { $0.type == type })?.value else { continue }
            let isMasked = type != mappedAddress
            if let endpoint = endpoint(value, mask: isMasked ? mask : .init(repeating: 0, count: mask.count)) {
                return (tx, endpoint)
            }
        }
        throw .malformed
    }

    private static func endpoint(_ value: ArraySlice<UInt8>, mask: [UInt8]) -> Endpoint? {
        guard value.count >= 8, let family = value.dropFirst().first else { return nil }
        let port = zip(value.dropFirst(2).prefix(2), mask).reduce(UInt16(0)) { $0 << 8 | UInt16($1.0 ^ $1.1) }
        let count: Int
        switch family {
        case 1: count = 4
        case 2: count = 16
        default: return nil
        }
        guard value.count == 4 + count, let address = IPAddress(zip(value.dropFirst(4), mask).map { $0 ^ $1 }) else {
            return nil
        }
        return Endpoint(address, port)
    }

    private static func kind(_ packet: [UInt8]) -> UInt16? {
        guard packet.count >= headerCount, packet[4..<8].elementsEqual(bigEndian(cookie)) else { return nil }
        return UInt16(packet[0]) << 8 | UInt16(packet[1])
    }

    /// nil when it isn't STUN, or its attributes don't fit.
    private static func parse(_ packet: [UInt8]) -> (UInt16, TransactionID, [(type: UInt16, value: ArraySlice<UInt8>)])?
    {
        guard let kind = kind(packet), let tx = TransactionID(packet[8..<20]) else { return nil }
        let length = Int(packet[2]) << 8 | Int(packet[3])
        guard length.isMultiple(of: 4), packet.count >= headerCount + length else { return nil }
        var rest = packet[headerCount..<headerCount + length]
        var attributes: [(type: UInt16, value: ArraySlice<UInt8>)] = []
        while rest.count >= 4 {
            let head = Array(rest.prefix(4))
            let count = Int(head[2]) << 8 | Int(head[3])
            let padded = (count + 3) & ~3
            rest = rest.dropFirst(4)
            guard rest.count >= padded else { return nil }
            attributes.append((UInt16(head[0]) << 8 | UInt16(head[1]), rest.prefix(count)))
            rest = rest.dropFirst(padded)
        }
        return (kind, tx, attributes)
    }
}
