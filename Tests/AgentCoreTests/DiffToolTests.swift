import AgentCore
import AgentTestSupport
import Foundation
import Testing

struct DiffToolTests {
    /// What others make of our diffs.
    @Test func gitAppliesThem() throws {
        var random = SeededGenerator("git apply")
        let lines = (0..<40).map { "line \($0 % 7)\n" }
        for round in 0..<12 {
            var edited = lines
            for _ in 0..<round {
                let place = Int.random(in: 0..<edited.count, using: &random)
                edited[place] = ["", "new\n", "line 3\nmore\n"][Int.random(in: 0..<3, using: &random)]
            }
            var texts = [lines.joined(), edited.joined()]
            if round % 3 == 1 { texts[0].removeLast() }
            if round % 4 == 2 { texts[1].removeLast() }
            let directory = try TemporaryDirectory()
            let (old, new) = (Data(texts[0].utf8), Data(texts[1].utf8))
            try old.write(to: URL(filePath: "\(directory.path)/f.txt"))
            let diff = UnifiedDiff.text(old: Array(old), new: Array(new), oldName: "a/f.txt", newName: "b/f.txt")
            guard !diff.isEmpty else { continue }
            try Data(diff).write(to: URL(filePath: "\(directory.path)/patch"))
            let result = try CommandResult.of(["git", "-C", directory.path, "apply", "patch"])
            #expect(result.code == 0, "\(result.errors)")
            #expect(try Data(contentsOf: URL(filePath: "\(directory.path)/f.txt")) == new)
        }
    }
}
