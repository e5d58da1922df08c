import AgentTestSupport
import Testing

@testable import GitWatch

@Suite struct DiffPiecesTests {
    private func diff(_ size: Int, _ byte: UInt8 = UInt8(ascii: "x")) -> FileDiff {
        var body = DiffText.BoundedBytes(limit: GitWatchLimits.totalDiffBytes)
        body.append([UInt8](repeating: byte, count: size))
        return FileDiff(head: [], names: [], hunks: body)
    }

    /// What is shown of the diffs, by key; nil when there is too much.
    private func expected(_ diffs: [Int: FileDiff]) -> [UInt8]? {
        var shown = diffs.mapValues { $0.whole ?? $0.short ?? [] }
        let long = diffs.filter { $0.value.whole != nil && $0.value.short != nil }
            .sorted { $0.value.size == $1.value.size ? $0.key < $1.key : $0.value.size > $1.value.size }
        for (key, diff) in long where shown.values.reduce(0, { $0 + $1.count }) > GitWatchLimits.totalDiffBytes {
            shown[key] = diff.short
        }
        guard shown.values.reduce(0, { $0 + $1.count }) <= GitWatchLimits.totalDiffBytes else { return nil }
        return shown.sorted { $0.key < $1.key }.flatMap(\.value)
    }

    @Test func aDiffIsWholeUpToTheLimitOfAll() {
        for (size, isWhole) in [
            (GitWatchLimits.fileDiffBytes + 1, true), (GitWatchLimits.totalDiffBytes - 1, true),
            (GitWatchLimits.totalDiffBytes, true), (GitWatchLimits.totalDiffBytes + 1, false),
        ] {
            var pieces = DiffPieces<Int>()
            pieces.insert(diff(size), at: 0)
            let short = diff(size).short ?? []
            #expect(
                pieces.text() == .whole(isWhole ? [UInt8](repeating: UInt8(ascii: "x"), count: size) : short),
                "\(size)")
        }
    }

    /// What JSON makes longer counts as it is sent.
    @Test func escapesCount() {
        for (byte, factor) in [(UInt8(10), 2), (1, 6), (200, 3), (65, 1)] {
            var pieces = DiffPieces<Int>()
            let size = GitWatchLimits.encodedDiffBytes / factor
            pieces.insert(diff(size < GitWatchLimits.totalDiffBytes ? size : 1 << 20, byte), at: 0)
            guard case .whole(let text) = pieces.text() else {
                Issue.record("\(byte) is not shown")
                continue
            }
            #expect(text.first == byte, "shown as it is")
            pieces.insert(diff(GitWatchLimits.fileDiffBytes + factor), at: 1)
            let both = pieces.text()
            guard case .whole(let text) = both, factor > 1 else { continue }
            #expect(text.count < GitWatchLimits.fileDiffBytes + 1000, "the longer one gives way")
            let entry = EncodedEntry(root: "/r", RepositorySnapshot(branch: "b", origin: "", diff: text))
            #expect(entry.json.readableBytes <= GitWatchLimits.messageBytes)
        }
    }

    @Test func shortDiffsTogetherAreOneLine() {
        var pieces = DiffPieces<Int>()
        let count = GitWatchLimits.totalDiffBytes / GitWatchLimits.fileDiffBytes
        for key in 0..<count { pieces.insert(diff(GitWatchLimits.fileDiffBytes), at: key) }
        guard case .whole = pieces.text() else {
            Issue.record("exactly as much as fits")
            return
        }
        pieces.insert(diff(1), at: count)
        #expect(pieces.text() == .tooLong(GitWatchLimits.totalDiffBytes + 1))
        #expect(!pieces.isIncomplete)
        pieces.remove(0)
        #expect(pieces.isIncomplete && pieces.text() == .incomplete, "the last one's text was let go")
    }

    /// Against one that keeps everything.
    @Test func showsWhatOneThatKeepsEverythingWouldShow() {
        var generator = SeededGenerator("pieces")
        for _ in 0..<40 {
            var pieces = DiffPieces<Int>()
            var all: [Int: FileDiff] = [:]
            var hasRemoved = false
            for _ in 0..<Int.random(in: 1...25, using: &generator) {
                let key = Int.random(in: 0..<20, using: &generator)
                if all[key] != nil { hasRemoved = true }
                if Int.random(in: 0..<6, using: &generator) == 0 {
                    pieces.remove(key)
                    all[key] = nil
                    continue
                }
                let sizes = [100, 200_000, GitWatchLimits.fileDiffBytes, 300_000, 600_000, 1_400_000, 3_200_000]
                let size = sizes[Int.random(in: 0..<sizes.count, using: &generator)] + key % 3
                all[key] = diff(size, UInt8(ascii: "a") + UInt8(key))
                pieces.insert(diff(size, UInt8(ascii: "a") + UInt8(key)), at: key)
            }
            let text = pieces.text()
            #expect((text == .incomplete) == pieces.isIncomplete)
            if text == .incomplete {
                #expect(hasRemoved, "only where there was more before")
            } else if let expected = expected(all) {
                #expect(text == .whole(expected))
            } else {
                #expect(text == .tooLong(all.values.reduce(0) { $0 + $1.size }))
            }
        }
    }
}
