/// A pattern for paths: `*` (within one element), `**` as a whole element (any number of elements), `?`, `[a-z]`,
/// `[!a-z]`, `{a,b}` and `\` before a character that means itself. Takes time in proportion to pattern × path at most.
struct GlobPattern: Sendable {
    /// Bytes of a pattern.
    static let maximumBytes = 1_024
    /// How deep `{…}` may be nested.
    static let maximumNesting = 8

    /// Where in the pattern one is after some elements of a path.
    struct Place: Sendable {
        fileprivate var places: GlobAutomaton.Places
    }

    private let automaton: GlobAutomaton
    /// Whether it is `**` alone.
    private let isEverything: Bool
    /// With what each match's last element ends.
    private let suffix: [UInt8]
    /// The directory that all matches lie in, as far as the pattern names it without special characters: `/a/b` of
    /// `/a/b/c*`, `/` of `/*`, empty of `*.c`. Of a pattern without special characters, the directory of what it names.
    let directory: [UInt8]
    /// What ``directory`` leaves of the pattern, without the slash between them: `c*` of `/a/b/c*`.
    let rest: [UInt8]
    /// Whether there is any special character in the pattern.
    let isLiteral: Bool

    /// - Throws: ``FilesError`` `.invalid`, `syntax error in pattern`: an unclosed or unopened bracket or brace, a
    ///   range that ends before it begins, an unknown `[:name:]`, a backslash at the end; another text for a pattern
    ///   that is too long.
    init(_ text: String) throws(FilesError) { try self.init(PathText.bytes(text)) }

    init(_ bytes: [UInt8]) throws(FilesError) {
        guard bytes.count <= Self.maximumBytes else {
            throw FilesError(
                .invalid, "pattern has \(bytes.count) bytes; the limit is \(Self.maximumBytes)")
        }
        var parser = GlobParser(GlobUnit.characters(bytes))
        let nodes = try parser.parse()
        automaton = GlobAutomaton(nodes, byCharacter: true)
        isLiteral = !bytes.contains(where: Self.isSpecial)
        suffix = Self.suffix(nodes)
        if case .repeated(.anything) = nodes.last { isEverything = nodes.count == 1 } else { isEverything = false }
        let special = bytes.firstIndex(where: Self.isSpecial) ?? bytes.endIndex
        guard let slash = bytes[..<special].lastIndex(of: UInt8(ascii: "/")) else {
            (directory, rest) = ([], bytes)
            return
        }
        directory = slash == 0 ? [UInt8(ascii: "/")] : Array(bytes[..<slash])
        rest = Array(bytes[(slash + 1)...])
    }

    /// Whether the whole path matches.
    func matches(_ path: UnsafeRawBufferPointer) -> Bool { matches(path, in: start) }

    func matches(_ path: [UInt8]) -> Bool { path.withUnsafeBytes { matches($0) } }

    // MARK: - Element by element

    /// Where one is before the first element.
    var start: Place { Place(places: automaton.start) }

    /// Whether a path that ends with this element (or these) matches.
    func matches(_ name: UnsafeRawBufferPointer, in place: Place) -> Bool {
        if isEverything { return true }
        return name.suffix(suffix.count).elementsEqual(suffix)
            && automaton.isMatch(automaton.advance(place.places, name))
    }

    /// Where one is in the directory of this name (or relative path).
    /// - Returns: nil when nothing in it, however deep, can match.
    func entering(_ name: UnsafeRawBufferPointer, in place: Place) -> Place? {
        let inside = automaton.advance(automaton.advance(place.places, name), "/")
        return automaton.canGoOn(inside) ? Place(places: inside) : nil
    }

    private static func isSpecial(_ byte: UInt8) -> Bool { "*?[]{}\\".utf8.contains(byte) }

    /// The text behind the last slash and all special characters.
    private static func suffix(_ nodes: [GlobAutomaton.Node]) -> [UInt8] {
        var suffix: [UInt8] = []
        for node in nodes.reversed() {
            guard case .step(.unit(let unit)) = node, unit != "/", unit.value < 0x80 else { break }
            suffix.append(UInt8(unit.value))
        }
        return suffix.reversed()
    }
}
