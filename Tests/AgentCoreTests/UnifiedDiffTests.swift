import AgentCore
import AgentTestSupport
import Foundation
import Testing

@testable import AgentCore

struct UnifiedDiffTests {
    private func diff(_ old: String, _ new: String, context: Int = 3) -> String {
        String(
            decoding: UnifiedDiff.text(
                old: Array(old.utf8), new: Array(new.utf8), oldName: "a/x", newName: "b/y z", context: context),
            as: UTF8.self)
    }

    private static let head = "--- a/x\n+++ b/y z\n"

    @Test func equalTextsHaveNoDifference() {
        for text in ["", "a", "a\n", "\n\n"] { #expect(diff(text, text).isEmpty) }
    }

    @Test(arguments: [
        ("", "a\n", "@@ -0,0 +1 @@\n+a\n"),
        ("a\n", "", "@@ -1 +0,0 @@\n-a\n"),
        ("", "a", "@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n"),
        ("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        (
            "a\nb", "a\nb\nc",
            "@@ -1,2 +1,3 @@\n a\n-b\n\\ No newline at end of file\n+b\n+c\n\\ No newline at end of file\n"
        ),
        ("x\nb", "y\nb", "@@ -1,2 +1,2 @@\n-x\n+y\n b\n\\ No newline at end of file\n"),
        ("a\n", "a\nb\n", "@@ -1 +1,2 @@\n a\n+b\n"),
        ("b\n", "a\nb\n", "@@ -1 +1,2 @@\n+a\n b\n"),
        ("a\nb\n", "b\n", "@@ -1,2 +1 @@\n-a\n b\n"),
        // The beginning of a line and its end may be those of another.
        ("ab\n", "ab\nab\n", "@@ -1 +1,2 @@\n ab\n+ab\n"),
        ("aXb\n", "ab\n", "@@ -1 +1 @@\n-aXb\n+ab\n"),
        ("\n", "\n\n", "@@ -1 +1,2 @@\n \n+\n"),
        ("a\r\n", "a\n", "@@ -1 +1 @@\n-a\r\n+a\n"),
        ("1\n2\n3\n4\n5\n", "1\n2\n3\n4\n5\n6\n", "@@ -3,3 +3,4 @@\n 3\n 4\n 5\n+6\n"),
        ("1\n2\n3\n4\n5\n", "0\n1\n2\n3\n4\n5\n", "@@ -1,3 +1,4 @@\n+0\n 1\n 2\n 3\n"),
    ])
    func ofSmallTexts(_ old: String, _ new: String, _ hunks: String) {
        #expect(Array(diff(old, new).utf8) == Array((Self.head + hunks).utf8))
    }

    /// Lines that are equal to those after them are added; there is context after them all the same.
    @Test func contextGoesBeyondWhatDiffers() {
        let (before, after) = (["p", "q", "r"], ["s", "t", "u", "v"])
        func text(_ lines: [String]) -> String { lines.map { "\($0)\n" }.joined() }
        let old = text(before + ["X", "A", "A", "A"] + after)
        let new = text(before + ["Y", "A", "A", "A", "A", "A", "A"] + after)
        for (old, new) in [(old, new), (new, old)] {
            let lines = diff(old, new).split(separator: "\n")
            let last = lines.lastIndex { !$0.hasPrefix(" ") } ?? 0
            let first = lines.firstIndex { $0.hasPrefix("-") && !$0.hasPrefix("---") } ?? 0
            #expect(lines.count - 1 - last == 3 && first == 6, "\(lines)")
        }
    }

    @Test func contextCanBeOfAnyLength() {
        let old = (1...9).map { "\($0)\n" }.joined()
        let new = old.replacingOccurrences(of: "3", with: "x").replacingOccurrences(of: "6", with: "y")
        #expect(
            diff(old, new, context: 0) == Self.head + "@@ -3 +3 @@\n-3\n+x\n@@ -6 +6 @@\n-6\n+y\n")
        #expect(
            diff(old, new, context: 1)
                == Self.head + "@@ -2,6 +2,6 @@\n 2\n-3\n+x\n 4\n 5\n-6\n+y\n 7\n")
        #expect(diff(old, new, context: 100).hasPrefix(Self.head + "@@ -1,9 +1,9 @@\n 1\n"))
    }

    @Test func aSecondHunkBeginsWhereContextsDontTouch() {
        let lines = (1...20).map { "\($0)\n" }
        for (second, hunks) in [(11, 1), (12, 1), (13, 2)] {
            var new = lines
            new[4] = "x\n"
            new[second - 1] = "y\n"
            let text = diff(lines.joined(), new.joined())
            #expect(text.components(separatedBy: "@@ -").count - 1 == hunks)
        }
    }

    @Test func bytesThatAreNoTextStay() {
        let old: [UInt8] = [0xFF, 10, 0, 0x80, 10]
        let text = UnifiedDiff.text(old: old, new: [0xFE, 10, 0, 0x80, 10], oldName: "a", newName: "b")
        #expect(text == Array("--- a\n+++ b\n@@ -1,2 +1,2 @@\n-".utf8) + [255, 10, 43, 254, 10, 32, 0, 0x80, 10])
    }

    // MARK: Properties

    private func text(_ lines: ClosedRange<Int>, kinds: Int, _ random: inout SeededGenerator) -> [UInt8] {
        var text = (0..<Int.random(in: lines, using: &random)).flatMap { _ in
            Array("\(Int.random(in: 0..<kinds, using: &random))\n".utf8)
        }
        if Int.random(in: 0..<4, using: &random) == 0, !text.isEmpty { text.removeLast() }
        return text
    }

    private func applied(_ diff: [UInt8], to old: [UInt8]) throws -> (text: [UInt8], changed: Int) {
        var patch = UnifiedPatch(diff)
        return (try patch.applied(to: old), patch.changed)
    }

    /// The least number of lines to delete and add, by the textbook's table.
    private func leastChanges(_ old: [UInt8], _ new: [UInt8]) -> Int {
        func lines(_ text: [UInt8]) -> [[UInt8]] {
            var lines = text.split(separator: 10, omittingEmptySubsequences: false).map { Array($0) + [10] }
            // What is behind the last newline is a line if there is something.
            let last = lines.removeLast().dropLast()
            return last.isEmpty ? lines : lines + [Array(last)]
        }
        let (a, b) = (lines(old), lines(new))
        var row = [Int](repeating: 0, count: b.count + 1)
        for line in a {
            var before = row
            swap(&before, &row)
            row[0] = 0
            for (index, other) in b.enumerated() {
                row[index + 1] = line == other ? before[index] + 1 : max(before[index + 1], row[index])
            }
        }
        return a.count + b.count - 2 * (row.last ?? 0)
    }

    @Test func randomDiffsApplyAndAreShortest() throws {
        var random = SeededGenerator("diffs")
        for round in 0..<3_000 {
            let kinds = [1, 2, 3, 8, 30][round % 5]
            let old = text(0...24, kinds: kinds, &random)
            let new = text(0...24, kinds: kinds, &random)
            let context = Int.random(in: 0...4, using: &random)
            let diff = UnifiedDiff.text(old: old, new: new, oldName: "a", newName: "b", context: context)
            let (result, changed) = try applied(diff, to: old)
            #expect(result == new)
            #expect(changed == leastChanges(old, new), "\(String(decoding: diff, as: UTF8.self))")
            #expect(diff.isEmpty == (old == new))
            try checkContext(diff, old, context)
        }
    }

    /// Each hunk has as many unchanged lines at both ends as there are, up to the context's number.
    private func checkContext(_ diff: [UInt8], _ old: [UInt8], _ context: Int) throws {
        let total = old.count { $0 == 10 } + (old.last.map { $0 != 10 } ?? false ? 1 : 0)
        let hunks = String(decoding: diff, as: UTF8.self).components(separatedBy: "\n@@ -").dropFirst()
        for hunk in hunks {
            let lines = hunk.split(separator: "\n").filter { !$0.hasPrefix("\\") }
            let numbers = lines[0].prefix { $0 != " " }.split(separator: ",").compactMap { Int($0) }
            let count = numbers.count > 1 ? numbers[1] : 1
            // With no lines, the number is that of the line before.
            let start = count == 0 ? numbers[0] : numbers[0] - 1
            let body = lines.dropFirst()
            let before = body.prefix { $0.hasPrefix(" ") }.count
            let behind = body.reversed().prefix { $0.hasPrefix(" ") }.count
            #expect(before == min(context, start + before), "\(hunk)")
            #expect(behind == min(context, total - start - count + behind), "\(hunk)")
        }
    }

    @Test func aFewEditsOfALongTextAreAFewLines() throws {
        var random = SeededGenerator("few edits")
        for kinds in [3, 1_000_000] {
            let lines = (0..<20_000).map { _ in "\(Int.random(in: 0..<kinds, using: &random))\n" }
            var edited = lines
            for _ in 0..<20 {
                let place = Int.random(in: 0..<edited.count, using: &random)
                switch Int.random(in: 0..<3, using: &random) {
                case 0: edited[place] = "1\n"
                case 1: edited.remove(at: place)
                default: edited.insert("2\n", at: place)
                }
            }
            let (old, new) = (Array(lines.joined().utf8), Array(edited.joined().utf8))
            let (result, changed) = try applied(
                UnifiedDiff.text(old: old, new: new, oldName: "a", newName: "b"), to: old)
            #expect(result == new)
            #expect(changed <= 40)
        }
    }

    // MARK: Bounds

    @Test func withLittleWorkItIsStillACommonSequence() {
        var random = SeededGenerator("little work")
        for kinds in [2, 3, 50] {
            let a = (0..<3_000).map { _ in Int32.random(in: 0..<Int32(kinds), using: &random) }
            let b = (0..<2_500).map { _ in Int32.random(in: 0..<Int32(kinds), using: &random) }
            func pairs(_ work: Int) -> [(Int, Int)] {
                var pairs: [(Int, Int)] = []
                var sequence = CommonSequence(a, b, work: work)
                sequence.find { pairs.append(($0, $1)) }
                return pairs.sorted { $0 < $1 }
            }
            let (few, best) = (pairs(1), pairs(.max))
            #expect(few.allSatisfy { a[$0.0] == b[$0.1] })
            #expect(zip(few, few.dropFirst()).allSatisfy { $0.0 < $1.0 && $0.1 < $1.1 })
            #expect(few.count <= best.count)
            // Not a bad one, either.
            #expect(few.count > best.count * 7 / 10, "\(few.count) of \(best.count)")
        }
    }

    @Test func veryManyLinesAreOneChange() throws {
        let old = Array((1...10).map { "\($0)\n" }.joined().utf8)
        let new = Array(([0] + (2...9) + [11]).map { "\($0)\n" }.joined().utf8)
        for (limit, changes) in [(19, 20), (20, 4), (21, 4)] {
            let diff = UnifiedDiff.text(old: old, new: new, oldName: "a", newName: "b", limit: limit)
            let (result, changed) = try applied(diff, to: old)
            #expect(result == new)
            #expect(changed == changes)
        }
    }

    /// In quadratic time it would take hours.
    @Test func hostileTextsTakeBoundedTime() throws {
        var random = SeededGenerator("hostile diffs")
        func numbers(_ count: Int) -> [Int32] { (0..<count).map { _ in Int32.random(in: 0..<2, using: &random) } }
        var sequence = CommonSequence(numbers(1 << 17), numbers(1 << 17), work: 1 << 20)
        var pairs = 0
        sequence.find { _, _ in pairs += 1 }
        #expect(pairs > 1 << 16)

        let many = (0..<3_000).map { "\($0)\n" }
        let old = Array(many.joined().utf8)
        for new in [Array(many.reversed().joined().utf8), [UInt8](repeating: 10, count: 3_000)] {
            let diff = UnifiedDiff.text(old: old, new: new, oldName: "a", newName: "b")
            #expect(try applied(diff, to: old).text == new)
        }
    }
}
