import IPAddresses

/// The protocols that the stack knows, by their next header number.
package enum InnerProtocol: UInt8, Sendable, CaseIterable {
    case tcp = 6
    case udp = 17
    case icmp = 58
    /// What clients ping with before they dial (docs/contracts/tailnet.md#ip).
    case tsmp = 99

    /// As statistics name it.
    package var name: String {
        switch self {
        case .tcp: "TCP"
        case .udp: "UDP"
        case .icmp: "ICMPv6"
        case .tsmp: "TSMP"
        }
    }
}

/// A received IPv6 packet (RFC 8200), as a view of the driver's memory.
struct IPv6Packet {
    static let headerBytes = 40
    /// The inner MTU (docs/contracts/tailnet.md#ip).
    static let mostBytes = 1_280
    static let hopLimit: UInt8 = 64
    /// The next header that says that a fragment header follows (RFC 8200, 4.5).
    static let fragmentHeader: UInt8 = 44

    var source: IPAddress
    var destination: IPAddress
    var nextHeader: UInt8
    var payload: UnsafeRawBufferPointer

    /// nil unless this is a whole packet of version 6. Bytes after it, such as padding, do not matter.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count >= Self.headerBytes, bytes[0] >> 4 == 6 else { return nil }
        let count = Int(bytes.number(at: 4, as: UInt16.self))
        guard count <= bytes.count - Self.headerBytes else { return nil }
        source = IPAddress(high: bytes.number(at: 8), low: bytes.number(at: 16))
        destination = IPAddress(high: bytes.number(at: 24), low: bytes.number(at: 32))
        nextHeader = bytes[6]
        payload = UnsafeRawBufferPointer(rebasing: bytes[Self.headerBytes..<Self.headerBytes + count])
    }

    /// Writes a header to the first 40 bytes.
    /// - Parameter count: bytes that follow the header.
    static func writeHeader(
        into memory: UnsafeMutableRawBufferPointer, from source: IPAddress, to destination: IPAddress,
        nextHeader: InnerProtocol, count: Int, flowLabel: UInt32 = 0
    ) {
        memory.store(6 << 28 | flowLabel, at: 0)
        memory.store(UInt16(truncatingIfNeeded: count), at: 4)
        memory.store(nextHeader.rawValue, at: 6)
        memory.store(hopLimit, at: 7)
        memory.store(source.high, at: 8)
        memory.store(source.low, at: 16)
        memory.store(destination.high, at: 24)
        memory.store(destination.low, at: 32)
    }
}

extension UnsafeRawBufferPointer {
    /// A number in network byte order; the caller has checked that it lies inside.
    func number<T: FixedWidthInteger & BitwiseCopyable>(at offset: Int, as type: T.Type = T.self) -> T {
        T(bigEndian: loadUnaligned(fromByteOffset: offset, as: T.self))
    }
}

extension UnsafeMutableRawBufferPointer {
    /// Stores a number in network byte order; the caller has checked that it fits.
    func store<T: FixedWidthInteger & BitwiseCopyable>(_ number: T, at offset: Int) {
        storeBytes(of: number.bigEndian, toByteOffset: offset, as: T.self)
    }

    /// Stores the checksum of what follows the IPv6 header.
    /// - Parameter offset: where the checksum's field, which must be zero, lies behind the IPv6 header.
    func storeChecksum(
        at offset: Int, from source: IPAddress, to destination: IPAddress, nextHeader: InnerProtocol, count: Int
    ) {
        var sum = Checksum(from: source, to: destination, nextHeader: nextHeader.rawValue, count: count)
        let start = IPv6Packet.headerBytes
        sum.add(UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(self)[start..<start + count]))
        // UDP: 0 means none, and is not allowed (RFC 8200, 8.1).
        let value = nextHeader == .udp && sum.stored == 0 ? 0xffff : sum.stored
        storeBytes(of: value, toByteOffset: start + offset, as: UInt16.self)
    }
}
