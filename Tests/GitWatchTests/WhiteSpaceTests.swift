import AgentCore
import AgentTestSupport
import Foundation
import Testing

@testable import GitWatch

/// Where a hunk begins and which function it names depends on what counts as white space.
@Suite struct WhiteSpaceTests {
    private static let spaces: [[UInt8]] = [
        [32], [32, 32], [9], [12], [11], [13], [12, 32], [9, 11], [0x85], [0xA0], [0xC2, 0xA0], [1], [28], [127],
    ]
    private static let words = [
        "", "", "", "}", "{", "if x", "else", "foo();", "int f(void)", "class A", "_x", "$y", "é", "Å", "#", "end",
    ]

    private struct Lines {
        var generator: SeededGenerator

        mutating func pick<T>(_ values: [T]) -> T { values[Int.random(in: 0..<values.count, using: &generator)] }

        mutating func line() -> [UInt8] {
            var line: [UInt8] = []
            for _ in 0..<Int.random(in: 0...3, using: &generator) { line += pick(spaces) }
            line += Array(pick(words).utf8)
            for _ in 0..<Int.random(in: 0...1, using: &generator) { line += pick(spaces) }
            return line
        }

        mutating func text() -> [[UInt8]] { (0..<Int.random(in: 5...40, using: &generator)).map { _ in line() } }

        /// With blocks repeated beside themselves, so that a hunk can be moved up and down.
        mutating func edited(_ lines: [[UInt8]]) -> [[UInt8]] {
            var lines = lines
            for _ in 0..<Int.random(in: 1...3, using: &generator) {
                let start = Int.random(in: 0..<lines.count, using: &generator)
                let block = Array(lines[start..<min(lines.count, start + Int.random(in: 1...5, using: &generator))])
                switch Int.random(in: 0..<4, using: &generator) {
                case 0, 1: lines.insert(contentsOf: block, at: start)
                case 2: lines.insert(line(), at: start)
                default: if lines.count > block.count { lines.removeSubrange(start..<start + block.count) }
                }
            }
            return lines
        }
    }

    @Test func hunksAreGitsWhateverTheWhiteSpace() async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) { try compare() }
    }

    private func compare() throws {
        var lines = Lines(generator: SeededGenerator("white space"))
        let scene = try Scene("mk r")
        func write(_ number: Int, _ text: [[UInt8]]) throws {
            let bytes = text.reduce(into: [UInt8]()) { $0 += $1 + [10] }
            try Data(bytes).write(to: URL(fileURLWithPath: "\(scene.root)/f\(number)"))
        }
        let texts = (0..<1_500).map { _ in lines.text() }
        for (number, text) in texts.enumerated() { try write(number, text) }
        try scene.run("git add -A; git commit -qm c")
        for (number, text) in texts.enumerated() { try write(number, lines.edited(text)) }
        let tree = try #require(Discovery.workTree(at: scene.root))
        let got = try TestLibgit.with { try PlainRepository($0, tree, command: scene.command).snapshot().diff }
        let want = try scene.oracle()
        guard got != want else { return }
        let mark = Array("diff --git ".utf8)
        func parts(_ bytes: [UInt8]) -> [ArraySlice<UInt8>] {
            var starts = [Int]()
            for line in bytes.split(separator: 10) where line.starts(with: mark) { starts.append(line.startIndex) }
            return zip(starts, starts.dropFirst() + [bytes.count]).map { bytes[$0..<$1] }
        }
        let different = zip(parts(got), parts(want)).filter { $0 != $1 }
        func readable(_ part: ArraySlice<UInt8>) -> String {
            part.map { (32..<127).contains($0) || $0 == 10 ? String(UnicodeScalar($0)) : "<\(String($0, radix: 16))>" }
                .joined()
        }
        for (got, want) in different.prefix(3) {
            Issue.record("of \(different.count)\n--- ours\n\(readable(got))\n--- git\n\(readable(want))")
        }
        #expect(!different.isEmpty, "the same number of files")
    }

    @Test func whatStandsForAFormFeedIsNotInEitherText() throws {
        let all = Array(UInt8(1)...255)
        let cases: [(old: [UInt8], new: [UInt8], isNeeded: Bool)] = [
            ([9, 32, 13], [65], false), ([12], [1, 2, 3], true), ([65], [11, 12], true),
        ]
        for (old, new, isNeeded) in cases {
            let bytes = try DiffBytes(old, new)
            #expect(bytes.isNeeded == isNeeded)
            for text in [old, new] {
                let replaced = bytes.replace(text)
                #expect(!replaced.contains(11) && !replaced.contains(12))
                #expect(replaced.withUnsafeBytes { bytes.restore($0) } == text)
            }
        }
        #expect(throws: ScanError.self) { try DiffBytes(all, [65]) }
        #expect(throws: Never.self) { try DiffBytes(all.filter { ![1, 2].contains($0) }, [65]) }
        #expect(throws: ScanError.self) { try DiffBytes(all.filter { $0 != 1 }, [65]) }
    }
}
