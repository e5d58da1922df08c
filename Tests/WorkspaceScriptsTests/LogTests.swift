import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import DRPC
import FoundationEssentials
import SwiftProtobuf
import Testing

@testable import WorkspaceScripts

@Suite struct LogQueueTests {
    private let a = Data(repeating: 1, count: 16)
    private let b = Data(repeating: 2, count: 16)

    private func line(_ text: String, seconds: Int64 = 1_700_000_000, nanoseconds: Int32 = 5) -> ScriptLogLine {
        ScriptLogLine(time: WallTime(seconds: seconds, nanoseconds: nanoseconds), level: .info, text: text)
    }

    @Test func countsTheEncodedSizeToTheByte() throws {
        var random = SeededGenerator("LogQueue.size")
        for length in [0, 1, 100, 127, 128, 16_383, 16_384]
            + (0..<100).map({ _ in Int.random(in: 0...70_000, using: &random) })
        {
            let line = line(
                String(repeating: "x", count: length), seconds: Int64.random(in: 0...1 << 33, using: &random),
                nanoseconds: Int32.random(in: 0..<1_000_000_000, using: &random))
            let batch = LogQueue.Batch(source: a, lines: [line, line])
            #expect(try batch.request.serializedData().count == 18 + 2 * line.encodedBytes)
        }
        let zero = line("", seconds: 0, nanoseconds: 0)
        #expect(try LogQueue.Batch(source: a, lines: [zero]).request.serializedData().count == 18 + zero.encodedBytes)
    }

    @Test func aBatchIsSentAgainUntilItIsAcknowledged() {
        var queue = LogQueue()
        #expect(queue.append(line("1"), source: a) == .queued)
        let first = queue.nextBatch()
        #expect(queue.append(line("2"), source: a) == .queued)
        #expect(queue.nextBatch() == first)
        #expect(queue.acknowledge(limitExceeded: false).sent == 1)
        #expect(queue.nextBatch()?.lines.map(\.text) == ["2"])
        #expect(queue.acknowledge(limitExceeded: false).sent == 1)
        #expect(queue.nextBatch() == nil)
        #expect(queue.acknowledge(limitExceeded: false) == (0, 0))
        #expect(queue.isEmpty && queue.textBytes == 0 && queue.encodedBytes == 0)
    }

