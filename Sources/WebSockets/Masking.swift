import NIOCore

/// The masking key of a client's payload (RFC 6455 section 5.3), and the position in it.
///
/// Works on 64 bytes at a time, because every byte of the link passes through it.
struct Mask: Equatable {
    /// The next four bytes to use, the first in the lowest bits.
    private var key: UInt32

    /// - Parameter key: the four bytes as they stand in the header, the first in the highest bits.
    init(_ key: UInt32) { self.key = key.byteSwapped }

    private var wide: UInt64 { UInt64(key) << 32 | UInt64(key) }

    private mutating func use(_ count: Int) {
        let bits = UInt32(truncatingIfNeeded: count & 3) * 8
        if bits > 0 { key = key >> bits | key << (32 - bits) }
    }

    /// Appends `bytes`, masked or unmasked.
    mutating func append(_ bytes: ByteBuffer, to target: inout ByteBuffer) {
        let count = bytes.readableBytes
        target.writeWithUnsafeMutableBytes(minimumWritableBytes: count) { area in
            bytes.withUnsafeReadableBytes { copy($0, to: area) }
            return count
        }
    }

    /// Writes `source`, masked, to the start of `target`, which is at least as long and may be the
    /// same memory.
    mutating func copy(_ source: UnsafeRawBufferPointer, to target: UnsafeMutableRawBufferPointer) {
        let count = min(source.count, target.count)
        guard count > 0, let from = source.baseAddress, let to = target.baseAddress else { return }
        let word = wide.littleEndian
        let block = SIMD8<UInt64>(repeating: word)
        var at = 0
        while at &+ 64 <= count {
            let bytes = from.loadUnaligned(fromByteOffset: at, as: SIMD8<UInt64>.self)
            to.storeBytes(of: bytes ^ block, toByteOffset: at, as: SIMD8<UInt64>.self)
            at &+= 64
        }
        while at &+ 8 <= count {
            let bytes = from.loadUnaligned(fromByteOffset: at, as: UInt64.self)
            to.storeBytes(of: bytes ^ word, toByteOffset: at, as: UInt64.self)
            at &+= 8
        }
        while at < count {
            let byte = UInt8(truncatingIfNeeded: wide >> UInt64((at & 7) * 8))
            to.storeBytes(of: from.load(fromByteOffset: at, as: UInt8.self) ^ byte, toByteOffset: at, as: UInt8.self)
            at &+= 1
        }
        use(count)
    }
}
