/// Writes tar archives: POSIX ustar headers, with an extended header (pax) before them for what does not fit. Names
/// are bytes and stay as they are.
enum TarWriter {
    /// What comes before the entry's content; ``TarBlock/padding(of:)`` bytes follow the content, and
    /// ``TarBlock/end`` the last entry.
    static func header(_ entry: TarEntry) -> [UInt8] {
        var name = entry.name
        if entry.kind == .directory, name.last != UInt8(ascii: "/") { name.append(UInt8(ascii: "/")) }
        let size = entry.kind == .file ? entry.size : 0
        var extended = Extended()
        let place = split(name)
        if place == nil { extended.add("path", name) }
        if entry.target.count > TarBlock.target.count { extended.add("linkpath", entry.target) }
        func number(_ key: String, _ value: Int, _ field: Range<Int>) -> [UInt8] {
            if let octal = TarNumber.octal(value, width: field.count) { return octal }
            extended.add(key, Array(String(value).utf8))
            return TarNumber.octal(0, width: field.count) ?? []
        }
        let user = number("uid", entry.user, TarBlock.user)
        let group = number("gid", entry.group, TarBlock.group)
        let bytes = number("size", size, TarBlock.size)
        let time = number("mtime", entry.seconds, TarBlock.time)
        let own = block(
            entry.kind.rawValue, place ?? (Array(name.suffix(TarBlock.name.count)), []), entry.target, entry.mode,
            user, group, bytes, time)
        return extended.header + own
    }

    private struct Extended {
        private var records: [UInt8] = []

        mutating func add(_ key: String, _ value: [UInt8]) {
            // Values are UTF-8 unless this says otherwise.
            if String(validating: value, as: UTF8.self) == nil {
                records += PaxRecords.record("hdrcharset", Array("BINARY".utf8))
            }
            records += PaxRecords.record(key, value)
        }

        var header: [UInt8] {
            guard !records.isEmpty else { return [] }
            let zero = TarNumber.octal(0, width: TarBlock.user.count) ?? []
            let head = TarWriter.block(
                UInt8(ascii: "x"), (Array("././@PaxHeader".utf8), []), [], 0o644, zero, zero,
                TarNumber.octal(records.count, width: TarBlock.size.count) ?? [],
                TarNumber.octal(0, width: TarBlock.time.count) ?? [])
            return head + records + [UInt8](repeating: 0, count: TarBlock.padding(of: records.count))
        }
    }

    /// The name and the prefix of a ustar header; nil when the name does not fit.
    private static func split(_ name: [UInt8]) -> (name: [UInt8], prefix: [UInt8])? {
        if name.count <= TarBlock.name.count { return (name, []) }
        // The slash between the two is not stored. One at the end is the directory's own.
        let earliest = name.count - 1 - TarBlock.name.count
        let latest = min(TarBlock.prefix.count, name.count - 2)
        guard earliest <= latest, earliest >= 0,
            let slash = name[max(1, earliest)...max(1, latest)].firstIndex(of: UInt8(ascii: "/"))
        else { return nil }
        return (Array(name[(slash + 1)...]), Array(name[..<slash]))
    }

    private static func block(
        _ type: UInt8, _ place: (name: [UInt8], prefix: [UInt8]), _ target: [UInt8], _ mode: UInt32,
        _ user: [UInt8], _ group: [UInt8], _ size: [UInt8], _ time: [UInt8]
    ) -> [UInt8] {
        var block = [UInt8](repeating: 0, count: TarBlock.bytes)
        func put(_ bytes: [UInt8], _ field: Range<Int>) {
            for (index, byte) in zip(field, bytes) { block[index] = byte }
        }
        put(place.name, TarBlock.name)
        put(TarNumber.octal(Int(mode & 0o7777), width: TarBlock.mode.count) ?? [], TarBlock.mode)
        put(user, TarBlock.user)
        put(group, TarBlock.group)
        put(size, TarBlock.size)
        put(time, TarBlock.time)
        block[TarBlock.type] = type
        put(target, TarBlock.target)
        put(Array("ustar".utf8) + [0] + Array("00".utf8), TarBlock.magic.lowerBound..<TarBlock.magic.upperBound + 2)
        put(place.prefix, TarBlock.prefix)
        let sum = TarNumber.octal(TarBlock.sums(block[...]).unsigned, width: 7) ?? []
        put(sum + [UInt8(ascii: " ")], TarBlock.checksum)
        return block
    }
}
