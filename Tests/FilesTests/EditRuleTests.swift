import AgentTestSupport
import Testing

@testable import Files

/// Rules that the recorded cases don't show, and the limits.
@Suite(.timeLimit(.minutes(10)), .blocking) struct EditRuleTests {
    private func edit(
        _ content: String, _ kind: FileEdit.Kind..., limit: Int = FilesLimits.editBytes
    ) throws -> (text: String, matches: [EditMatch]) {
        let outcome = try EditEngine.apply(kind.map { FileEdit($0) }, to: Array(content.utf8), limit: limit)
        return (String(decoding: outcome.bytes, as: UTF8.self), outcome.matches)
    }

    private func failure(_ content: String, _ kind: FileEdit.Kind, limit: Int = FilesLimits.editBytes) -> EditFailure? {
        do throws(EditFailure) {
            _ = try EditEngine.apply([FileEdit(kind)], to: Array(content.utf8), limit: limit)
            return nil
        } catch {
            return error
        }
    }

    private func replace(_ search: String, _ replace: String = "", all: Bool = false) -> FileEdit.Kind {
        .replace(search: search, replace: replace, all: all)
    }

    /// Swift's `==` takes texts for equal that only look so, and a CRLF for one character.
    private func bytes(_ text: String?) -> [UInt8]? { text.map { Array($0.utf8) } }

    // MARK: Insertions

    @Test(arguments: [
        ("a\nb\n", 0, "x", "x\na\nb\n"),
        ("a\nb\n", 1, "x\n", "a\nx\nb\n"),
        ("a\nb\n", 2, "x", "a\nb\nx\n"),
        ("a\nb\n", 1, "\n", "a\n\nb\n"),
        ("a\nb\n", 1, "x\ny", "a\nx\ny\nb\n"),
        ("a\r\nb\r\n", 1, "x\ny\n", "a\r\nx\r\ny\r\nb\r\n"),
        ("a\nb\n", 0, "x\r\ny\nz", "x\ny\nz\na\nb\n"),
        ("", 0, "x", "x\n"),
        ("\n", 1, "x", "\nx\n"),
        // Without a final newline the file stays without one.
        ("a\nb", 2, "x\n", "a\nb\nx"),
        ("a\r\nb", 2, "x\ny", "a\r\nb\r\nx\r\ny"),
        ("a\nb", 1, "x", "a\nx\nb"),
    ])
    func linesAreInserted(_ content: String, _ line: Int, _ text: String, _ result: String) throws {
        let edited = try edit(content, .insert(afterLine: line, text: text))
        #expect(bytes(edited.text) == bytes(result))
        #expect(edited.matches == [EditMatch(pass: .exact, lines: [line + 1])])
    }

    @Test func insertionsOutsideOfTheFileAreRefused() {
        let text = "is outside of the file, which has 2 lines; the text can be inserted after lines 0 (the top) to 2"
        for content in ["a\nb\n", "a\nb"] {
            #expect(failure(content, .insert(afterLine: 3, text: "x"))?.text == "insert_line 3 \(text)")
            #expect(failure(content, .insert(afterLine: -1, text: "x"))?.text == "insert_line -1 \(text)")
            #expect(failure(content, .insert(afterLine: 2, text: "x")) == nil)
        }
        #expect(failure("", .insert(afterLine: 1, text: "x"))?.text.contains("has 0 lines") == true)
        #expect(
            failure("a\n", .insert(afterLine: 0, text: ""))?.text
                == "text must not be empty; send a line break to insert an empty line")
    }

    @Test func editsOfBothKindsFollowOneAnother() throws {
        let edited = try edit(
            "a\nb\n", .insert(afterLine: 1, text: "new"), replace("new\nb", "newer\nb"),
            .insert(afterLine: 0, text: "0"))
        #expect(edited.text == "0\na\nnewer\nb\n")
        #expect(edited.matches.map(\.lines) == [[2], [2], [1]])
    }

    // MARK: How it matched

    @Test func thePassAndTheLinesAreTold() throws {
        let content = "a\nb \nc\n  d\ne\na\n"
        #expect(try edit(content, replace("c", "x")).matches == [EditMatch(pass: .exact, lines: [3])])
        #expect(try edit(content, replace("a", "x", all: true)).matches == [EditMatch(pass: .exact, lines: [1, 6])])
        #expect(try edit(content, replace("b\nc", "x")).matches == [EditMatch(pass: .trailing, lines: [2])])
        #expect(try edit(content, replace("d\ne \n", "x")).matches == [EditMatch(pass: .indent, lines: [4])])
        let all = try edit("f \ng\n  f\ng\nf\t\ng\n", replace("f\ng \n", "h\n", all: true))
        #expect(all.text == "h \n  f\ng\nh\t\n")
        #expect(all.matches == [EditMatch(pass: .trailing, lines: [1, 5])])
    }

    @Test(arguments: [-1, 0, 1])
    func noMoreLinesAreToldThanTheLimit(_ over: Int) throws {
        let count = FilesLimits.editMatchLines + over
        let told = min(count, FilesLimits.editMatchLines)
        let exact = try edit(String(repeating: "a\n", count: count), replace("a", "b", all: true))
        #expect(exact.matches.first?.lines == Array(1...told))
        #expect(exact.text == String(repeating: "b\n", count: count))
        let fuzzy = try edit(String(repeating: "a\n", count: count), replace("a \n", "b \n", all: true))
        #expect(fuzzy.matches.first?.lines == Array(1...told))
        #expect(fuzzy.text == String(repeating: "b\n", count: count))
    }

    // MARK: Sizes

    @Test func aFileMayGrowToTheLimit() {
        let content = "aaaa\n bb\n"
        for (kind, size) in [
            (replace("aaaa", "aaaaaa"), 11), (replace("a", "aa", all: true), 13),
            (replace("aaaa \nbb", "aaaa\nx\nbb"), 12), (.insert(afterLine: 1, text: "xy"), 12),
        ] {
            #expect(failure(content, kind, limit: size) == nil)
            #expect(failure(content, kind, limit: size + 1) == nil)
            let failed = failure(content, kind, limit: size - 1)
            #expect(failed?.isTooLarge == true)
            #expect(failed?.text.hasPrefix("the file would have more than \(size - 1) bytes") == true)
        }
        #expect(failure(content, replace("aaaa", "a"), limit: 9) == nil)
        #expect(failure(content, replace("aaaa", "a"), limit: 8)?.isTooLarge == true)
        #expect(failure(content, replace("none", "a"), limit: 9)?.isTooLarge == false)
    }

    // MARK: Indentation

    /// A line at the beginning that replacement and search have in common is none of those at their end.
    @Test func commonLinesAreCountedOnce() throws {
        #expect(try edit("\ta\n\ta\n", replace(" a\n a\n", " a\n a\n  a\n")).text == "\ta\n\ta\n\t\ta\n")
    }

    /// Where the file's levels are others than those of the search, it matters which neighbour is looked at.
    @Test func anAddedLineFollowsTheNeighbourOfItsLevel() throws {
        let edited = try edit("\tif\n\t\t\ta\n\tend\n", replace("if\n  a\nend\n", "if\n  a\n  b\nend\n"))
        #expect(edited.text == "\tif\n\t\t\ta\n\t\t\tb\n\tend\n", "the line before")
        let other = try edit("\ta\n\t\tb\n", replace("  a\n  b\n", "  a\n  c\n  b\n"))
        #expect(other.text == "\ta\n\t\tc\n\t\tb\n", "the line behind")
    }

    /// Lines without text tell nothing of the unit, and a lead that is no whole number of it is taken as it is.
    @Test func linesWithoutTextHaveNoLevel() throws {
        let edited = try edit("\ta\n\n\tb\n", replace("  a\n   \n  b\n", "  a\n   \n  b\n    c\n"))
        #expect(edited.text == "\ta\n   \n\tb\n\t\tc\n")
        let last = try edit("\ta\n\t\n", replace("  a\n   \n", "  a\n   \n    c\n"))
        #expect(last.text == "\ta\n   \n\t\tc\n", "the level of the line with text")
    }

    // MARK: Byte order mark

    private static let mark = "\u{FEFF}"

    @Test(arguments: [
        // Exact: it stays, goes when the search has it, and does not become two.
        ("\u{FEFF}a\nb\n", "a\n", "c\n", "\u{FEFF}c\nb\n"),
        ("\u{FEFF}a\nb\n", "a\n", "\u{FEFF}c\n", "\u{FEFF}c\nb\n"),
        ("\u{FEFF}a\nb\n", "b\n", "\u{FEFF}c\n", "\u{FEFF}a\nc\n"),
        ("\u{FEFF}a\nb\n", "\u{FEFF}a\n", "\u{FEFF}c\n", "\u{FEFF}c\nb\n"),
        ("\u{FEFF}a\nb\n", "\u{FEFF}a\n", "c\n", "c\nb\n"),
        ("a\nb\n", "a\n", "\u{FEFF}c\n", "\u{FEFF}c\nb\n"),
        // By lines.
        ("\u{FEFF}a \nb\n", "a\nb\n", "c\n", "\u{FEFF}c \n"),
        ("\u{FEFF}  a\n  b\n", "a\nb\n", "a\nb\nc\n", "\u{FEFF}  a\n  b\n  c\n"),
        ("\u{FEFF}a \nb\n", "\u{FEFF}a\nb\n", "\u{FEFF}c\nb\n", "\u{FEFF}c \nb\n"),
        ("\u{FEFF}a \nb\n", "a\nb\n", "\u{FEFF}c\nb\n", "\u{FEFF}c \nb\n"),
        ("x\na \nb\n", "\u{FEFF}a\nb\n", "\u{FEFF}c\nb\n", "x\nc \nb\n"),
        ("\u{FEFF}a\r\nb\r\n", "a\nb\n", "c\nd\n", "\u{FEFF}c\r\nd\r\n"),
    ])
    func aByteOrderMarkBelongsToNoLine(_ content: String, _ search: String, _ new: String, _ result: String) throws {
        #expect(bytes(try edit(content, replace(search, new)).text) == bytes(result))
    }

    @Test func linesAreInsertedBehindAByteOrderMark() throws {
        for text in ["x", Self.mark + "x\n"] {
            #expect(
                bytes(try edit(Self.mark + "a\n", .insert(afterLine: 0, text: text)).text) == bytes("\u{FEFF}x\na\n"))
            #expect(bytes(try edit(Self.mark + "a", .insert(afterLine: 1, text: text)).text) == bytes("\u{FEFF}a\nx"))
            #expect(bytes(try edit(Self.mark, .insert(afterLine: 0, text: text)).text) == bytes("\u{FEFF}x\n"))
        }
        #expect(failure(Self.mark, .insert(afterLine: 1, text: "x"))?.text.contains("has 0 lines") == true)
        #expect(failure("a\n", replace(Self.mark, "x")) != nil, "a search without a line")
    }

    /// In the middle of a file it is a character like others, where the search has it.
    @Test func aMarkThatTheSearchHasIsMeant() throws {
        let edited = try edit(Self.mark + "a\n\(Self.mark)x\n", replace(Self.mark + "x", Self.mark + "y"))
        #expect(bytes(edited.text) == bytes("\u{FEFF}a\n\u{FEFF}y\n"))
        #expect(
            failure(Self.mark + "a\n", .insert(afterLine: 0, text: Self.mark))?.text.contains("must not be empty")
                == true)
    }

    /// A lead that would not fit in any file is not made.
    @Test func aLeadIsNotMultipliedWithoutBound() throws {
        let wide = String(repeating: " ", count: 1 << 20)
        let many = String(repeating: "\ty\n", count: 1_000)
        #expect(failure(wide + "x\n", replace("\tx\n", "\tx\n" + many))?.isTooLarge == true)
        let deep = "\tx\n" + String(repeating: "\t", count: 5_000) + "y\n"
        #expect(failure(wide + "x\n", replace("\tx\n", deep)) != nil)
    }

    @Test func allButOneMarkAreLeftOut() throws {
        let edited = try edit(Self.mark + "a\na\n", replace("a", Self.mark + "b", all: true))
        #expect(bytes(edited.text) == bytes("\u{FEFF}b\nb\n"))
    }

    // MARK: Line endings

    /// The edit adds a newline where the file has none: it stays. One that search and replacement have is that of the
    /// file's last line, which has none.
    @Test func anAddedNewlineAtTheEndStays() throws {
        for ending in ["\n", "\r\n"] {
            let content = "a \(ending)b"
            #expect(
                bytes(try edit(content, replace("a\nb", "x\ny\n")).text) == bytes("x \(ending)y\(ending)"), "forced")
            #expect(bytes(try edit(content, replace("a\nb\n", "x\ny\n")).text) == bytes("x \(ending)y"))
            #expect(bytes(try edit(content, replace("a\nb", "x\ny")).text) == bytes("x \(ending)y"))
        }
        #expect(try edit("a \nb ", replace("b", "y\n")).text == "a \ny\n ", "exact")
        #expect(try edit("a \n\tb", replace("  b", "  y\n")).text == "a \n\ty\n")
    }

    /// The last line's ending counts when it has one.
    @Test func endingsThatDifferInTheLastLineAreKept() throws {
        #expect(bytes(try edit("a\r\nb\r\n", replace("a", "x\ny\r\n")).text) == bytes("x\ny\r\n\r\nb\r\n"))
        #expect(bytes(try edit("a\r\nb\r\n", replace("a", "x\ny\n")).text) == bytes("x\r\ny\n\r\nb\r\n"))
        #expect(bytes(try edit("a\r\nb\r\n", replace("a", "x\ny")).text) == bytes("x\r\ny\r\nb\r\n"))
        // The endings of the search don't agree, so those of the replacement don't differ from them on purpose.
        #expect(bytes(try edit("a\r\nb\r\n", replace("a \r\nb\n", "x\ny\n")).text) == bytes("x\r\ny\r\n"))
    }

    /// The recorded cases have the last line of a file of CRLF end with LF then.
    @Test func aLastLineThatLostItsEndingGetsLF() throws {
        #expect(bytes(try edit("a\r\nb\r\nc\r\n", replace("a\nb\n", "x")).text) == bytes("x\nc\r\n"))
        #expect(bytes(try edit("a\r\nb\r\nc\r\n", replace("a\nb\n", "x\ny")).text) == bytes("x\r\ny\r\nc\r\n"))
    }

    @Test func fuzzyReplacementsOfMixedEndingsKeepThoseSent() throws {
        let edited = try edit("a \r\nb\r\nc\r\n", replace("a\nb\n", "x\ny\r\nz\n"))
        // The first two lines take the place of lines of the file; the third has its own ending.
        #expect(bytes(edited.text) == bytes("x \r\ny\r\nz\nc\r\n"))
    }
}
