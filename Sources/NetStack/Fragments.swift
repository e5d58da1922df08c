import IPAddresses

/// A packet that is too long for the path, on its way in fragments (RFC 8200, 4.5).
struct Fragments: Sendable {
    /// Of all but the last: what the path takes, in whole units of eight bytes.
    private static let mostBytes = (IPv6Packet.mostBytes - IPv6Packet.headerBytes - Reassembly.headerBytes) & ~7

    private let local: IPAddress
    private let remote: IPAddress
    private let nextHeader: InnerProtocol
    private let identification: UInt32
    /// What follows the IPv6 header.
    private let bytes: [UInt8]
    private var sent = 0

    /// - Parameter packet: a whole one, with its header.
    init(_ packet: UnsafeRawBufferPointer, _ nextHeader: InnerProtocol, identification: UInt32) {
        local = IPAddress(high: packet.number(at: 8), low: packet.number(at: 16))
        remote = IPAddress(high: packet.number(at: 24), low: packet.number(at: 32))
        (self.nextHeader, self.identification) = (nextHeader, identification)
        bytes = Array(packet[IPv6Packet.headerBytes...])
    }

    var isDone: Bool { sent == bytes.count }

    /// Writes the next fragment.
    mutating func next(into memory: UnsafeMutableRawBufferPointer) -> (count: Int, destination: IPAddress) {
        let count = min(bytes.count - sent, Self.mostBytes)
        let start = IPv6Packet.headerBytes
        IPv6Packet.writeHeader(
            into: memory, from: local, to: remote, nextHeader: nextHeader, count: Reassembly.headerBytes + count)
        memory.store(IPv6Packet.fragmentHeader, at: 6)
        memory.store(UInt16(nextHeader.rawValue) << 8, at: start)
        memory.store(UInt16(sent) | (sent + count < bytes.count ? 1 : 0), at: start + 2)
        memory.store(identification, at: start + 4)
        bytes[sent..<sent + count].withUnsafeBytes {
            UnsafeMutableRawBufferPointer(rebasing: memory[(start + Reassembly.headerBytes)...]).copyMemory(from: $0)
        }
        sent += count
        return (start + Reassembly.headerBytes + count, remote)
    }
}
