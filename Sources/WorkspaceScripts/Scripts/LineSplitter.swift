/// Cuts what a script writes into lines for its log (docs/contracts/control-plane.md#scripts): `\r\n` is an end
/// like `\n`, invalid UTF-8 and NUL become U+FFFD, a line that is too long comes in pieces.
package struct LineSplitter: Sendable {
    private let limit: Int
    private var partial: [UInt8] = []
    /// Pieces of this line went out already.
    private var hasPieces = false

    /// - Parameter limit: bytes of one piece before repair, at least 8.
    package init(limit: Int = ScriptLimits.logLineBytes) { self.limit = max(limit, 8) }

    /// The lines that are complete now.
    package mutating func feed(_ bytes: some Collection<UInt8>) -> [String] {
        var lines: [String] = []
        var rest = bytes[...]
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            append(rest[..<end], to: &lines)
            rest = rest[rest.index(after: end)...]
            if partial.last == UInt8(ascii: "\r") { partial.removeLast() }
            // A line that ended with its last piece needs no empty one.
            if !partial.isEmpty || !hasPieces { lines.append(Self.text(partial[...])) }
            hasPieces = false
            partial.removeAll(keepingCapacity: true)
        }
        append(rest, to: &lines)
        return lines
    }

    /// What came after the last end of a line; the input is over.
    package mutating func finish() -> String? {
        guard !partial.isEmpty else { return nil }
        defer { partial = [] }
        return Self.text(partial[...])
    }

    private mutating func append(_ bytes: some Collection<UInt8>, to lines: inout [String]) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let taken = rest.prefix(limit - partial.count)
            partial.append(contentsOf: taken)
            rest = rest[taken.endIndex...]
            // Only once more comes is a full piece known not to be the whole line, and its last bytes
            // not to be half of a character or of `\r\n`.
            guard partial.count == limit, !rest.isEmpty else { continue }
            let end = Self.wholePrefix(partial)
            lines.append(Self.text(partial[..<end]))
            partial.removeFirst(end)
            hasPieces = true
        }
    }

    /// Where to cut so that no character is split and no `\r` is parted from a `\n` to come.
    private static func wholePrefix(_ bytes: [UInt8]) -> Int {
        if bytes.last == UInt8(ascii: "\r") { return bytes.count - 1 }
        for back in 1...3 where back < bytes.count {
            let byte = bytes[bytes.count - back]
            if byte & 0xc0 == 0x80 { continue }
            let length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
            return length > back ? bytes.count - back : bytes.count
        }
        return bytes.count
    }

    /// Valid text without NUL, which the control plane's database does not take.
    static func text(_ bytes: ArraySlice<UInt8>) -> String {
        guard bytes.contains(0) else { return String(decoding: bytes, as: UTF8.self) }
        var text = ""
        for (index, part) in bytes.split(separator: 0, omittingEmptySubsequences: false).enumerated() {
            if index > 0 { text.unicodeScalars.append("\u{fffd}") }
            text += String(decoding: part, as: UTF8.self)
        }
        return text
    }
}
