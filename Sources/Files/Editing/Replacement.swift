import AgentCore

/// A replacement in a text: which pass matches, and what it makes of the text.
struct Replacement {
    private let search: [UInt8]
    private let replace: [UInt8]
    /// Everywhere rather than once.
    private let all: Bool
    private let searchLines: TextLines
    private let replaceLines: TextLines
    /// The ending that all lines of the replacement get; nil when they keep those that were sent.
    private let forced: LineEnding?
    /// Search and replacement differ in their line endings, so these are to be changed.
    private let changesEndings: Bool
    private let limit: Int

    /// - Parameters:
    ///   - text: what it will be applied to.
    ///   - limit: bytes that the text may have afterwards.
    init(_ search: String, _ replace: String, all: Bool, in text: [UInt8], _ limit: Int) throws(EditFailure) {
        guard !search.utf8.isEmpty else {
            throw EditFailure(text: "search string must not be empty; include the text you want to match")
        }
        (self.search, self.replace, self.all, self.limit) = (Array(search.utf8), Array(replace.utf8), all, limit)
        searchLines = TextLines(self.search)
        replaceLines = TextLines(self.replace)
        let (searchEnding, replaceEnding) = (searchLines.innerEnding, replaceLines.innerEnding)
        changesEndings = searchEnding != nil && replaceEnding != nil && searchEnding != replaceEnding
        forced = replaceEnding == nil || changesEndings ? nil : LineEnding.ofFile(text)
    }

    /// - Throws: that nothing matches, that too much does, or that the text would be too large.
    func apply(to text: inout [UInt8]) throws(EditFailure) -> EditMatch {
        if let match = try applyExactly(to: &text) { return match }
        guard !changesEndings else { throw .notFound("whitespace, indentation, and line endings") }
        for pass in [EditMatch.Pass.trailing, .indent] {
            if let match = try applyToLines(of: &text, pass) { return match }
        }
        throw .notFound("whitespace and indentation", hint: EditHints(search, replace, in: text).text)
    }

    private func applyExactly(to text: inout [UInt8]) throws(EditFailure) -> EditMatch? {
        let places = Occurrences(of: search, in: text)
        let count = places.count
        guard count > 0 else { return nil }
        guard count == 1 || all else { throw .ambiguous(count) }
        let new = forced.map(replaceLines.withInnerEnding) ?? replace
        let size = text.count + count * (new.count - search.count)
        guard size <= limit else { throw .tooLarge(limit) }
        var out: [UInt8] = []
        out.reserveCapacity(size)
        var lines: [Int] = []
        var (copied, line, counted) = (0, 1, 0)
        for place in places {
            if lines.count < FilesLimits.editMatchLines {
                line += ByteScan.count(newline, in: text, counted..<place)
                counted = place
                lines.append(line)
            }
            out += text[copied..<place]
            out += new
            copied = place + search.count
        }
        out += text[copied...]
        text = out
        return EditMatch(pass: .exact, lines: lines)
    }

    private func applyToLines(of text: inout [UInt8], _ pass: EditMatch.Pass) throws(EditFailure) -> EditMatch? {
        let places = LineSearch(for: search, in: text, pass)
        let count = places.count
        guard count > 0 else { return nil }
        guard count == 1 || all else { throw .ambiguous(count) }
        let rewriter = LineRewriter(searchLines, replaceLines, forced: forced)
        var out: [UInt8] = []
        out.reserveCapacity(text.count)
        var lines: [Int] = []
        var cursor = LineCursor(text)
        var copied = 0
        for line in places {
            if lines.count < FilesLimits.editMatchLines { lines.append(line + 1) }
            cursor.advance(to: line)
            let start = cursor.place
            cursor.advance(to: line + searchLines.count)
            out += text[copied..<start]
            rewriter.rewrite(TextLines(text, start..<cursor.place), into: &out)
            copied = cursor.place
            guard out.count <= limit else { throw .tooLarge(limit) }
        }
        out += text[copied...]
        guard out.count <= limit else { throw .tooLarge(limit) }
        text = out
        return EditMatch(pass: pass, lines: lines)
    }
}
