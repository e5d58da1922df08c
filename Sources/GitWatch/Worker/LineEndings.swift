/// Which line ends a file has once git stores it (docs/contracts/git-watch.md#line-endings).
enum LineEndings {
    /// What happens to the bytes of the work tree.
    enum Action: Sendable, Equatable {
        /// They are stored as they are.
        case binary
        /// CRLF becomes LF.
        case text
        /// Likewise where the content is text, unless the index has CRLF in it already.
        case auto
    }

    /// The state of an attribute for a path (gitattributes(5)).
    enum Attribute: Sendable, Equatable {
        case unspecified, set, unset
        case value(String)
    }

    /// - Parameter autocrlf: `core.autocrlf` is `true` or `input`.
    static func action(text: Attribute, crlf: Attribute, eol: Attribute, autocrlf: Bool) -> Action {
        let named = named(text) ?? named(crlf)
        if named == .binary { return .binary }
        if eol == .value("lf") || eol == .value("crlf") { return named == .auto ? .auto : .text }
        return named ?? (autocrlf ? .auto : .binary)
    }

    private static func named(_ attribute: Attribute) -> Action? {
        switch attribute {
        case .set, .value("input"): .text
        case .unset: .binary
        case .value("auto"): .auto
        case .unspecified, .value: nil
        }
    }

    /// The bytes as git would store them.
    /// - Parameter indexContent: what the index has of the file; nil where it has nothing. Asked only where it decides.
    static func normalized(
        _ bytes: [UInt8], _ action: Action, indexContent: () throws -> [UInt8]?
    ) rethrows -> [UInt8] {
        if action == .binary || !bytes.contains(cr) { return bytes }
        let content = Content(bytes)
        guard content.hasCRLF else { return bytes }
        if action == .auto {
            guard content.isText else { return bytes }
            if let stored = try indexContent().map(Content.init), stored.isText, stored.hasCRLF { return bytes }
        }
        var result: [UInt8] = []
        result.reserveCapacity(bytes.count)
        for (index, byte) in bytes.enumerated() {
            if byte == cr, index + 1 < bytes.count, bytes[index + 1] == lf { continue }
            result.append(byte)
        }
        return result
    }

    private static let (lf, cr) = (UInt8(ascii: "\n"), UInt8(ascii: "\r"))

    /// What tells text from other content.
    private struct Content {
        private(set) var hasCRLF = false
        private(set) var isText = true

        init(_ bytes: [UInt8]) {
            var (printable, unprintable) = (0, 0)
            var hasLoneCR = false
            var hasNUL = false
            for (index, byte) in bytes.enumerated() {
                switch byte {
                case lf: break
                case cr:
                    if index + 1 < bytes.count, bytes[index + 1] == lf { hasCRLF = true } else { hasLoneCR = true }
                case 0: hasNUL = true
                // Backspace, tab, form feed and escape.
                case 8, 9, 12, 27: printable += 1
                // An end of file as DOS marked it.
                case 26 where index == bytes.count - 1: break
                case ..<32, 127: unprintable += 1
                default: printable += 1
                }
            }
            isText = !hasNUL && !hasLoneCR && unprintable <= printable / 128
        }
    }
}
