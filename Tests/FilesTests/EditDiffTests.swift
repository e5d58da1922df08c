import AgentCore
import AgentTestSupport
import Foundation
import Testing

@testable import Files

/// What other programs make of the diffs of random edits. Files of few different lines: where lines are equal, hunks
/// can be placed wrongly.
@Suite(.timeLimit(.minutes(60)), .blocking) struct EditDiffTests {
    private typealias Random = SeededGenerator

    /// Edits in one patch.
    private static let batch = 1_000

    private func pick<T>(_ from: [T], _ random: inout Random) -> T {
        from[Int.random(in: 0..<from.count, using: &random)]
    }

    private func lines(_ count: ClosedRange<Int>, kinds: Int, _ ending: String, _ random: inout Random) -> [String] {
        let texts = Array(["A", "B", "", "}", "  x", "\tx ", "é"].prefix(kinds))
        return (0..<Int.random(in: count, using: &random)).map { _ in pick(texts, &random) + ending }
    }

    /// A file and what some edits make of it; nil when the edits cannot be made.
    private func edited(_ random: inout Random) -> (old: [UInt8], new: [UInt8])? {
        let (kinds, ending) = (Int.random(in: 1...7, using: &random), pick(["\n", "\n", "\n", "\r\n"], &random))
        let content = lines(0...24, kinds: kinds, ending, &random)
        var old = Array(content.joined().utf8)
        if Int.random(in: 0..<4, using: &random) == 0, !old.isEmpty { old.removeLast() }
        let edits = (0..<Int.random(in: 1...3, using: &random)).map { _ in
            let new = lines(0...6, kinds: kinds, pick(["\n", ending], &random), &random).joined()
            guard !content.isEmpty, Int.random(in: 0..<4, using: &random) > 0 else {
                return FileEdit(.insert(afterLine: Int.random(in: 0...content.count, using: &random), text: new))
            }
            let first = Int.random(in: 0..<content.count, using: &random)
            let last = Int.random(in: first...min(content.count - 1, first + 5), using: &random)
            return FileEdit(
                .replace(
                    search: content[first...last].joined(), replace: new, all: Bool.random(using: &random)))
        }
        return (try? EditEngine.apply(edits, to: old)).map { (old, $0.bytes) }
    }

    /// One round; `TEST_ROUNDS=100` tries 100,000 edits.
    @Test func gitAndPatchApplyEveryDiffBothWays() throws {
        var random = Random("git apply")
        for _ in 0..<(ProcessInfo.processInfo.environment["TEST_ROUNDS"].flatMap(Int.init) ?? 1) {
            let directory = try TemporaryDirectory()
            var texts: [(old: Data, new: Data)] = []
            var patch: [UInt8] = []
            while texts.count < Self.batch {
                guard let (old, new) = edited(&random), old != new else { continue }
                let name = "\(texts.count)"
                patch += UnifiedDiff.text(old: old, new: new, oldName: "a/\(name)", newName: "b/\(name)")
                texts.append((Data(old), Data(new)))
            }
            try Data(patch).write(to: URL(filePath: "\(directory.path)/patch"))
            for tool in [
                ["git", "-C", directory.path, "apply", "--whitespace=nowarn"],
                ["patch", "-d", directory.path, "-p1", "-s", "-f", "-F0", "--no-backup-if-mismatch", "-i"],
            ] {
                for (index, text) in texts.enumerated() {
                    try text.old.write(to: URL(filePath: "\(directory.path)/\(index)"))
                }
                try Self.run(tool + ["\(directory.path)/patch"])
                try Self.compare(directory, texts.map(\.new), tool[0])
                try Self.run(Array(tool.dropLast()) + ["-R", tool.last ?? "", "\(directory.path)/patch"])
                try Self.compare(directory, texts.map(\.old), "\(tool[0]) -R")
            }
        }
    }

    private static func run(_ command: [String]) throws {
        let result = try CommandResult.of(command)
        #expect(result.code == 0, "\(command[0]): \((result.output + result.errors).prefix(1_000))")
        // A tool that has to look for a hunk's place, or ignores a part of it, says so.
        #expect((result.output + result.errors).isEmpty, "\((result.output + result.errors).prefix(1_000))")
    }

    private static func compare(_ directory: TemporaryDirectory, _ expected: [Data], _ tool: String) throws {
        for (index, data) in expected.enumerated() {
            let found = try? Data(contentsOf: URL(filePath: "\(directory.path)/\(index)"))
            // `patch` may remove a file that became empty.
            #expect(found == data || (found == nil && data.isEmpty), "\(tool), file \(index)")
        }
    }
}
