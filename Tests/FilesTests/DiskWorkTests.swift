import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Logging
import Synchronization
import Testing

@testable import Files

@Suite(.timeLimit(.minutes(5)), .blocking) struct DiskWorkTests {
    private let clock = ManualClock()
    private let health = HealthRegistry()
    private let work: DiskWork

    init() { work = DiskWork(clock: AgentClock(clock), executor: BlockingExecutor.shared, health: health) }

    /// Calls that wait until they may end.
    private func hang(_ count: Int, on path: String, _ gate: DispatchSemaphore) -> [Task<Void, any Error>] {
        (0..<count).map { _ in
            Task(executorPreference: BlockingExecutor.shared) { [work] in try await work.run(path) { gate.wait() } }
        }
    }

    @Test func slowCallsGiveTheirPlacesAway() async throws {
        let gate = DispatchSemaphore(value: 0)
        let slow = hang(FilesLimits.atOnce, on: "/dead/x", gate)
        try await eventually("all places are taken") { work.underWay == FilesLimits.atOnce }
        let waiting = Task(executorPreference: BlockingExecutor.shared) { [work] in
            try await work.run("/proc/self/mounts") { 7 }
        }
        try await eventually("one waits") { work.waitingCalls == 1 }
        #expect(health.reports().isEmpty)
        // The look after the time is over, wherever that task is by then.
        try await eventually("it is served") {
            clock.advance(by: .seconds(1))
            return work.waitingCalls == 0
        }
        #expect(try await waiting.value == 7)
        clock.advance(by: .seconds(10))
        let report = try #require(health.reports().first)
        #expect(report.degrades && report.text.contains("file system / does not answer: 16 file requests wait"))
        // As many as may hang on this mount.
        await #expect(throws: FilesError(.unavailable, "")) { try await work.run("/dead/y") {} }
        #expect(try await work.run("/proc/self/x") { 8 } == 8)
        for _ in slow { gate.signal() }
        for task in slow { try await task.value }
        #expect(health.reports().isEmpty && work.underWay == 0)
        #expect(try await work.run("/dead/y") { 9 } == 9)
    }

    @Test func memoryIsBounded() async throws {
        let (all, gate) = (FilesLimits.bytesInFlight, Promise<Void>())
        let held = Tally()
        try await withThrowingTaskGroup { group in
            for _ in 0..<6 {
                group.addTask(executorPreference: BlockingExecutor.shared) { [work] in
                    try await work.holding(all / 2) {
                        held.add(1)
                        await gate.valueIgnoringCancellation
                    }
                }
            }
            try await eventually("two hold it all") { held.value == 2 && work.waitingForMemory == 4 }
            // One that wants more than there is gets all, in its turn.
            group.addTask { [work] in try await work.holding(.max) {} }
            gate.fulfill()
            try await group.waitForAll()
        }
        #expect(held.value == 6 && work.waitingForMemory == 0)
    }

    @Test func errorsComeThrough() async throws {
        await #expect(throws: FilesError(.notFound, "")) {
            try await work.run("/x") { throw FilesError(.notFound, "gone") }
        }
        #expect(work.underWay == 0)
    }
}

