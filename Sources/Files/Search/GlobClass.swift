/// What one `[…]` of a pattern takes: ranges of units (``GlobUnit``), as fnmatch(3) writes them.
struct GlobClass: Sendable {
    private var ranges: [ClosedRange<GlobUnit>] = []
    private var isNegated = false

    enum Failure: Error { case unclosed, emptyRange, unknownName }

    /// - Parameters:
    ///   - units: the pattern.
    ///   - index: behind the `[`; afterwards behind the `]`.
    ///   - takesEmptyRanges: `[b-a]` is its first character, as git has it.
    init(_ units: [GlobUnit], _ index: inout Int, takesEmptyRanges: Bool = false) throws(Failure) {
        var next = Units(units: units, index: index)
        if next.peek == "!" || next.peek == "^" {
            isNegated = true
            next.index += 1
        }
        var isFirst = true
        while true {
            guard let unit = next.take() else { throw .unclosed }
            // A bracket that comes first is one of the characters.
            if unit == "]", !isFirst { break }
            isFirst = false
            if unit == "[", next.peek == ":", let name = next.takeName() {
                guard let named = Self.named[name] else { throw .unknownName }
                ranges += named
                continue
            }
            let low = try next.literal(unit)
            guard next.peek == "-", let end = next.peek(1), end != "]" else {
                ranges.append(low...low)
                continue
            }
            next.index += 1
            guard let first = next.take() else { throw .unclosed }
            let high = try next.literal(first)
            guard low <= high || takesEmptyRanges else { throw .emptyRange }
            ranges.append(low...max(low, high))
        }
        index = next.index
    }

    func contains(_ unit: GlobUnit) -> Bool { ranges.contains { $0.contains(unit) } != isNegated }

    /// Reads the pattern unit by unit.
    private struct Units {
        var units: [GlobUnit]
        var index: Int

        var peek: GlobUnit? { peek(0) }

        func peek(_ distance: Int) -> GlobUnit? {
            index + distance < units.count ? units[index + distance] : nil
        }

        mutating func take() -> GlobUnit? {
            guard let unit = peek else { return nil }
            index += 1
            return unit
        }

        /// The unit, or what is behind it if it is a backslash.
        mutating func literal(_ unit: GlobUnit) throws(Failure) -> GlobUnit {
            guard unit == "\\" else { return unit }
            guard let escaped = take() else { throw .unclosed }
            return escaped
        }

        /// The name of `[:name:]`, from the first colon on; nil, and nothing taken, if it is none.
        mutating func takeName() -> String? {
            let begin = index + 1
            guard begin < units.count, let end = units[begin...].firstIndex(of: "]"), end > begin,
                units[end - 1] == ":"
            else { return nil }
            index = end + 1
            return String(String.UnicodeScalarView(units[begin..<(end - 1)].compactMap { Unicode.Scalar($0.value) }))
        }
    }

    /// The classes of POSIX, in ASCII.
    private static let named: [String: [ClosedRange<GlobUnit>]] = {
        let (digit, upper, lower): (ClosedRange<GlobUnit>, ClosedRange<GlobUnit>, ClosedRange<GlobUnit>) =
            ("0"..."9", "A"..."Z", "a"..."z")
        let blank: GlobUnit = " "
        return [
            "alnum": [digit, upper, lower], "alpha": [upper, lower], "blank": ["\t"..."\t", blank...blank],
            "cntrl": ["\0"..."\u{1F}", "\u{7F}"..."\u{7F}"], "digit": [digit], "graph": ["!"..."~"], "lower": [lower],
            "print": [blank..."~"], "punct": ["!"..."/", ":"..."@", "["..."`", "{"..."~"],
            "space": ["\t"..."\r", blank...blank], "upper": [upper], "xdigit": [digit, "A"..."F", "a"..."f"],
        ]
    }()
}
