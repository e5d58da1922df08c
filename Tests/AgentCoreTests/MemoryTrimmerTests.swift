import AgentTestSupport
import CPlatform
import Glibc
import NIOEmbedded
import Synchronization
import Testing

@testable import AgentCore

@Suite struct MemoryTrimmerTests {
    @Test func runsOnceWhenNothingIsDoneAnyMore() async throws {
        let loop = NIOAsyncTestingEventLoop()
        let count = Atomic(0)
        let trimmer = MemoryTrimmer(loop) { count.add(1, ordering: .relaxed) }
        func runs(_ expected: Int, after seconds: Int64, _ line: Int = #line) async {
            await loop.advanceTime(by: .seconds(seconds))
            #expect(count.load(ordering: .relaxed) == expected, "line \(line)")
        }
        trimmer.started()
        trimmer.started()
        await runs(0, after: 19)
        await runs(1, after: 1)
        // Nothing is done, so nothing wakes it.
        await runs(1, after: 3_600)
        // A busy daemon keeps what it needs.
        for _ in 0..<100 {
            trimmer.noteActivity()
            await runs(1, after: 50)
        }
        await runs(2, after: 120)
        await runs(2, after: 3_600)
        trimmer.noteActivity()
        trimmer.noteActivity()
        await runs(2, after: 119)
        await runs(3, after: 1)
        await loop.shutdownGracefully()
    }

    /// What is given back is there when it is used again.
    @Test func releasedMemoryComesBack() async throws {
        let words = (0..<10_000).map { "\($0)" }
        func resident() throws -> Int {
            let line = ProcFS.text("/proc/self/status").split(separator: "\n").first { $0.hasPrefix("RssFile:") }
            return try #require(line.flatMap { Int($0.filter(\.isNumber)) })
        }
        var before = 0
        // Other tests run meanwhile, and what they use comes back at once: now and then they don't.
        try await eventually("much is given back") {
            before = max(before, try resident())
            wa_release_memory()
            return try resident() < before * 3 / 4
        }
        #expect(words.joined(separator: " ").utf8.count == 48_889)
    }
}
