import AgentCore

/// A replacement in a text: which pass matches, and what it makes of the text.
struct Replacement {
    private let search: [UInt8]
    private let replace: [UInt8]
    /// Everywhere rather than once.
    private let all: Bool
    /// The ending that all lines of the replacement get; nil when they keep those that were sent.
    private let forced: LineEnding?
    /// Search and replacement differ in their line endings, so these are to be changed.
    private let changesEndings: Bool
    /// Bytes of the text's byte order mark.
    private let mark: Int
    private let limit: Int

    /// - Parameters:
    ///   - text: what it will be applied to.
    ///   - limit: bytes that the text may have afterwards.
    init(_ search: String, _ replace: String, all: Bool, in text: [UInt8], _ limit: Int) throws(EditFailure) {
        guard !search.utf8.isEmpty else {
            throw EditFailure(text: "search string must not be empty; include the text you want to match")
        }
        (self.search, self.replace, self.all, self.limit) = (Array(search.utf8), Array(replace.utf8), all, limit)
        mark = ByteOrderMark.length(in: text)
        let (searchEnding, replaceEnding) = (TextLines(self.search).agreedEnding, TextLines(self.replace).agreedEnding)
        changesEndings = searchEnding != nil && replaceEnding != nil && searchEnding != replaceEnding
        forced = replaceEnding == nil || changesEndings ? nil : LineEnding.ofFile(text)
    }

    /// - Throws: that nothing matches, that too much does, or that the text would be too large.
    func apply(to text: inout [UInt8]) throws(EditFailure) -> EditMatch {
        if let match = try applyExactly(to: &text) { return match }
        guard !changesEndings else { throw .notFound("whitespace, indentation, and line endings") }
        // A mark in the search belongs to no line of it, and the file keeps its own.
        let lines = ByteOrderMark.removed(from: search)
        let new = mark > 0 || lines.count < search.count ? ByteOrderMark.removed(from: replace) : replace
        for pass in [EditMatch.Pass.trailing, .indent] where !lines.isEmpty {
            if let match = try apply(lines, new, to: &text, pass) { return match }
        }
        let hints = EditHints(lines, new, in: mark > 0 ? ByteOrderMark.removed(from: text) : text)
        throw .notFound("whitespace and indentation", hint: hints.text)
    }

    private func applyExactly(to text: inout [UInt8]) throws(EditFailure) -> EditMatch? {
        let places = Occurrences(of: search, in: text)
        let count = places.count
        guard count > 0 else { return nil }
        guard count == 1 || all else { throw .ambiguous(count) }
        let new = forced.map(TextLines(replace).withInnerEnding) ?? replace
        // A file has one byte order mark; the search may have matched it.
        let lacksMark = ByteOrderMark.length(in: search) == 0
        let rest = mark > 0 ? ByteOrderMark.removed(from: new) : new
        let size = text.count + count * ((lacksMark ? rest.count : new.count) - search.count)
        guard size + (new.count - rest.count) <= limit else { throw .tooLarge(limit) }
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
            // One that the search has is meant.
            out += place == 0 || !lacksMark ? new : rest
            copied = place + search.count
        }
        out += text[copied...]
        text = out
        return EditMatch(pass: .exact, lines: lines)
    }

    private func apply(
        _ search: [UInt8], _ replace: [UInt8], to text: inout [UInt8], _ pass: EditMatch.Pass
    ) throws(EditFailure) -> EditMatch? {
        let places = LineSearch(for: search, in: text, from: mark, pass)
        let count = places.count
        guard count > 0 else { return nil }
        guard count == 1 || all else { throw .ambiguous(count) }
        let searchLines = TextLines(search)
        var rewriter = LineRewriter(searchLines, TextLines(replace), in: text, from: mark, forced: forced)
        var out: [UInt8] = []
        out.reserveCapacity(text.count)
        var lines: [Int] = []
        var cursor = LineCursor(text, from: mark)
        var copied = 0
        for line in places {
            if lines.count < FilesLimits.editMatchLines { lines.append(line + 1) }
            cursor.advance(to: line)
            let start = cursor.place
            cursor.advance(to: line + searchLines.count)
            out += text[copied..<start]
            try rewriter.rewrite(TextLines(text, start..<cursor.place), into: &out, limit: limit)
            copied = cursor.place
            guard out.count <= limit else { throw .tooLarge(limit) }
        }
        out += text[copied...]
        guard out.count <= limit else { throw .tooLarge(limit) }
        text = out
        return EditMatch(pass: pass, lines: lines)
    }
}
