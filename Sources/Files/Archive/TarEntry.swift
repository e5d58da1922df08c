/// One member of a tar archive: its header. The content follows.
struct TarEntry: Sendable, Equatable {
    /// By the type flags of POSIX.
    enum Kind: UInt8, Sendable {
        case file = 0x30
        case hardLink = 0x31
        case symbolicLink = 0x32
        case characterDevice = 0x33
        case blockDevice = 0x34
        case directory = 0x35
        case fifo = 0x36
    }

    var kind: Kind
    /// As it is in the archive; that of a directory ends with a slash when it is written.
    var name: [UInt8]
    /// What a link leads to; empty for the rest.
    var target: [UInt8] = []
    /// Bytes of content.
    var size = 0
    /// Permissions and set-id bits.
    var mode: UInt32 = 0o644
    /// When it was modified: seconds since 1970, and nanoseconds from 0 to 999,999,999 that are read, but not written.
    var seconds = 0
    var nanoseconds = 0
    /// Written, but not read.
    var user = 0
    var group = 0
}

/// The blocks that a tar archive is made of.
enum TarBlock {
    static let bytes = 512
    /// What ends an archive.
    static let end = [UInt8](repeating: 0, count: 2 * bytes)

    /// Bytes that fill the last block of a content.
    static func padding(of size: Int) -> Int { (bytes - size % bytes) % bytes }

    /// Where a header's fields are.
    static let name = 0..<100
    static let mode = 100..<108
    static let user = 108..<116
    static let group = 116..<124
    static let size = 124..<136
    static let time = 136..<148
    static let checksum = 148..<156
    static let type = 156
    static let target = 157..<257
    static let magic = 257..<263
    static let prefix = 345..<500
    /// The prefix of the program star, which has more fields behind it.
    static let starPrefix = 345..<476
    static let starMagic = 508..<512

    /// The sum of a header's bytes, the checksum's own counted as blanks. Some old programs took bytes for signed.
    static func sums(_ block: ArraySlice<UInt8>) -> (unsigned: Int, signed: Int) {
        var sums = (unsigned: 0, signed: 0)
        for (index, byte) in block.enumerated() {
            let byte = checksum.contains(index) ? UInt8(ascii: " ") : byte
            sums.unsigned += Int(byte)
            sums.signed += Int(Int8(bitPattern: byte))
        }
        return sums
    }
}

/// The records of an extended header (pax): `LENGTH KEY=VALUE\n`, the length that of the whole record.
enum PaxRecords {
    static func record(_ key: String, _ value: some Collection<UInt8>) -> [UInt8] {
        let rest = [UInt8(ascii: " ")] + Array(key.utf8) + [UInt8(ascii: "=")] + value + [UInt8(ascii: "\n")]
        var length = rest.count
        while String(length).utf8.count + rest.count != length { length = String(length).utf8.count + rest.count }
        return Array(String(length).utf8) + rest
    }

    /// - Returns: nil when the bytes are no such records.
    static func parse(_ bytes: ArraySlice<UInt8>) -> [(key: String, value: [UInt8])]? {
        var records: [(key: String, value: [UInt8])] = []
        var rest = bytes
        while !rest.isEmpty {
            guard let blank = rest.prefix(20).firstIndex(of: UInt8(ascii: " ")),
                let length = Int(String(decoding: rest[..<blank], as: UTF8.self)),
                length <= rest.count, length > rest.distance(from: rest.startIndex, to: blank) + 2
            else { return nil }
            let record = rest[(blank + 1)..<(rest.startIndex + length)]
            guard record.last == UInt8(ascii: "\n"), let equals = record.firstIndex(of: UInt8(ascii: "=")) else {
                return nil
            }
            records.append(
                (String(decoding: record[..<equals], as: UTF8.self), Array(record[(equals + 1)...].dropLast())))
            rest = rest.dropFirst(length)
        }
        return records
    }
}
