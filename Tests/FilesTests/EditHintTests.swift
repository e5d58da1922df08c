import AgentTestSupport
import Testing

@testable import Files

/// What a failed edit is told.
@Suite(.timeLimit(.minutes(10)), .blocking) struct EditHintTests {
    private static let notFound =
        "search string not found in file. Verify the search string matches the file content exactly, "
        + "including whitespace and indentation"

    /// The hint for an edit that fails; nil when there is none.
    private func hint(_ content: String, _ search: String, _ replace: String = "none") throws -> String? {
        do throws(EditFailure) {
            _ = try EditEngine.apply(
                [FileEdit(.replace(search: search, replace: replace, all: false))], to: Array(content.utf8))
        } catch {
            try #require(error.text.hasPrefix(Self.notFound))
            let rest = error.text.dropFirst(Self.notFound.count)
            return rest.isEmpty ? nil : String(rest.dropFirst(2))
        }
        Issue.record("the edit succeeded")
        return nil
    }

    @Test func eachCharacterOfALineHasItsHint() throws {
        #expect(
            try hint("--==\n===---\n", "---==")
                == #"Your search has 3 "-" (U+002D); the file has 2 at line 1. "#
                + #"Your search has 2 "=" (U+003D); the file has 3 at line 2"#)
    }

    @Test func aTabIsWrittenAsItsEscape() throws {
        #expect(try hint("a\t\tb\n", "a\t\t\tb") == #"Your search has 3 "\t" (U+0009); the file has 2 at line 1"#)
    }

    @Test func equalLinesOfTheSearchHaveOneHint() throws {
        #expect(try hint("a--\n", "a---\na---\n-a--\n") == #"Your search has 3 "-" (U+002D); the file has 2 at line 1"#)
    }

    @Test func aCharacterThatTheSearchLacksCountsToo() throws {
        #expect(try hint("ba--\n\n", "ab\n") == #"Your search has 0 "-" (U+002D); the file has 2 at line 1"#)
        #expect(try hint("ba\n", "ab--") == #"Your search has 2 "-" (U+002D); the file has 0 at line 1"#)
        #expect(try hint("ba-\n", "ab\n") == nil)
        #expect(try hint("\n  \n", "---") == nil, "lines without text")
    }

    @Test func characterBeyondTheFirstPlaneAndBadBytes() throws {
        #expect(try hint("🚀🚀\n", "🚀🚀🚀") == #"Your search has 3 "🚀" (U+1F680); the file has 2 at line 1"#)
        #expect(try hint("a\n", "aaa\u{0301}") == nil, "two characters differ")
        do throws(EditFailure) {
            _ = try EditEngine.apply(
                [FileEdit(.replace(search: "x\u{FFFD}", replace: "", all: false))], to: [0x78, 0xFF, 0xFF, 0xFF, 10])
        } catch {
            #expect(error.text.hasSuffix(#"Your search has 1 "\#u{FFFD}" (U+FFFD); the file has 3 at line 1"#))
        }
    }

    @Test func onlySmallFilesAndFewLinesAreCompared() throws {
        let line = "----\n"
        let filler = String(repeating: ".", count: FilesLimits.editHintBytes - line.utf8.count - 1) + "\n"
        #expect(try hint(line + filler, "-----") != nil)
        #expect(try hint(line + filler + "\n", "-----") == nil)
        #expect(try hint(line + filler.dropFirst(), "-----") != nil)

        let before = (1..<FilesLimits.editHintLines).map { String(repeating: "x", count: $0) + "\n" }.joined()
        #expect(try hint(line, before + "-----\n") != nil)
        #expect(try hint(line, "one more\n" + before + "-----\n") == nil)
        #expect(try hint(line, before.split(separator: "\n").dropFirst().joined(separator: "\n") + "\n-----\n") != nil)
    }

    @Test func aSwappedEditIsTold() throws {
        let text = #"Did you swap "search" and "replace"? Your replace string appears at line "#
        #expect(try hint("new new\nx\nnew\n", "old", "new") == text + "1, 3", "a line is told once")
        #expect(try hint("x\n new\nline \n", "old", "new\nline\n") == text + "2", "whole lines")
        #expect(try hint("x\ny\n", "old", "") == nil, "everything has nothing in it")
        #expect(try hint("x\ny\n", "old", "new") == nil)
    }
}
