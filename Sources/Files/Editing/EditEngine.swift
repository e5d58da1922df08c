import AgentCore

/// Makes edits, without I/O (docs/contracts/files.md#one-edit).
///
/// A replacement is tried in three passes: as bytes, as whole lines without regard to blanks at their ends, and as
/// whole lines without regard to indentation. The first pass with a match decides, even if it finds too many. All
/// passes take time in proportion to the file.
enum EditEngine {
    /// - Parameters:
    ///   - content: any bytes; what is no UTF-8 stays as it is.
    ///   - limit: bytes that the text may have, before each edit and after it.
    /// - Throws: the failure of the first edit that fails; those behind it aren't tried.
    static func apply(
        _ edits: [FileEdit], to content: [UInt8], limit: Int = FilesLimits.editBytes
    ) throws(EditFailure) -> EditOutcome {
        var outcome = EditOutcome(bytes: content, matches: [])
        for edit in edits {
            guard outcome.bytes.count <= limit else { throw .tooLarge(limit) }
            let match =
                switch edit.kind {
                case .replace(let search, let replace, let all):
                    try Replacement(search, replace, all: all, in: outcome.bytes, limit).apply(to: &outcome.bytes)
                case .insert(let line, let text):
                    try insert(text, afterLine: line, in: &outcome.bytes, limit)
                }
            outcome.matches.append(match)
        }
        return outcome
    }

    /// The text gets the file's line ending and ends as a line. Behind the last line of a file without final newline
    /// it is the other way round: that line gets the ending, and the file still has no final newline.
    private static func insert(
        _ text: String, afterLine line: Int, in bytes: inout [UInt8], _ limit: Int
    ) throws(EditFailure) -> EditMatch {
        let mark = ByteOrderMark.length(in: bytes)
        let text = mark > 0 ? ByteOrderMark.removed(from: Array(text.utf8)) : Array(text.utf8)
        guard !text.isEmpty else {
            throw EditFailure(text: "text must not be empty; send a line break to insert an empty line")
        }
        let lines = ByteScan.lines(in: bytes, mark..<bytes.count)
        guard (0...lines).contains(line) else {
            throw EditFailure(
                text: "insert_line \(line) is outside of the file, which has \(lines) lines; "
                    + "the text can be inserted after lines 0 (the top) to \(lines)")
        }
        var place = mark
        for _ in 0..<line { place = ByteScan.lineEnd(in: bytes, from: place) }
        let ending = LineEnding.ofFile(bytes)
        let isUnterminated = place > mark && bytes[place - 1] != newline
        let inserted = TextLines(text)
        var new: [UInt8] = []
        if isUnterminated { ending.append(to: &new) }
        for index in 0..<inserted.count {
            new += inserted[index].text
            if !isUnterminated || index < inserted.count - 1 { ending.append(to: &new) }
        }
        guard bytes.count + new.count <= limit else { throw .tooLarge(limit) }
        bytes.insert(contentsOf: new, at: place)
        return EditMatch(pass: .exact, lines: [line + 1])
    }
}

extension EditFailure {
    static func tooLarge(_ limit: Int) -> Self {
        EditFailure(
            text: "the file would have more than \(limit) bytes, the most that are edited; write it anew instead",
            isTooLarge: true)
    }

    static func ambiguous(_ count: Int) -> Self {
        EditFailure(
            text: "search string matches \(count) occurrences (expected exactly 1). Include more surrounding context "
                + "to make the match unique, or set replace_all to true")
    }

    static let untranslatable = EditFailure(
        text: "the indentation of the replacement cannot be translated into the file's; "
            + "send the lines as they are in the file")

    /// - Parameter what: in what the search may differ from the file.
    static func notFound(_ what: String, hint: String? = nil) -> Self {
        EditFailure(
            text: "search string not found in file. Verify the search string matches the file content exactly, "
                + "including \(what)" + (hint.map { ". \($0)" } ?? ""))
    }
}
