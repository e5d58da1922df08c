/// Writes a replacement over lines that matched without regard to blanks: what search and replacement have in common
/// stays as the file has it (docs/contracts/files.md#writing-a-match).
struct LineRewriter {
    private let search: TextLines
    private let replace: TextLines
    private let forced: LineEnding?
    /// How many lines at the beginning, and at the end, search and replacement have in common.
    private let prefix: Int
    private let suffix: Int
    /// What the sender indents by.
    private let unit: IndentUnit?

    /// - Parameter forced: the ending of all lines; nil for those that were sent.
    init(_ search: TextLines, _ replace: TextLines, forced: LineEnding?) {
        (self.search, self.replace, self.forced) = (search, replace, forced)
        let common = min(search.count, replace.count)
        func isEqual(_ a: Int, _ b: Int) -> Bool {
            Blanks.trimmed(search[a].middle).elementsEqual(Blanks.trimmed(replace[b].middle))
        }
        let prefix = (0..<common).first { !isEqual($0, $0) } ?? common
        let rest = common - prefix
        self.prefix = prefix
        suffix = (0..<rest).first { !isEqual(search.count - 1 - $0, replace.count - 1 - $0) } ?? rest
        var leads = IndentUnit.Finder()
        leads.add(search)
        leads.add(replace)
        unit = leads.unit
    }

    /// - Parameters:
    ///   - file: the lines that matched, as many as the search has.
    ///   - out: gets what takes their place.
    func rewrite(_ file: TextLines, into out: inout [UInt8]) {
        var finder = IndentUnit.Finder()
        if replace.count > search.count { finder.add(file) }
        for index in 0..<replace.count {
            let line = replace[index]
            let partner = partner(of: index)
            if !line.hasText {
                out += line.lead
            } else if let partner {
                let (searched, found) = (search[partner], file[partner])
                out += searched.lead == line.lead ? found.lead : line.lead
                out += line.middle
                out += searched.trail == line.trail ? found.trail : line.trail
            } else {
                out += lead(of: line, reference: reference(of: index), file, finder.unit)
                out += line.middle
                out += line.trail
            }
            ending(of: index, partner, file).append(to: &out)
        }
    }

    /// The search line that a replacement line takes the place of; nil for an inserted one.
    private func partner(of index: Int) -> Int? {
        if index < prefix { return index }
        if index >= replace.count - suffix { return search.count - (replace.count - index) }
        return index < search.count - suffix ? index : nil
    }

    private func ending(of index: Int, _ partner: Int?, _ file: TextLines) -> LineEnding {
        let isLast = index == replace.count - 1
        let endOfFile = file[file.count - 1].ending
        let sent = replace[index].ending
        var ending = sent
        if let forced {
            ending = isLast && endOfFile == .none ? .none : forced
        } else if let partner, (search[partner].ending == .none) == (sent == .none) {
            ending = file[partner].ending
        }
        // What follows must stay a line of its own. It is LF even in a file of CRLF (so in the recorded cases).
        return isLast && ending == .none && endOfFile != .none ? .lf : ending
    }

    /// The search line whose indentation tells that of an inserted line.
    private func reference(of index: Int) -> Int {
        let (before, behind) = (prefix - 1, search.count - suffix)
        switch (prefix > 0, suffix > 0) {
        case (false, false): return min(index, search.count - 1)
        case (true, false): return before
        case (false, true): return behind
        case (true, true):
            let lead = replace[index].lead
            return lead == search[before].lead && lead != search[behind].lead ? before : behind
        }
    }

    private func lead(
        of line: TextLine, reference: Int, _ file: TextLines, _ fileUnit: IndentUnit?
    ) -> ArraySlice<UInt8> {
        let found = file[reference].lead
        guard let unit, let fileUnit, let own = unit.level(of: line.lead),
            let searched = unit.level(of: search[reference].lead), let base = fileUnit.level(of: found),
            base + own - searched >= 0
        else { return found }
        return fileUnit.lead(base + own - searched)[...]
    }
}

/// What one level of indentation is.
enum IndentUnit: Equatable {
    case tab
    /// That many spaces, at least 1.
    case spaces(Int)

    /// How many levels a lead is; nil when it isn't made of whole ones.
    func level(of lead: ArraySlice<UInt8>) -> Int? {
        switch self {
        case .tab: lead.allSatisfy { $0 == UInt8(ascii: "\t") } ? lead.count : nil
        case .spaces(let width):
            lead.allSatisfy { $0 == UInt8(ascii: " ") } && lead.count % width == 0 ? lead.count / width : nil
        }
    }

    func lead(_ level: Int) -> [UInt8] {
        switch self {
        case .tab: [UInt8](repeating: UInt8(ascii: "\t"), count: level)
        case .spaces(let width): [UInt8](repeating: UInt8(ascii: " "), count: level * width)
        }
    }

    /// Finds the unit of lines: tabs, or the greatest common divisor of the numbers of spaces.
    struct Finder {
        private var divisor = 0
        private var hasTabs = false
        private var isMixed = false

        /// Lines without text tell nothing.
        mutating func add(_ lines: TextLines) {
            for index in 0..<lines.count {
                let line = lines[index]
                guard line.hasText, let first = line.lead.first else { continue }
                if !line.lead.allSatisfy({ $0 == first }) {
                    isMixed = true
                } else if first == UInt8(ascii: "\t") {
                    hasTabs = true
                } else {
                    divisor = Self.commonDivisor(divisor, line.lead.count)
                }
            }
        }

        /// nil when leads are mixed or there are none.
        var unit: IndentUnit? {
            if isMixed || (hasTabs && divisor > 0) { return nil }
            if hasTabs { return .tab }
            return divisor > 0 ? .spaces(divisor) : nil
        }

        private static func commonDivisor(_ a: Int, _ b: Int) -> Int {
            var (a, b) = (a, b)
            while b != 0 { (a, b) = (b, a % b) }
            return a
        }
    }
}
