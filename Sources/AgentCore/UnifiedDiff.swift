/// Differences of two texts in unified format, line by line: the one engine of the daemon.
///
/// The alignment is a shortest one (Myers, "An O(ND) Difference Algorithm and Its Variations", 1986) as long as that
/// takes bounded work; beyond, it is still a correct patch that may delete and add lines which another would keep.
package enum UnifiedDiff {
    /// Lines of both texts, between what they have in common at their ends, that are aligned; a larger part is
    /// deleted and added as a whole. Bounds the memory to about 150 MiB.
    package static let alignedLines = 3_000_000

    /// - Parameters:
    ///   - oldName: written behind `---` as it is.
    ///   - newName: written behind `+++` as it is.
    ///   - context: unchanged lines shown around a change, at least 0.
    ///   - limit: see ``alignedLines``.
    /// - Returns: a text that makes the new bytes of the old, with bytes that are no UTF-8 as they are; empty when
    ///   there is no difference.
    package static func text(
        old: [UInt8], new: [UInt8], oldName: String, newName: String, context: Int = 3, limit: Int = alignedLines
    ) -> [UInt8] {
        guard let middle = Middle(old, new, context: context) else { return [] }
        let changes = LineAlignment(old, middle.old, new, middle.new, limit: limit).changes
        var writer = Writer(old, new, middle)
        writer.out = Array("--- \(oldName)\n+++ \(newName)\n".utf8)
        var start = changes.startIndex
        while start < changes.endIndex {
            // Changes whose context touches or overlaps are shown together.
            var end = start + 1
            while end < changes.endIndex, changes[end].old.lowerBound - changes[end - 1].old.upperBound <= 2 * context {
                end += 1
            }
            writer.write(changes[start..<end], context: context)
            start = end
        }
        return writer.out
    }

    /// The lines that two texts don't have in common at their ends. What is common there is not aligned: an alignment
    /// that could pair its lines otherwise would show changes next to lines that it doesn't know, without context.
    private struct Middle {
        let old: Range<Int>
        let new: Range<Int>
        /// How many lines there are before it.
        let line: Int
        /// How many lines there are in the old text's.
        let lines: Int
        /// How many of the lines before and after it can be context.
        let before: Int
        let after: Int
        /// Where those before begin, in both texts.
        let start: Int

        /// nil when the texts are equal.
        init?(_ old: [UInt8], _ new: [UInt8], context: Int) {
            let equal = ByteScan.equalAtStart(old, new)
            guard equal < max(old.count, new.count) else { return nil }
            let equalAtEnd = ByteScan.equalAtEnd(old, new, limit: min(old.count, new.count) - equal)
            let first = Self.lineStart(old, upTo: equal)
            // The bytes between there and the first that differ can be equal at the end, too.
            var end = old.count - equalAtEnd
            if !Self.isLineStart(old, end) || !Self.isLineStart(new, new.count - equalAtEnd) {
                end = ByteScan.lineEnd(in: old, from: end)
            }
            self.old = first..<end
            self.new = first..<new.count - (old.count - end)
            line = ByteScan.count(newline, in: old, 0..<first)
            lines = ByteScan.lines(in: old, first..<end)
            var (start, before, after) = (first, 0, 0)
            while before < context, start > 0 {
                start = Self.lineStart(old, upTo: start - 1)
                before += 1
            }
            while after < context, end < old.count {
                end = ByteScan.lineEnd(in: old, from: end)
                after += 1
            }
            (self.start, self.before, self.after) = (start, before, after)
        }

        /// Where the line begins that has the byte at a place.
        private static func lineStart(_ text: [UInt8], upTo place: Int) -> Int {
            ByteScan.last(newline, in: text, 0..<place).map { $0 + 1 } ?? 0
        }

        private static func isLineStart(_ text: [UInt8], _ place: Int) -> Bool {
            place == 0 || text[place - 1] == newline
        }
    }

    /// Writes hunks, going forwards through both texts. Lines are counted from the middle's first, so that the context
    /// before it has negative numbers.
    private struct Writer {
        var out: [UInt8] = []
        private let (old, new): ([UInt8], [UInt8])
        private let middle: Middle
        private var (oldLine, newLine): (Int, Int)
        private var (oldPlace, newPlace): (Int, Int)

        init(_ old: [UInt8], _ new: [UInt8], _ middle: Middle) {
            (self.old, self.new, self.middle) = (old, new, middle)
            (oldLine, newLine) = (-middle.before, -middle.before)
            (oldPlace, newPlace) = (middle.start, middle.start)
        }

        /// - Parameter changes: at least one.
        mutating func write(_ changes: ArraySlice<LineAlignment.Change>, context: Int) {
            guard let first = changes.first, let last = changes.last else { return }
            let before = min(context, middle.before + first.old.lowerBound)
            let behind = min(context, middle.lines + middle.after - last.old.upperBound)
            skip(to: first.old.lowerBound - before, first.new.lowerBound - before)
            let oldRange = range(first.old.lowerBound - before..<last.old.upperBound + behind)
            let newRange = range(first.new.lowerBound - before..<last.new.upperBound + behind)
            out += "@@ -\(oldRange) +\(newRange) @@\n".utf8
            for change in changes {
                while oldLine < change.old.lowerBound { keepLine() }
                while oldLine < change.old.upperBound { deleteLine() }
                while newLine < change.new.upperBound { addLine() }
            }
            for _ in 0..<behind { keepLine() }
        }

        private func range(_ lines: Range<Int>) -> String {
            let start = middle.line + lines.lowerBound
            return switch lines.count {
            case 0: "\(start),0"
            case 1: "\(start + 1)"
            default: "\(start + 1),\(lines.count)"
            }
        }

        private mutating func skip(to oldLine: Int, _ newLine: Int) {
            while self.oldLine < oldLine { _ = takeOld() }
            while self.newLine < newLine { _ = takeNew() }
        }

        private mutating func takeOld() -> Range<Int> {
            let start = oldPlace
            oldPlace = ByteScan.lineEnd(in: old, from: start)
            oldLine += 1
            return start..<oldPlace
        }

        private mutating func takeNew() -> Range<Int> {
            let start = newPlace
            newPlace = ByteScan.lineEnd(in: new, from: start)
            newLine += 1
            return start..<newPlace
        }

        private mutating func keepLine() {
            _ = takeNew()
            let line = takeOld()
            write(" ", old[line])
        }

        private mutating func deleteLine() {
            let line = takeOld()
            write("-", old[line])
        }

        private mutating func addLine() {
            let line = takeNew()
            write("+", new[line])
        }

        private mutating func write(_ mark: Unicode.Scalar, _ line: ArraySlice<UInt8>) {
            out.append(UInt8(ascii: mark))
            out += line
            if line.last != newline { out += "\n\\ No newline at end of file\n".utf8 }
        }
    }
}

private let newline = UInt8(ascii: "\n")
