/// What git does to the line ends of a work tree file before it compares it (git's convert.c, the
/// direction "to git"). libgit2's own filter differs in places and aborts on empty files.
struct LineEndings: Equatable {
    enum Action: Equatable {
        /// Bytes are taken as they are.
        case binary
        /// CRLF becomes LF.
        case text
        /// As text when the content looks like text and the index holds no CRLF.
        case auto
    }

    /// The value of an attribute.
    enum Attribute: Equatable {
        case unspecified, set, unset
        case value(String)
    }

    /// What attributes and `core.autocrlf` make of a file.
    static func action(text: Attribute, crlf: Attribute, eol: Attribute, autocrlf: Bool) -> Action {
        var action: Action?
        var attribute = text
        if attribute == .unspecified { attribute = crlf }
        switch attribute {
        case .set, .value("input"): action = .text
        case .unset: action = .binary
        case .value("auto"): action = .auto
        default: break
        }
        if action != .binary, eol == .value("lf") || eol == .value("crlf") {
            action = action == .auto ? .auto : .text
        }
        return action ?? (autocrlf ? .auto : .binary)
    }

    /// Counts of gather_stats.
    private struct Statistics {
        var nul = 0, loneCR = 0, loneLF = 0, crlf = 0, printable = 0, other = 0

        init(_ bytes: some Collection<UInt8>) {
            var previousCR = false
            var last: UInt8 = 0
            for byte in bytes {
                if previousCR {
                    previousCR = false
                    if byte == 10 {
                        crlf += 1
                        last = byte
                        continue
                    }
                    loneCR += 1
                }
                last = byte
                switch byte {
                case 13: previousCR = true
                case 10: loneLF += 1
                case 127: other += 1
                case 8, 9, 27, 12: printable += 1
                case 0:
                    nul += 1
                    other += 1
                case ..<32: other += 1
                default: printable += 1
                }
            }
            if previousCR { loneCR += 1 }
            // A DOS end-of-file mark is not held against the file.
            if last == 26, other > 0 { other -= 1 }
        }

        var isBinary: Bool { loneCR > 0 || nul > 0 || printable >> 7 < other }
    }

    /// The bytes that git would store.
    /// - Parameter indexContent: the content in the index, asked for only when it matters.
    static func normalized(_ bytes: [UInt8], _ action: Action, indexContent: () throws -> [UInt8]?) rethrows -> [UInt8]
    {
        guard action != .binary, !bytes.isEmpty, bytes.contains(13) else { return bytes }
        let statistics = Statistics(bytes)
        guard statistics.crlf > 0 else { return bytes }
        if action == .auto {
            if statistics.isBinary { return bytes }
            if let stored = try indexContent(), hasCRLF(stored) { return bytes }
        }
        var out: [UInt8] = []
        out.reserveCapacity(bytes.count)
        for (offset, byte) in bytes.enumerated() {
            if byte == 13, offset + 1 < bytes.count, bytes[offset + 1] == 10 { continue }
            out.append(byte)
        }
        return out
    }

    private static func hasCRLF(_ bytes: [UInt8]) -> Bool {
        guard bytes.contains(13) else { return false }
        let statistics = Statistics(bytes)
        return !statistics.isBinary && statistics.crlf > 0
    }
}
