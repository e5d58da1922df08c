/// Writes a replacement over lines that matched without regard to blanks: what search and replacement have in common
/// stays as the file has it (docs/contracts/files.md#writing-a-match).
struct LineRewriter {
    private let search: TextLines
    private let replace: TextLines
    private let forced: LineEnding?
    /// How many lines at the beginning, and at the end, search and replacement have in common.
    private let prefix: Int
    private let suffix: Int
    private var indentation: Indentation

    /// - Parameters:
    ///   - text: all of the file, whose first line begins at `start`.
    ///   - forced: the ending of all lines; nil for those that were sent.
    init(_ search: TextLines, _ replace: TextLines, in text: [UInt8], from start: Int, forced: LineEnding?) {
        (self.search, self.replace, self.forced) = (search, replace, forced)
        let common = min(search.count, replace.count)
        func isEqual(_ a: Int, _ b: Int) -> Bool {
            Blanks.trimmed(search[a].middle).elementsEqual(Blanks.trimmed(replace[b].middle))
        }
        let prefix = (0..<common).first { !isEqual($0, $0) } ?? common
        let rest = common - prefix
        self.prefix = prefix
        suffix = (0..<rest).first { !isEqual(search.count - 1 - $0, replace.count - 1 - $0) } ?? rest
        indentation = Indentation(search, replace, in: text, from: start)
    }

    /// - Parameters:
    ///   - file: the lines that matched, as many as the search has.
    ///   - out: gets what takes their place.
    ///   - limit: bytes of it.
    /// - Throws: that it would be larger, or that the replacement's indentation cannot be told in the file's terms.
    mutating func rewrite(_ file: TextLines, into out: inout [UInt8], limit: Int) throws(EditFailure) {
        indentation.begin(file)
        for index in 0..<replace.count {
            let line = replace[index]
            let partner = partner(of: index)
            if !line.hasText {
                out += line.lead
            } else {
                guard let lead = indentation.lead(line.lead, at: partner ?? reference(of: index)) else {
                    throw .untranslatable
                }
                guard out.count + lead.count + line.middle.count <= limit else { throw .tooLarge(limit) }
                out += lead
                out += line.middle
                let keepsTrail = partner.map { search[$0].trail == line.trail } ?? false
                out += keepsTrail ? file[partner ?? 0].trail : line.trail
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
            // The last line of a file stays without an ending, unless the edit adds one.
            let adds = sent != .none && search[search.count - 1].ending == .none
            ending = isLast && endOfFile == .none && !adds ? .none : forced
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
}