    @Test func textAtBelowAndAboveTheLimit() {
        var queue = LogQueue()
        let kilobyte = String(repeating: "x", count: 1024)
        for _ in 0..<1023 { #expect(queue.append(line(kilobyte), source: a) == .queued) }
        #expect(queue.append(line(kilobyte + "y"), source: b) == .dropped(isFirst: true))
        #expect(queue.append(line(kilobyte), source: b) == .queued)
        #expect(queue.append(line(""), source: b) == .queued)
        #expect(queue.append(line("z"), source: b) == .dropped(isFirst: false))
        _ = queue.nextBatch()
        #expect(queue.acknowledge(limitExceeded: false).sent > 0)
        #expect(queue.append(line("z"), source: b) == .queued)
    }

    /// Said once for each time that it fills up, not each time that a batch makes room for a moment.
    @Test func droppingIsSaidOnceUntilAllHasGone() {
        var queue = LogQueue()
        let kilobyte = String(repeating: "x", count: 1024)
        func fill() -> [Bool] {
            var said: [Bool] = []
            while said.count < 2 {
                if case .dropped(let isFirst) = queue.append(line(kilobyte), source: a) { said.append(isFirst) }
            }
            return said
        }
        #expect(fill() == [true, false])
        _ = queue.nextBatch()
        _ = queue.acknowledge(limitExceeded: false)
        #expect(!queue.isEmpty)
        #expect(fill() == [false, false])
        while queue.nextBatch() != nil { _ = queue.acknowledge(limitExceeded: false) }
        #expect(fill() == [true, false])
    }

    @Test func emptyLinesAreCountedToo() {
        var queue = LogQueue()
        for _ in 0..<ScriptLimits.queuedLogLines { _ = queue.append(line(""), source: a) }
        #expect(queue.lines == ScriptLimits.queuedLogLines)
        #expect(queue.append(line(""), source: a) == .dropped(isFirst: true))
    }

    @Test func aLimitThatIsExceededEndsItForGood() {
        var queue = LogQueue()
        for text in ["1", "2"] { _ = queue.append(line(text), source: a) }
        _ = queue.append(line("3"), source: b)
        _ = queue.nextBatch()
        #expect(queue.acknowledge(limitExceeded: true) == (2, 1))
        #expect(queue.append(line("4"), source: a) == .refused)
        #expect(queue.nextBatch() == nil && queue.isEmpty)
    }

    @Test func anyCourseKeepsOrderAndBounds() async throws {
        var random = SeededGenerator("LogQueue")
        for _ in 0..<12 {
            await Task.yield()
            var queue = LogQueue()
            var expected: [Data: [String]] = [:]
            var got: [Data: [String]] = [:]
            var number = 0
            for _ in 0..<200 {
                switch Int.random(in: 0..<4, using: &random) {
                case 0, 1:
                    let source = Bool.random(using: &random) ? a : b
                    number += 1
                    let text = "\(number) " + String(repeating: "x", count: Int.random(in: 0...65_536, using: &random))
                    if queue.append(line(text), source: source) == .queued {
                        expected[source, default: []].append(text)
                    }
                case 2: _ = queue.nextBatch()
                default:
                    guard let batch = queue.nextBatch() else { continue }
                    #expect(try batch.request.serializedData().count <= ScriptLimits.logBatchBytes)
                    #expect(!batch.lines.isEmpty)
                    got[batch.source, default: []] += batch.lines.map(\.text)
                    _ = queue.acknowledge(limitExceeded: false)
                }
                #expect(queue.textBytes <= ScriptLimits.queuedLogBytes)
            }
            while let batch = queue.nextBatch() {
                got[batch.source, default: []] += batch.lines.map(\.text)
                _ = queue.acknowledge(limitExceeded: false)
            }
            #expect(got == expected)
            #expect(queue.isEmpty && queue.textBytes == 0 && queue.encodedBytes == 0)
        }
    }
}

@Suite(.timeLimit(.minutes(5))) struct LogSenderTests {
    private let source = Data(repeating: 1, count: 16)
    private let time = FixtureClock()
    private let log = LogLines()
    private let metrics = MetricsRegistry()
    private let store: LogStore
    private let sender: LogSender

    init() {
        store = LogStore(metrics: metrics, logger: log.logger)
        sender = LogSender(store: store, clock: time.clock)
    }

    private func add(_ text: String) {
        store.append(ScriptLogLine(time: time.wall(), level: .info, text: text), source: source)
    }

    private func start(_ connection: RecordingConnection) -> Task<Void, any Error> {
        Task { [sender] in try await sender.run(connection) }
    }

    @Test func linesWaitASecondForOthers() async throws {
        let connection = RecordingConnection()
        let task = start(connection)
        add("1")
        await time.manual.sleepers(1)
        add("2")
        #expect(connection.logs.isEmpty)
        time.manual.advance(by: .seconds(1))
        try await eventually("it is sent") { store.isEmpty }
        #expect(connection.logs.count == 1 && connection.lines == ["1", "2"])
        #expect(time.manual.sleeping == 0)
        task.cancel()
        _ = await task.result
    }

    @Test func linesFromBeforeTheConnectionWaitToo() async throws {
        add("1")
        let connection = RecordingConnection()
        let task = start(connection)
        await time.manual.sleepers(1)
        #expect(connection.attempts == 0)
        time.manual.advance(by: .seconds(1))
        try await eventually("it is sent") { store.isEmpty }
        task.cancel()
        _ = await task.result
    }

    @Test func aFlushDoesNotWait() async throws {
        let connection = RecordingConnection()
        let task = start(connection)
        add("1")
        await time.manual.sleepers(1)
        store.flush()
        try await eventually("it is sent") { store.isEmpty }
        task.cancel()
        _ = await task.result
    }

    @Test func aFullBatchDoesNotWait() async throws {
        let connection = RecordingConnection()
        let task = start(connection)
        for _ in 0..<16 { add(String(repeating: "x", count: 65_000)) }
        #expect(connection.logs.isEmpty)
        add(String(repeating: "y", count: 8_570))
        try await eventually("it is sent") { store.isEmpty }
        for request in connection.logs { #expect(try request.serializedData().count <= 1 << 20) }
        task.cancel()
        _ = await task.result
    }

    @Test func nothingIsLostOrDoubledNeedlesslyOverDroppedConnections() async throws {
        for delivered in [false, true] {
            let first = RecordingConnection()
            first.plan([.drop(delivered: delivered)])
            add("1")
            store.flush()
            await #expect(throws: DRPCError(.closed, "")) { try await sender.run(first) }
            add("2")
            let second = RecordingConnection()
            let task = start(second)
            // What was in flight goes again at once; what came later with it or a second later.
            try await eventually("sent again") {
                time.manual.advance(by: .seconds(1))
                return store.isEmpty
            }
            #expect(second.lines == ["1", "2"])
            task.cancel()
            _ = await task.result
        }
    }

    @Test func aHungCallHoldsNothingBackOnTheNextConnection() async throws {
        let first = RecordingConnection()
        first.plan([.hang])
        add("1")
        store.flush()
        let task = start(first)
        try await eventually("the call hangs") { first.attempts == 1 }
        task.cancel()
        _ = await task.result
        store.close()
        let second = RecordingConnection()
        try await sender.run(second)
        #expect(second.lines == ["1"])
    }

    @Test func unimplementedIsLeftToTheRunLoop() async throws {
        let connection = RecordingConnection()
        connection.plan([.unimplemented])
        add("1")
        store.flush()
        let error = await #expect(throws: DRPCError.self) { try await sender.run(connection) }
        #expect(error?.isUnknownRPC == true)
        #expect(!store.isEmpty)
    }

    @Test func closingDeliversAndReturns() async throws {
        let connection = RecordingConnection()
        let task = start(connection)
        add("1")
        store.close()
        try await task.value
        #expect(connection.lines == ["1"])
    }

    @Test func theControlPlanesLimitEndsSendingOnceAndForAll() async throws {
        let connection = RecordingConnection()
        connection.exceedLimit()
        for number in 0..<3 { add("\(number)") }
        store.flush()
        let task = start(connection)
        try await eventually("it was said") { log.lines.count == 1 }
        add("more")
        store.close()
        try await task.value
        #expect(connection.logs.count == 1)
        #expect(metrics.render().contains(#"agent_script_log_lines_total{result="refused"} 1"#))
    }

    @Test func droppedLinesAreSaidOnceAndCounted() {
        for _ in 0..<40 { add(String(repeating: "x", count: 32_768)) }
        #expect(log.lines.count == 1)
        #expect(metrics.render().contains(#"agent_script_log_lines_total{result="dropped"} 8"#))
    }
}
