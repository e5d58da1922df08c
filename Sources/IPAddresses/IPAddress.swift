import Glibc

/// An IPv6 address; IPv4 ones are those of `::ffff:0:0/96`, as disco and sockets of both families have them.
package struct IPAddress: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// The first eight bytes, as a number in network byte order.
    package var high: UInt64
    package var low: UInt64

    package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    /// nil unless these are 16 bytes, or the 4 of an IPv4 address.
    package init?(_ bytes: some Collection<UInt8>) {
        func number(_ bytes: some Collection<UInt8>) -> UInt64 { bytes.reduce(0) { $0 << 8 | UInt64($1) } }
        switch bytes.count {
        case 16: self.init(high: number(bytes.prefix(8)), low: number(bytes.dropFirst(8)))
        case 4: self.init(v4: UInt32(truncatingIfNeeded: number(bytes)))
        default: return nil
        }
    }

    /// - Parameter v4: `a.b.c.d` as a number in network byte order.
    package init(v4: UInt32) { self.init(high: 0, low: 0xffff << 32 | UInt64(v4)) }

    /// `fd7a::1` or `127.0.0.1`; without a zone.
    package init?(_ text: String) {
        // A zero ends the text for inet_pton, and what stands behind it would be taken along.
        guard !text.utf8.contains(0) else { return nil }
        var v6 = in6_addr()
        var v4 = in_addr()
        if inet_pton(AF_INET, text, &v4) == 1 {
            self.init(v4: UInt32(bigEndian: v4.s_addr))
        } else if inet_pton(AF_INET6, text, &v6) == 1 {
            let bytes = withUnsafeBytes(of: v6) { Array($0) }
            self.init(bytes)
        } else {
            return nil
        }
    }

    package static let unspecified = IPAddress(high: 0, low: 0)

    package var bytes: [UInt8] {
        [high, low].flatMap { word in stride(from: 56, through: 0, by: -8).map { UInt8(truncatingIfNeeded: word >> $0) }
        }
    }

    /// The IPv4 address that this is, in network byte order.
    package var v4: UInt32? { high == 0 && low >> 32 == 0xffff ? UInt32(truncatingIfNeeded: low) : nil }

    package var isLoopback: Bool { v4.map { $0 >> 24 == 127 } ?? (high == 0 && low == 1) }
    package var isUnspecified: Bool { v4.map { $0 == 0 } ?? (high == 0 && low == 0) }
    package var isMulticast: Bool { v4.map { $0 >> 28 == 0xe } ?? (high >> 56 == 0xff) }
    /// fe80::/10 and 169.254.0.0/16.
    package var isLinkLocal: Bool { v4.map { $0 >> 16 == 0xa9fe } ?? (high >> 54 == 0x3fa) }
    /// Of a network that is not the internet: fc00::/7, 10.0.0.0/8, 172.16.0.0/12 and 192.168.0.0/16.
    package var isPrivate: Bool {
        v4.map { $0 >> 24 == 10 || $0 >> 20 == 0xac1 || $0 >> 16 == 0xc0a8 } ?? (high >> 57 == 0x7e)
    }

    package static func < (a: Self, b: Self) -> Bool { (a.high, a.low) < (b.high, b.low) }

    package var description: String {
        if let v4 { return [24, 16, 8, 0].map { "\(v4 >> $0 & 255)" }.joined(separator: ".") }
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        let bytes = bytes
        guard inet_ntop(AF_INET6, bytes, &text, socklen_t(text.count)) != nil else { return "::" }
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}

/// A network: an address and the number of its leading bits that count.
package struct IPPrefix: Hashable, Sendable, CustomStringConvertible {
    package let address: IPAddress
    /// 0 to 128; of an IPv4 network 96 more than is written.
    package let bits: Int

    /// Bits that do not count become zero. nil unless there are 0 to 128.
    package init?(_ address: IPAddress, bits: Int) {
        guard (0...128).contains(bits) else { return nil }
        self.bits = bits
        let mask = Self.mask(bits)
        self.address = IPAddress(high: address.high & mask.high, low: address.low & mask.low)
    }

    /// `fd7a::/48`, `10.0.0.0/8`, or an address alone.
    package init?(_ text: String) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let first = parts.first, let address = IPAddress(String(first)) else { return nil }
        let (offset, most) = address.v4 == nil || first.contains(":") ? (0, 128) : (96, 32)
        var bits = most
        if parts.count == 2 {
            guard let count = Int(parts[1]), (0...most).contains(count), parts[1].allSatisfy(\.isNumber) else {
                return nil
            }
            bits = count
        }
        self.init(address, bits: bits + offset)
    }

    package func contains(_ other: IPAddress) -> Bool {
        let mask = Self.mask(bits)
        return other.high & mask.high == address.high && other.low & mask.low == address.low
    }

    package var description: String {
        address.v4 != nil && bits >= 96 ? "\(address)/\(bits - 96)" : "\(address)/\(bits)"
    }

    private static func mask(_ bits: Int) -> (high: UInt64, low: UInt64) {
        // A shift by 64 or more gives 0 in Swift.
        (bits == 0 ? 0 : UInt64.max << max(0, 64 - bits), bits <= 64 ? 0 : UInt64.max << (128 - bits))
    }
}

/// An address and a port of UDP or TCP.
package struct Endpoint: Hashable, Sendable, CustomStringConvertible {
    package var address: IPAddress
    package var port: UInt16
    /// The number of the interface, for a link-local IPv6 address (RFC 4007); 0 for none.
    package var scope: UInt32

    package init(_ address: IPAddress, _ port: UInt16, scope: UInt32 = 0) {
        (self.address, self.port, self.scope) = (address, port, scope)
    }

    /// `1.2.3.4:80` or `[::1]:80`.
    package init?(_ text: String) {
        // Digits alone: a sign would be taken, too.
        guard let colon = text.lastIndex(of: ":"),
            text[text.index(after: colon)...].utf8.allSatisfy({ 0x30...0x39 ~= $0 }),
            let port = UInt16(text[text.index(after: colon)...])
        else {
            return nil
        }
        var host = text[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = host.dropFirst().dropLast()
            guard host.contains(":") else { return nil }
        } else if host.contains(":") {
            return nil
        }
        guard let address = IPAddress(String(host)) else { return nil }
        self.init(address, port)
    }

    package var description: String {
        if address.v4 != nil { return "\(address):\(port)" }
        return scope == 0 ? "[\(address)]:\(port)" : "[\(address)%\(scope)]:\(port)"
    }
}
