/// One line of a `.gitignore` file, as gitignore(5) has it. Bytes are compared, not characters.
struct IgnoreRule: Sendable {
    enum Test: Sendable {
        /// The name at any depth.
        case name([UInt8])
        /// How names end at any depth.
        case suffix([UInt8])
        /// A pattern for names at any depth.
        case namePattern(GlobAutomaton)
        /// The path from the file's directory on: how it begins, and a pattern for the rest if there is one.
        case path([UInt8], GlobAutomaton?)
    }

    /// Bytes of a line with special characters. Longer ones match nothing.
    static let maximumPatternBytes = 1_024

    let test: Test
    /// How each name that a pattern matches ends: quicker to look at than the pattern.
    private let ending: [UInt8]
    /// Whether it takes back what an earlier rule says.
    let isNegation: Bool
    let directoriesOnly: Bool

    /// - Parameter line: without the line's ending.
    /// - Returns: nil for a comment, and for a line that can match nothing.
    init?(_ line: some Collection<UInt8>) {
        var line = Self.trimmed(Array(line)[...])
        guard line.first != UInt8(ascii: "#") else { return nil }
        isNegation = line.first == UInt8(ascii: "!")
        if isNegation { line = line.dropFirst() }
        directoriesOnly = line.last == UInt8(ascii: "/")
        if directoriesOnly { line = line.dropLast() }
        guard !line.isEmpty else { return nil }

        let hasSlash = line.contains(UInt8(ascii: "/"))
        if line.first == UInt8(ascii: "/") { line = line.dropFirst() }
        let plain = Array(line.prefix { !Self.isSpecial($0) })
        let rest = line.dropFirst(plain.count)
        ending = Array(line.reversed().prefix { !Self.isSpecial($0) && !"]/".utf8.contains($0) }.reversed())
        if rest.isEmpty {
            test = hasSlash ? .path(plain, nil) : .name(plain)
        } else if !hasSlash, line.first == UInt8(ascii: "*"), !line.dropFirst().contains(where: Self.isSpecial) {
            test = .suffix(Array(line.dropFirst()))
        } else {
            guard line.count <= Self.maximumPatternBytes, let nodes = Self.parse(GlobUnit.bytes(hasSlash ? rest : line))
            else { return nil }
            let automaton = GlobAutomaton(nodes, byCharacter: false)
            test = hasSlash ? .path(plain, automaton) : .namePattern(automaton)
        }
    }

    /// How many places of patterns it keeps in memory.
    var places: Int {
        switch test {
        case .namePattern(let automaton), .path(_, .some(let automaton)): automaton.count
        case .name, .suffix, .path(_, nil): 0
        }
    }

    /// - Parameters:
    ///   - path: from the rule file's directory on.
    ///   - name: its last element.
    func matches(_ path: UnsafeRawBufferPointer, _ name: UnsafeRawBufferPointer, isDirectory: Bool) -> Bool {
        guard isDirectory || !directoriesOnly else { return false }
        switch test {
        case .name(let own): return equal(name, own)
        case .suffix(let own): return ends(name, own)
        case .namePattern(let automaton):
            return ends(name, ending) && automaton.isMatch(automaton.advance(automaton.start, name))
        case .path(let prefix, let automaton):
            guard let automaton else { return equal(path, prefix) }
            guard ends(name, ending), path.count >= prefix.count,
                equal(.init(rebasing: path.prefix(prefix.count)), prefix)
            else { return false }
            let rest = UnsafeRawBufferPointer(rebasing: path.dropFirst(prefix.count))
            return automaton.isMatch(automaton.advance(automaton.start, rest))
        }
    }

    // MARK: - Reading

    private static func isSpecial(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: "*") || byte == UInt8(ascii: "?") || byte == UInt8(ascii: "[")
            || byte == UInt8(ascii: "\\")
    }

    /// Without blanks at the end, except one behind a backslash.
    private static func trimmed(_ line: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        var end = line.startIndex
        var index = line.startIndex
        while index < line.endIndex {
            if line[index] == UInt8(ascii: "\\") {
                index = min(index + 2, line.endIndex)
                end = index
            } else {
                index += 1
                if line[index - 1] != UInt8(ascii: " ") { end = index }
            }
        }
        return line[..<end]
    }

    /// - Returns: nil when nothing can match: an unclosed class, a backslash at the end.
    private static func parse(_ units: [GlobUnit]) -> [GlobAutomaton.Node]? {
        var nodes: [GlobAutomaton.Node] = []
        var index = 0
        while index < units.count {
            let unit = units[index]
            index += 1
            switch unit {
            case "?": nodes.append(.step(.any))
            case "[":
                guard let units = try? GlobClass(units, &index, takesEmptyRanges: true) else { return nil }
                nodes.append(.step(.oneOf(units)))
            case "\\":
                guard index < units.count else { return nil }
                nodes.append(.step(.unit(units[index])))
                index += 1
            case "*":
                // Two or more that are an element of their own stand for any number of elements. What is before
                // the first special character counts as an element of its own, too; git has it so.
                let begins = index == 1 || units[index - 2] == "/"
                let first = index
                while index < units.count, units[index] == "*" { index += 1 }
                let next = units[index...].prefix(2)
                if index == first || !begins {
                    nodes.append(.repeated(.any))
                } else if next.first == "/" {
                    nodes.append(.either([[], [.repeated(.anything), .step(.unit("/"))]]))
                    index += 1
                } else {
                    nodes.append(.repeated(next.isEmpty || next == ["\\", "/"] ? .anything : .any))
                }
            default: nodes.append(.step(.unit(unit)))
            }
        }
        return nodes
    }
}

/// Whether a name ends with the bytes.
@inline(__always)
private func ends(_ name: UnsafeRawBufferPointer, _ ending: [UInt8]) -> Bool {
    name.count >= ending.count && equal(.init(rebasing: name.suffix(ending.count)), ending)
}

/// Whether the bytes are the same.
@inline(__always)
private func equal(_ a: UnsafeRawBufferPointer, _ b: [UInt8]) -> Bool {
    a.count == b.count && b.withUnsafeBytes { b in a.elementsEqual(b) }
}
