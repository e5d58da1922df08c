import CPlatform
import Glibc

/// Looks for bytes with the C library's fast functions.
package enum ByteScan {
    /// The index of the first such byte in the range.
    package static func first(_ byte: UInt8, in bytes: [UInt8], _ range: Range<Int>) -> Int? {
        bytes.withUnsafeBytes { area in
            let part = UnsafeRawBufferPointer(rebasing: area[range])
            guard let base = part.baseAddress, let found = memchr(base, CInt(byte), part.count) else { return nil }
            return range.lowerBound + (UnsafeRawPointer(found) - base)
        }
    }

    /// The index of the last such byte in the range.
    package static func last(_ byte: UInt8, in bytes: [UInt8], _ range: Range<Int>) -> Int? {
        bytes.withUnsafeBytes { area in
            let part = UnsafeRawBufferPointer(rebasing: area[range])
            guard let base = part.baseAddress, let found = wa_find_last(base, part.count, byte) else { return nil }
            return range.lowerBound + (found - base)
        }
    }

    /// Where the needle, which is not empty, begins first at or behind an index.
    package static func first(_ needle: [UInt8], in bytes: [UInt8], from start: Int) -> Int? {
        bytes.withUnsafeBytes { area in
            needle.withUnsafeBytes { needle in
                let part = UnsafeRawBufferPointer(rebasing: area[min(start, area.count)...])
                guard let base = part.baseAddress, let wanted = needle.baseAddress,
                    let found = wa_find(base, part.count, wanted, needle.count)
                else { return nil }
                return start + (found - base)
            }
        }
    }

    /// How many such bytes there are in the range.
    package static func count(_ byte: UInt8, in bytes: [UInt8], _ range: Range<Int>) -> Int {
        bytes.withUnsafeBufferPointer { area in
            let part = UnsafeBufferPointer(rebasing: area[range])
            return part.baseAddress.map { wa_count($0, part.count, byte) } ?? 0
        }
    }

    /// The index behind the end of the line that begins at an index: behind its newline, or the end of the bytes.
    package static func lineEnd(in bytes: [UInt8], from start: Int) -> Int {
        first(UInt8(ascii: "\n"), in: bytes, start..<bytes.count).map { $0 + 1 } ?? bytes.count
    }

    /// As ``lineEnd(in:from:)`` of an array.
    package static func lineEnd(in bytes: UnsafeBufferPointer<UInt8>, from start: Int) -> Int {
        guard let base = bytes.baseAddress, start < bytes.count,
            let found = memchr(base + start, CInt(UInt8(ascii: "\n")), bytes.count - start)
        else { return bytes.count }
        return UnsafeRawPointer(found) - UnsafeRawPointer(base) + 1
    }

    /// How many lines there are; what is behind the last newline is one if it isn't empty.
    package static func lines(in bytes: [UInt8], _ range: Range<Int>) -> Int {
        let count = count(UInt8(ascii: "\n"), in: bytes, range)
        return range.isEmpty || bytes[range.upperBound - 1] == UInt8(ascii: "\n") ? count : count + 1
    }

    /// With how many bytes both begin.
    package static func equalAtStart(_ a: [UInt8], _ b: [UInt8]) -> Int {
        let limit = min(a.count, b.count)
        return equal(a, b, limit, block: { ($0, $0) }, byte: { ($0, $0) })
    }

    /// With how many bytes both end, at most `limit`, which is no more than they have.
    package static func equalAtEnd(_ a: [UInt8], _ b: [UInt8], limit: Int) -> Int {
        equal(
            a, b, limit, block: { (a.count - $0 - blockBytes, b.count - $0 - blockBytes) },
            byte: { (a.count - 1 - $0, b.count - 1 - $0) })
    }

    private static let blockBytes = 4_096

    /// How many bytes are equal, first by blocks, then one by one; the closures tell where the next begin.
    private static func equal(
        _ a: [UInt8], _ b: [UInt8], _ limit: Int, block: (Int) -> (Int, Int), byte: (Int) -> (Int, Int)
    ) -> Int {
        a.withUnsafeBytes { aBytes in
            b.withUnsafeBytes { bBytes in
                guard let aBase = aBytes.baseAddress, let bBase = bBytes.baseAddress else { return 0 }
                var count = 0
                while count + blockBytes <= limit {
                    let (first, second) = block(count)
                    guard memcmp(aBase + first, bBase + second, blockBytes) == 0 else { break }
                    count += blockBytes
                }
                while count < limit {
                    let (first, second) = byte(count)
                    guard aBytes[first] == bBytes[second] else { break }
                    count += 1
                }
                return count
            }
        }
    }
}
