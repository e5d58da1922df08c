import AgentTestSupport
import Glibc
import Synchronization
import Testing

@testable import AgentCore

@Suite(.timeLimit(.minutes(5))) struct BlockingPoolTests {
    /// Holds calls up until it is opened.
    private final class Gate: Sendable {
        private let ends: (CInt, CInt)
        init() {
            var pair: [CInt] = [-1, -1]
            #expect(pipe(&pair) == 0)
            ends = (pair[0], pair[1])
        }
        deinit { close(ends.0) }
        func pass() {
            var byte: UInt8 = 0
            _ = read(ends.0, &byte, 1)
        }
        func open() { close(ends.1) }
    }

    private final class Count: Sendable {
        private let number = Mutex(0)
        var value: Int { number.withLock { $0 } }
        func add() { number.withLock { $0 += 1 } }
    }

    private struct Failure: Error {}

    @Test func runsAndThrows() async throws {
        let pool = BlockingPool(threads: 2)
        #expect(pool.threads == 0)
        #expect(try await pool.run { 1 } == 1)
        #expect((1...2).contains(pool.threads))
        #expect(try await pool.runToEnd { 2 } == 2)
        await #expect(throws: Failure.self) { try await pool.run { throw Failure() } }
        await #expect(throws: Failure.self) { try await pool.runToEnd { throw Failure() } }
        // A thread may not have come back from one call when the next is made.
        #expect((1...2).contains(pool.threads))
        await pool.shutdown()
        #expect(pool.threads == 0)
    }

    @Test func growsToItsLimitAndShrinksToOne() async throws {
        let pool = BlockingPool(threads: 3, idleSeconds: 0)
        let gate = Gate()
        let running = Count()
        let calls = (0..<5).map { _ in
            Task {
                try await pool.run {
                    running.add()
                    gate.pass()
                }
            }
        }
        try await eventually("three run") { running.value == 3 }
        #expect(pool.threads == 3)
        gate.open()
        for call in calls { try await call.value }
        #expect(running.value == 5)
        try await eventually("one is left") { pool.threads == 1 }
        #expect(try await pool.run { true })
        await pool.shutdown()
    }

    /// Calls that never return take the threads one after the other, and the last of the reserve is the limit.
    @Test func theReserveTakesWhatWaitsForLong() async throws {
        let pool = BlockingPool(threads: 2, reserve: 3, idleSeconds: 0, patience: 20)
        let (gate, last) = (Gate(), Gate())
        let (hung, done) = (Count(), Count())
        for _ in 0..<4 {
            pool.submit { _ in
                hung.add()
                gate.pass()
            }
        }
        // Four of five hang; the fifth does the rest, in order.
        for _ in 0..<100 { pool.submit { _ in done.add() } }
        try await eventually("the others are done") { hung.value == 4 && done.value == 100 }
        pool.submit { _ in
            hung.add()
            last.pass()
        }
        try await eventually("all hang") { hung.value == 5 }
        let late = Task { try await pool.runToEnd { true } }
        #expect(pool.threads == 5)
        last.open()
        #expect(try await late.value)
        gate.open()
        try await eventually("one is left") { pool.threads == 1 }
        await pool.shutdown()
        #expect(pool.threads == 0)
    }

    /// One that looks for calls that wait is there as long as there may be some, and is no worker.
    @Test func theReserveRestsWhenCallsComeFast() async throws {
        let pool = BlockingPool(threads: 2, reserve: 3, idleSeconds: 0, patience: 100)
        let gate = Gate()
        let (running, done) = (Count(), Count())
        for _ in 0..<50 {
            pool.submit { _ in
                running.add()
                gate.pass()
                done.add()
            }
        }
        try await eventually("two run") { running.value >= 2 }
        gate.open()
        try await eventually("all are done") { done.value == 50 }
        try await eventually("one is left") { pool.threads == 1 }
        await pool.shutdown()
        #expect(pool.threads == 0)
    }

    @Test func oneThreadKeepsTheOrder() async throws {
        let pool = BlockingPool(threads: 1)
        let order = Mutex<[Int]>([])
        for number in 0..<1_000 { pool.submit { _ in order.withLock { $0.append(number) } } }
        try await pool.runToEnd {}
        #expect(order.withLock { $0 } == Array(0..<1_000))
        await pool.shutdown()
    }

    @Test func manyCallersLoseNothing() async throws {
        let pool = BlockingPool(threads: 4, idleSeconds: 0)
        let sum = try await withThrowingTaskGroup(of: Int.self) { group in
            for number in 0..<5_000 { group.addTask { try await pool.run { number } } }
            return try await group.reduce(0, +)
        }
        #expect(sum == 4_999 * 5_000 / 2)
        await pool.shutdown()
    }

    @Test func aCancelledCallThatWaitsDoesNotRun() async throws {
        let pool = BlockingPool(threads: 1)
        let gate = Gate()
        let running = Count()
        let first = Task {
            try await pool.run {
                running.add()
                gate.pass()
                return 1
            }
        }
        try await eventually("it runs") { running.value == 1 }
        let waiting = Task { try await pool.run { 2 } }
        let kept = Task { try await pool.runToEnd { 3 } }
        first.cancel()
        waiting.cancel()
        kept.cancel()
        await #expect(throws: CancellationError.self) { try await waiting.value }
        gate.open()
        #expect(try await first.value == 1, "it had begun")
        #expect(try await kept.value == 3)
        await pool.shutdown()
    }

    @Test func shutdownRefusesWhatWaitsAndEndsWhatRuns() async throws {
        let pool = BlockingPool(threads: 1)
        let gate = Gate()
        let running = Count()
        let first = Task {
            try await pool.runToEnd {
                running.add()
                gate.pass()
                return 1
            }
        }
        try await eventually("it runs") { running.value == 1 }
        let queued = Count()
        let second = Task {
            try await pool.runToEnd { queued.add() }
        }
        async let down: Void = pool.shutdown()
        await #expect(throws: CancellationError.self) { try await second.value }
        gate.open()
        await down
        #expect(try await first.value == 1 && queued.value == 0 && pool.threads == 0)
        await #expect(throws: CancellationError.self) { try await pool.run {} }
        await pool.shutdown()
    }

    /// The kernel's refusals, as many as there are to come.
    private final class Refusals: Sendable {
        let left = Mutex(Int.max)
        func start(_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
            let refuses = left.withLock { left in
                guard left > 0 else { return false }
                left -= 1
                return true
            }
            return refuses ? false : startThread(name, body)
        }
    }

    @Test func withoutAnyThreadCallsAreRefusedAtOnce() async throws {
        let refusals = Refusals()
        let pool = BlockingPool(threads: 2, reserve: 2, start: refusals.start)
        await #expect(throws: CoreError(.noThread, "")) { try await pool.run { 1 } }
        await #expect(throws: CoreError(.noThread, "")) { try await pool.runToEnd { 1 } }
        let runs = Promise<Bool>()
        pool.submit { runs.fulfill($0) }
        #expect(await runs.valueIgnoringCancellation == false)
        #expect(pool.threads == 0)
        // It asks the kernel again.
        refusals.left.withLock { $0 = 0 }
        #expect(try await pool.run { 2 } == 2)
        await pool.shutdown()
        #expect(pool.threads == 0)
    }

    @Test func aPoolThatCannotGrowGoesOnWithWhatItHas() async throws {
        let refusals = Refusals()
        refusals.left.withLock { $0 = 0 }
        let pool = BlockingPool(threads: 4, reserve: 2, patience: 10, startsNow: true, start: refusals.start)
        #expect(pool.threads == 1)
        refusals.left.withLock { $0 = .max }
        let gate = Gate()
        let running = Count()
        let first = Task {
            try await pool.run {
                running.add()
                gate.pass()
            }
        }
        try await eventually("it runs") { running.value == 1 }
        let others = (0..<20).map { number in Task { try await pool.run { number } } }
        gate.open()
        try await first.value
        for (number, other) in others.enumerated() { #expect(try await other.value == number) }
        #expect(pool.threads == 1)
        await pool.shutdown()
        #expect(pool.threads == 0)
        await #expect(throws: CancellationError.self) { try await pool.run {} }
    }

    @Test func threadsMayBeNicerThanTheOthers() async throws {
        @Sendable func niceness() -> CInt { getpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0) }
        let pool = BlockingPool(threads: 1, niceness: 3)
        #expect(try await pool.run { niceness() } == min(19, niceness() + 3))
        await pool.shutdown()
    }
}
