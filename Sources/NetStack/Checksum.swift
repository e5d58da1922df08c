import IPAddresses

/// The internet checksum (RFC 1071), summed in the machine's byte order 32 bytes at a time: the one's complement sum of
/// swapped words is the swapped sum.
struct Checksum: Sendable {
    private var sum: UInt64 = 0

    /// Starts with the pseudo-header of RFC 8200, 8.1.
    init(from source: IPAddress, to destination: IPAddress, nextHeader: UInt8, count: Int) {
        add(source)
        add(destination)
        sum &+= UInt64(UInt32(truncatingIfNeeded: count).bigEndian) &+ UInt64(UInt32(nextHeader).bigEndian)
    }

    private mutating func add(_ address: IPAddress) {
        add(address.high.bigEndian)
        add(address.low.bigEndian)
    }

    private mutating func add(_ word: UInt64) { sum &+= (word & 0xffff_ffff) &+ word >> 32 }

    /// Adds bytes that begin at an even place of what is summed. At most 4 GiB in all.
    mutating func add(_ bytes: UnsafeRawBufferPointer) {
        guard let base = bytes.baseAddress else { return }
        let count = bytes.count
        var offset = 0
        var low = SIMD4<UInt64>.zero
        var high = SIMD4<UInt64>.zero
        let mask = SIMD4<UInt64>(repeating: 0xffff_ffff)
        while offset &+ 32 <= count {
            let words = base.loadUnaligned(fromByteOffset: offset, as: SIMD4<UInt64>.self)
            low &+= words & mask
            high &+= words &>> 32
            offset &+= 32
        }
        sum &+= (low &+ high).wrappedSum()
        while offset &+ 8 <= count {
            add(base.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
            offset &+= 8
        }
        while offset &+ 2 <= count {
            sum &+= UInt64(base.loadUnaligned(fromByteOffset: offset, as: UInt16.self))
            offset &+= 2
        }
        if offset < count {
            let last = base.load(fromByteOffset: offset, as: UInt8.self)
            sum &+= UInt64((UInt16(last) << 8).bigEndian)
        }
    }

    /// What belongs into the checksum field, in the machine's byte order as it lies in memory. 0 when the sum is over
    /// bytes that hold a right checksum.
    var stored: UInt16 {
        var folded = (sum & 0xffff_ffff) &+ sum >> 32
        folded = (folded & 0xffff) &+ folded >> 16
        folded = (folded & 0xffff) &+ folded >> 16
        folded = (folded & 0xffff) &+ folded >> 16
        return ~UInt16(truncatingIfNeeded: folded)
    }
}
