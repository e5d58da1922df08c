import AgentTestSupport
import Foundation
import Testing

@testable import Files

/// Replacements that are indented otherwise than the file.
@Suite(.timeLimit(.minutes(30)), .blocking) struct EditIndentationTests {
    private func edited(_ content: String, _ search: String, _ replace: String) throws(EditFailure) -> String {
        let edit = FileEdit(.replace(search: search, replace: replace, all: false))
        return String(decoding: try EditEngine.apply([edit], to: Array(content.utf8)).bytes, as: UTF8.self)
    }

    private static let refused =
        "the indentation of the replacement cannot be translated into the file's; "
        + "send the lines as they are in the file"

    private func refusal(_ content: String, _ search: String, _ replace: String) -> String? {
        do throws(EditFailure) {
            let text = try edited(content, search, replace)
            Issue.record("it became \(text.debugDescription)")
            return nil
        } catch {
            return error.text
        }
    }

    // MARK: Examples

    @Test(arguments: [
        // A line that is wrapped, in a file of tabs.
        (
            "def f():\n\tfor x in y:\n\t\tg(x)\n\treturn\n", "    for x in y:\n        g(x)\n",
            "    for x in y:\n        if x:\n            g(x)\n",
            "def f():\n\tfor x in y:\n\t\tif x:\n\t\t\tg(x)\n\treturn\n"
        ),
        // A line that moves out of a loop, and one that moves in.
        (
            "def f():\n\tfor x in y:\n\t\tg(x)\n\t\th()\n", "    for x in y:\n        g(x)\n        h()\n",
            "    for x in y:\n        g(x)\n    h()\n", "def f():\n\tfor x in y:\n\t\tg(x)\n\th()\n"
        ),
        (
            "def f():\n  for x in y:\n    g(x)\n  h()\n", "\tfor x in y:\n\t\tg(x)\n\th()\n",
            "\tfor x in y:\n\t\tg(x)\n\t\th()\n", "def f():\n  for x in y:\n    g(x)\n    h()\n"
        ),
        // What is sent with less indentation than it has.
        (
            "class A:\n    def f(self):\n        x\n        y\n", "def f(self):\n    x\n    y\n",
            "def f(self):\n    if z:\n        x\n    y\n",
            "class A:\n    def f(self):\n        if z:\n            x\n        y\n"
        ),
        (
            "class A:\n    def f(self):\n        x\n        y\n", "    x\n    y\n", "    if z:\n        x\n    y\n",
            "class A:\n    def f(self):\n        if z:\n            x\n        y\n"
        ),
        // Two levels in one step, and one level of a file where all lines of the match have two.
        (
            "a:\n  b:\n    c\n    d\ne:\n", "        c\n        d\n", "        c\n            d\n",
            "a:\n  b:\n    c\n      d\ne:\n"
        ),
        ("a {\n\tb\n}\n", "a { \n", "a { \n    c\n", "a {\n\tc\n\tb\n}\n"),
        // An alignment is kept beyond the level of the line next to it.
        (
            "f {\n\tg(a,\n\t  b)\n}\n", "    g(a,\n      b)\n", "    g(a,\n      b,\n      c)\n",
            "f {\n\tg(a,\n\t  b,\n\t  c)\n}\n"
        ),
        (
            "f {\n\tif a {\n\t\tb\n\t}\n}\n", "  if a {\n    b\n  }\n", "  if a ||\n     c {\n    b\n  }\n",
            "f {\n\tif a ||\n\t\t c {\n\t\tb\n\t}\n}\n"
        ),
        // A file without any indentation gets what was sent.
        ("a \nb\n", "a\nb\n", "a\n   c\nb\n", "a \n   c\nb\n"),
    ])
    func leadsAreTheFiles(_ content: String, _ search: String, _ replace: String, _ result: String) throws {
        #expect(try edited(content, search, replace).utf8.elementsEqual(result.utf8))
    }

    @Test func whatCannotBeToldIsRefused() {
        // Two levels of two spaces, or one of four below what the file has.
        #expect(refusal("a\n\tb\n\t\tc\n\t\td\n", "    c\n    d\n", "    c\n        d\n") == Self.refused)
        // Tabs and spaces of one sender.
        #expect(refusal("  a\n  b\n", " a\n b\n", " a\n\tb\n") == Self.refused)
        // Less than nothing.
        #expect(refusal("a\nb\n", "  a\n  b\n", "  a\nb\n") == Self.refused)
        // Lines that stood together would not.
        #expect(
            refusal("class A:\n    def f():\n        pass\n", "def f():\npass\n", "def f():\n    x\n    return\n")
                == Self.refused)
    }

    // MARK: The block turned back

    private typealias Random = SeededGenerator

    private struct Line {
        var level: Int
        var text: String
    }

    private static func written(_ lines: [Line], _ unit: String, less: Int = 0) -> String {
        lines.map { $0.text.isEmpty ? "\n" : String(repeating: unit, count: $0.level - less) + $0.text + "\n" }.joined()
    }

    private struct Generator {
        var random: Random
        private var number = 0

        init(_ name: String) { random = Random(name) }

        mutating func pick<T>(_ from: [T]) -> T { from[Int.random(in: 0..<from.count, using: &random)] }

        mutating func chance(_ of: Int) -> Bool { Int.random(in: 0..<of, using: &random) == 0 }

        mutating func text() -> String {
            number += 1
            return "line \(number)"
        }

        mutating func block(_ count: ClosedRange<Int>) -> [Line] {
            (0..<Int.random(in: count, using: &random)).map { _ in
                chance(10) ? Line(level: 0, text: "") : Line(level: Int.random(in: 0...4, using: &random), text: text())
            }
        }

        /// Inserts, removes, indents, dedents, wraps, moves, changes.
        mutating func edit(_ lines: inout [Line]) {
            guard !lines.isEmpty else { return }
            let place = Int.random(in: 0..<lines.count, using: &random)
            let last = Int.random(in: place..<lines.count, using: &random)
            switch Int.random(in: 0..<7, using: &random) {
            case 0: lines.insert(Line(level: Int.random(in: 0...5, using: &random), text: text()), at: place)
            case 1: lines.remove(at: place)
            case 2: for index in place...last { lines[index].level += 1 }
            case 3: for index in place...last { lines[index].level = max(0, lines[index].level - 1) }
            case 4:
                let level = lines[place].level
                for index in place...last { lines[index].level += 1 }
                lines.insert(Line(level: level, text: text()), at: last + 1)
                lines.insert(Line(level: level, text: text()), at: place)
            case 5:
                let line = lines.remove(at: place)
                lines.insert(line, at: Int.random(in: 0...lines.count, using: &random))
            default: lines[place].text = text()
            }
        }
    }

    /// Lines of one level whose leads are all whole levels of the file's own unit cannot be told from lines that were sent
    /// with less indentation than they have, which is what they are taken for.
    private func looksSentWithLess(_ lines: [Line], _ unit: String, _ other: String) -> Bool {
        unit != "\t" && other != "\t"
            && lines.allSatisfy { $0.text.isEmpty || $0.level * other.count % unit.count == 0 }
    }

    /// The lines as far beyond the level in the file as they are in the replacement.
    private static func written(_ lines: [Line], from level: Int, _ unit: String, _ other: String) -> String {
        lines.map { line in
            let lead = level * unit.count + (line.level - level) * other.count
            return line.text.isEmpty ? "\n" : String(repeating: " ", count: max(lead, 0)) + line.text + "\n"
        }.joined()
    }

    /// A block in the file's unit is turned into another, edited there and sent: what results is the edited block
    /// turned back, or a refusal; never anything else.
    @Test func theResultIsTheEditedBlockTurnedBack() throws {
        var made = Generator("indentation")
        var (fuzzy, refused, shifted) = (0, 0, 0)
        let units = ["\t", "  ", "   ", "    ", "        "]
        for _ in 0..<3_000 * (ProcessInfo.processInfo.environment["TEST_ROUNDS"].flatMap(Int.init) ?? 1) {
            let (unit, other) = (made.pick(units), made.pick(units))
            guard unit != other else { continue }
            let (before, block, after) = (made.block(0...4), made.block(1...6), made.block(0...4))
            var new = block
            for _ in 0..<Int.random(in: 1...3, using: &made.random) { made.edit(&new) }
            let levels = Set(block.filter { !$0.text.isEmpty }.map(\.level))
            // Lines can be sent with less indentation than they have, where that can be told.
            let least = (block + new).filter { !$0.text.isEmpty }.map(\.level).min() ?? 0
            let less = levels.count > 1 && made.chance(3) ? least : 0
            let (search, replace) = (Self.written(block, other, less: less), Self.written(new, other, less: less))
            func file(_ lines: [Line]) -> String { Self.written(before + lines + after, unit) }
            let outcome: EditOutcome
            do throws(EditFailure) {
                outcome = try EditEngine.apply(
                    [FileEdit(.replace(search: search, replace: replace, all: false))], to: Array(file(block).utf8))
            } catch {
                guard error.text == Self.refused else { continue }
                (fuzzy, refused) = (fuzzy + 1, refused + 1)
                #expect(levels.count == 1, "\(search.debugDescription) -> \(replace.debugDescription)")
                continue
            }
            guard outcome.matches.first?.pass != .exact else { continue }
            fuzzy += 1
            if outcome.bytes != Array(file(new).utf8), let level = levels.first, levels.count == 1,
                looksSentWithLess(block + new, unit, other)
            {
                let sent = Self.written(new, from: level, unit, other)
                if outcome.bytes == Array((Self.written(before, unit) + sent + Self.written(after, unit)).utf8) {
                    shifted += 1
                    continue
                }
            }
            #expect(
                outcome.bytes == Array(file(new).utf8),
                """
                \(file(block).debugDescription): \(search.debugDescription) -> \(replace.debugDescription) is \
                \(String(decoding: outcome.bytes, as: UTF8.self).debugDescription), not \(file(new).debugDescription)
                """)
        }
        print("indentation: \(fuzzy) by lines, \(refused) refused, \(shifted) as sent with less")
        #expect(fuzzy > 1_000 && refused * 50 < fuzzy && shifted * 50 < fuzzy, "\(refused) and \(shifted) of \(fuzzy)")
    }
}