/// Small rules of the file service.
@Suite(.timeLimit(.minutes(5)), .blocking) struct FileRuleTests {
    @Test(arguments: [
        ("bytes=0-0", 0..<1), ("bytes=3-", 3..<10), ("bytes=-3", 7..<10), ("bytes=-30", 0..<10), ("BYTES=2-99", 2..<10),
    ]) func rangesAreCut(_ text: String, _ range: Range<Int>) {
        #expect(ByteRange(text, size: 10) == .part(range))
    }

    @Test(arguments: ["bytes=", "bytes=-", "bytes=1", "bytes=a-b", "bytes=5-4", "bytes=+1-2", "x=1-2", "bytes=1-2,4-5"])
    func whatIsNoRangeIsIgnored(_ text: String) { #expect(ByteRange(text, size: 10) == .ignored) }

    @Test(arguments: ["bytes=10-", "bytes=10-11", "bytes=-0", "bytes=9223372036854775807-"])
    func rangesPastTheEnd(_ text: String) { #expect(ByteRange(text, size: 10) == .unsatisfiable) }

    /// However the bytes are divided, the lines are the same.
    @Test func linesDoNotDependOnHowTheyAreRead() throws {
        var random = SeededGenerator("line windows")
        for _ in 0..<500 {
            let text = (0..<Int.random(in: 0...200, using: &random)).map { _ in
                ["a", "é", "\n", "\r\n", "日本", "\t"][Int.random(in: 0..<6, using: &random)]
            }.joined()
            let bytes = Array(text.utf8)
            var request = LineWindow.Request()
            request.first = Int.random(in: 1...5, using: &random)
            request.lineBytes = Int.random(in: 0...12, using: &random)
            if Bool.random(using: &random) { request.limit = Int.random(in: 1...30, using: &random) }
            var whole = LineWindow(request)
            bytes.withUnsafeBytes { whole.take($0) }
            var parts = LineWindow(request)
            var rest = bytes[...]
            while !rest.isEmpty {
                let part = Array(rest.prefix(Int.random(in: 1...9, using: &random)))
                part.withUnsafeBytes { parts.take($0) }
                rest = rest.dropFirst(part.count)
            }
            let (a, b) = (Result { try whole.finish() }, Result { try parts.finish() })
            switch (a, b) {
            case (.success(let a), .success(let b)):
                #expect(a == b)
                #expect(!a.content.contains("\u{FFFD}"), "cut inside of a character: \(text.debugDescription)")
            case (.failure(let a as FilesError), .failure(let b as FilesError)): #expect(a.message == b.message)
            default: Issue.record("\(a) and \(b)")
            }
        }
    }

    @Test func aLinkAboveATargetWithDotsIsResolvedFirst() throws {
        let directory = try TemporaryDirectory()
        let root = directory.path
        mkdir("\(root)/real", 0o755)
        mkdir("\(root)/real/in", 0o755)
        symlink("real/in", "\(root)/l")
        symlink("../f", "\(root)/real/in/up")
        // The kernel says real/f; by text alone it would be f.
        #expect(try PathResolution.resolve("\(root)/l/up") == "\(root)/real/f")
        #expect(try PathResolution.resolve("\(root)/l/up/x") == "\(root)/real/f/x")
    }

    @Test func whatAKillLeavesIsRemovedAndNothingElse() throws {
        let (state, directory) = (try TemporaryDirectory(), try TemporaryDirectory())
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let paths = ["a", "bad\u{10FEFF}", "gone"].map { "\(directory.path)/.\($0).tmp.0123abcd" }
        let kept = ["\(directory.path)/plain", "\(directory.path)/.link.tmp.00000000", "\(directory.path)/.two.tmp.1"]
        let killed = TemporaryFiles(directory: state.path, logger: logger)
        for path in paths + kept { _ = killed.record(path) }
        let forgotten = "\(directory.path)/.done.tmp.00000001"
        killed.forget(killed.record(forgotten))
        for path in paths.dropLast() + [kept[0], kept[2], forgotten] {
            #expect(withPath(path) { creat($0, 0o600) } >= 0)
        }
        symlink("plain", kept[1])
        link(kept[2], "\(directory.path)/other-name")
        // The descriptor of the first is still open, as a killed process's is not; the record is what counts.
        _ = TemporaryFiles(directory: state.path, logger: logger)
        let left = directoryEntries(directory.path).sorted()
        #expect(left == [".done.tmp.00000001", ".link.tmp.00000000", ".two.tmp.1", "other-name", "plain"])
        #expect(try OwnFile.read("\(state.path)/temporary-files", limit: 1 << 20).isEmpty)
    }

    @Test func locksAreHeldTogetherAndForgotten() async throws {
        let locks = FileLocks()
        let inside = Tally()
        try await withThrowingTaskGroup { group in
            for number in 0..<40 {
                group.addTask {
                    let paths = number % 2 == 0 ? ["/a", "/b", "/a"] : ["/b", "/a"]
                    try await locks.holding(paths) {
                        #expect(inside.add(1) == 1)
                        await Task.yield()
                        _ = inside.add(-1)
                    }
                }
            }
            try await group.waitForAll()
        }
        #expect(locks.count == 0)
    }
}

private final class Tally: Sendable {
    private let count = Mutex(0)
    var value: Int { count.withLock { $0 } }

    @discardableResult func add(_ number: Int) -> Int {
        count.withLock { count in
            count += number
            return count
        }
    }
}
