/// The text of one file's diff as git prints it with `--full-index` (diff.c). Hunks between two
/// contents come from elsewhere; everything around them is made here.
struct DiffText {
    /// One side of a file.
    struct Side {
        enum Content {
            case bytes([UInt8])
            /// Over ``GitWatchLimits/fileBytes``; never read as a whole.
            case tooLarge(Int)
        }
        /// As in a tree: 0o100644, 0o100755, 0o120000.
        var mode: UInt32
        /// Hexadecimal; nil when the content was not hashed.
        var id: String?
        var content: Content
    }

    /// The attribute `diff`.
    enum Kind { case automatic, text, binary }

    /// Appends what changed between two non-empty contents, up to the limit, and returns the size of all.
    typealias Differ = (_ old: [UInt8], _ new: [UInt8], _ into: inout BoundedBytes) throws -> Void

    /// Bytes that are counted beyond the limit but not kept.
    struct BoundedBytes {
        let limit: Int
        private(set) var bytes: [UInt8] = []
        private(set) var count = 0

        init(limit: Int) { self.limit = limit }

        mutating func append(_ more: some Collection<UInt8>) {
            count += more.count
            if count <= limit { bytes.append(contentsOf: more) } else { bytes = [] }
        }
    }

    private static let nullID = "0000000000000000000000000000000000000000"

    /// The diff of one file; nil when the sides are equal.
    static func file(_ path: GitPath, old: Side?, new: Side?, kind: Kind, differ: Differ) throws -> FileDiff? {
        if let old, let new, old.mode & 0o170000 != new.mode & 0o170000 {
            let deleted = try file(path, old: old, new: nil, kind: kind, differ: differ)
            let created = try file(path, old: nil, new: new, kind: kind, differ: differ)
            return (deleted ?? FileDiff([])) + (created ?? FileDiff([]))
        }
        let same = old?.id != nil && old?.id == new?.id
        if same, old?.mode == new?.mode { return nil }
        var head: [UInt8] = []
        func line(_ text: String) { head += Array(text.utf8) + [10] }
        head += Array("diff --git ".utf8) + gitQuoted("a/", path) + [32] + gitQuoted("b/", path) + [10]
        switch (old, new) {
        case (nil, let new?): line("new file mode \(octal(new.mode))")
        case (let old?, nil): line("deleted file mode \(octal(old.mode))")
        case (let old?, let new?) where old.mode != new.mode:
            line("old mode \(octal(old.mode))")
            line("new mode \(octal(new.mode))")
        default: break
        }
        if same { return FileDiff(head) }
        if let from = old == nil ? nullID : old?.id, let to = new == nil ? nullID : new?.id {
            let mode = old?.mode == new?.mode ? new.map { " \(octal($0.mode))" } ?? "" : ""
            line("index \(from)..\(to)\(mode)")
        }
        let oldBytes: [UInt8]
        let newBytes: [UInt8]
        switch (old?.content ?? .bytes([]), new?.content ?? .bytes([])) {
        case (.bytes(let old), .bytes(let new)): (oldBytes, newBytes) = (old, new)
        case (.tooLarge(let size), .bytes): return FileDiff(head + tooLarge(size))
        case (_, .tooLarge(let size)): return FileDiff(head + tooLarge(size))
        }
        let oldName = old == nil ? Array("/dev/null".utf8) : gitQuoted("a/", path)
        let newName = new == nil ? Array("/dev/null".utf8) : gitQuoted("b/", path)
        if kind == .binary || (kind == .automatic && (looksBinary(oldBytes) || looksBinary(newBytes))) {
            return FileDiff(
                head + Array("Binary files ".utf8) + oldName + Array(" and ".utf8) + newName
                    + Array(" differ\n".utf8))
        }
        var body = BoundedBytes(limit: GitWatchLimits.totalDiffBytes)
        if oldBytes.isEmpty || newBytes.isEmpty {
            appendWhole(oldBytes.isEmpty ? newBytes : oldBytes, added: oldBytes.isEmpty, &body)
        } else {
            try differ(oldBytes, newBytes, &body)
        }
        if body.count == 0 { return FileDiff(head) }
        func named(_ marker: String, _ name: [UInt8]) -> [UInt8] {
            Array(marker.utf8) + name + (name.contains(32) ? [9, 10] : [10])
        }
        return FileDiff(head: head, names: named("--- ", oldName) + named("+++ ", newName), hunks: body)
    }

    static func tooLarge(_ bytes: Int) -> [UInt8] {
        Array("File too large to diff. Size: \(size(bytes))\n".utf8)
    }

    static func tooLong(_ bytes: Int) -> [UInt8] {
        Array("File diff too large to show. Diff size: \(size(bytes))\n".utf8)
    }

    /// What stands for the whole diff of a repository that has too much of it.
    static func totalTooLong(_ bytes: Int) -> [UInt8] {
        Array("Total diff too large to show. Size: \(size(bytes)). Showing branch and remote only.\n".utf8)
    }

    static func leftOut(_ count: Int) -> [UInt8] {
        Array("\(count) more untracked \(count == 1 ? "file is" : "files are") not shown.\n".utf8)
    }

    /// `300 KiB`, `3.1 MiB`; rounded up, so that what is over a limit never reads as the limit.
    static func size(_ bytes: Int) -> String {
        if bytes < 1 << 20 { return "\((bytes + 1023) / 1024) KiB" }
        let tenths = (bytes * 10 + (1 << 20) - 1) >> 20
        return "\(tenths / 10).\(tenths % 10) MiB"
    }

    static func octal(_ mode: UInt32) -> String { String(mode, radix: 8) }

    /// A NUL in the first 8,000 bytes, as git decides.
    static func looksBinary(_ bytes: [UInt8]) -> Bool { bytes.prefix(8000).contains(0) }

    /// The one hunk of a file that was empty or becomes so.
    private static func appendWhole(_ bytes: [UInt8], added: Bool, _ out: inout BoundedBytes) {
        guard !bytes.isEmpty else { return }
        let ended = bytes[bytes.count - 1] == 10
        let lines = bytes.reduce(0) { $1 == 10 ? $0 + 1 : $0 } + (ended ? 0 : 1)
        let range = lines == 1 ? "1" : "1,\(lines)"
        out.append(Array((added ? "@@ -0,0 +\(range) @@\n" : "@@ -\(range) +0,0 @@\n").utf8))
        let size = bytes.count + lines + (ended ? 0 : 1 + noNewline.count)
        var text: [UInt8] = []
        if out.count + size <= out.limit {
            text.reserveCapacity(size)
            let sign = UInt8(ascii: added ? "+" : "-")
            var atStart = true
            for byte in bytes {
                if atStart { text.append(sign) }
                text.append(byte)
                atStart = byte == 10
            }
            if !ended { text += [10] + noNewline }
            out.append(text)
        } else {
            out.append(repeatElement(0, count: size))
        }
    }

    private static let noNewline = Array("\\ No newline at end of file\n".utf8)
}
