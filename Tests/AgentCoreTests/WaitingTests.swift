import AgentCore
import AgentTestSupport
import Testing

@Suite struct WatchedTests {
    @Test func aWaitEndsWithTheChangeItWaitsFor() async throws {
        let watched = Watched(0)
        let three = Task { try await watched.first { $0 >= 3 ? "three" : nil } }
        let two = Task { await watched.waitIgnoringCancellation { $0 >= 2 } }
        for _ in 0..<3 { watched.update { $0 += 1 } }
        #expect(try await three.value == "three")
        await two.value
        #expect(try await watched.first { $0 == 3 ? true : nil })
    }

    @Test func cancellationEndsFirstAndTakeAlone() async throws {
        let watched = Watched([Int]())
        let first = Task { try await watched.first(\.first) }
        let take = Task { try await watched.take { $0.popLast() } }
        let deaf = Task { await watched.takeIgnoringCancellation { $0.popLast() } }
        for task in [first, take] {
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
        }
        deaf.cancel()
        watched.update { $0.append(7) }
        #expect(await deaf.value == 7)
        #expect(watched.value.isEmpty)
    }

    @Test func aCancelledTaskFindsNothing() async {
        let watched = Watched(true)
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            _ = try await watched.first { $0 ? true : nil }
        }
        await #expect(throws: CancellationError.self) { try await task.value }
    }

    @Test func oneValueIsTakenOnce() async throws {
        let queue = Watched([Int]())
        let takers = (0..<8).map { _ in Task { try await queue.take { $0.popLast() } } }
        for number in 0..<8 { queue.update { $0.append(number) } }
        var taken: Set<Int> = []
        for taker in takers { taken.insert(try await taker.value) }
        #expect(taken == Set(0..<8))
    }
}

@Suite struct WakeupTests {
    @Test func aSignalIsKeptForTheNextWait() async throws {
        let wakeup = Wakeup()
        wakeup.signal()
        wakeup.signal()
        try await wakeup.wait()
        let waiting = Task { try await wakeup.wait() }
        wakeup.signal()
        try await waiting.value
    }

    @Test func theLaterOfTwoWaitsCounts() async throws {
        let wakeup = Wakeup()
        let (old, new) = (Task { try await wakeup.wait() }, Task { try await wakeup.wait() })
        // One of them gives way to the other.
        let results = [await race(old, new)]
        #expect(results == [false])
        wakeup.signal()
        let both = [(try? await old.value) != nil, (try? await new.value) != nil]
        #expect(both.count { $0 } == 1)
    }

    /// Whether the first of two tasks to end succeeded.
    private func race(_ tasks: Task<Void, any Error>...) async -> Bool {
        let first = Promise<Bool>()
        for task in tasks { Task { first.fulfill((try? await task.value) != nil) } }
        return await first.valueIgnoringCancellation
    }

    @Test func aSignalIsTakenBackAndAWaitIsLimited() async throws {
        let (wakeup, clock) = (Wakeup(), ManualClock())
        wakeup.signal()
        wakeup.clear()
        let waiting = Task { try await wakeup.wait(atMost: .seconds(5), AgentClock(clock)) }
        await clock.sleepers(1)
        clock.advance(by: .seconds(5))
        #expect(try await waiting.value == false)
        wakeup.signal()
        #expect(try await wakeup.wait(atMost: .seconds(5), AgentClock(clock)))
        let cancelled = Task { try await wakeup.wait() }
        cancelled.cancel()
        await #expect(throws: CancellationError.self) { try await cancelled.value }
    }
}

@Suite struct PromiseTests {
    @Test func theFirstValueCounts() async throws {
        let promise = Promise<Int?>()
        let waiting = Task { await promise.valueIgnoringCancellation }
        #expect(promise.fulfill(nil))
        #expect(!promise.fulfill(2))
        #expect(await waiting.value == nil)
        #expect(try await promise.valueUnlessCancelled() == nil)
        #expect(await promise.value(ifCancelled: 3) == nil)
    }

    @Test func cancellationEndsOneWaitOrAllOrNone() async throws {
        let promise = Promise<Int>()
        let deaf = Task { await promise.valueIgnoringCancellation }
        let single = Task { try await promise.valueUnlessCancelled() }
        let fulfilling = Task { await promise.value(ifCancelled: 4) }
        deaf.cancel()
        single.cancel()
        await #expect(throws: CancellationError.self) { try await single.value }
        fulfilling.cancel()
        #expect(await fulfilling.value == 4)
        #expect(await deaf.value == 4)
    }
}

@Suite struct TimeLimitTests {
    private struct Failed: Error {}
    private let clock = ManualClock()
    private var limiter: TimeLimiter { TimeLimiter(clock: AgentClock(clock), executor: nil) }

    @Test func resultsAndErrorsInTimePass() async throws {
        #expect(try await limiter.runUnlessCancelled(atMost: .seconds(1)) { 1 } == 1)
        #expect(await limiter.runIgnoringCancellation(atMost: .seconds(1)) { 2 } == 2)
        await #expect(throws: Failed.self) {
            try await limiter.runUnlessCancelled(atMost: .seconds(1)) { throw Failed() }
        }
        #expect(try await withTimeLimit(.seconds(1), AgentClock(clock), Failed()) { 3 } == 3)
    }

    @Test func overdueWorkIsCancelledAndLeftBehind() async throws {
        let (gate, late) = (Promise<Int>(), Promise<Int>())
        let run = Task {
            try await limiter.runUnlessCancelled(atMost: .seconds(1), late: { late.fulfill($0) }) {
                await gate.valueIgnoringCancellation
            }
        }
        await clock.sleepers(1)
        clock.advance(by: .seconds(1))
        #expect(try await run.value == nil)
        gate.fulfill(5)
        #expect(await late.valueIgnoringCancellation == 5)
    }

    @Test func cancellationEndsTheOneWaitAndNotTheOther() async throws {
        let (gate, late) = (Promise<Int>(), Promise<Int>())
        let ended = Task {
            try await limiter.runUnlessCancelled(atMost: .seconds(1), late: { late.fulfill($0) }) {
                await gate.valueIgnoringCancellation
            }
        }
        let deaf = Task {
            await limiter.runIgnoringCancellation(atMost: .seconds(1)) { await gate.valueIgnoringCancellation }
        }
        await clock.sleepers(2)
        ended.cancel()
        await #expect(throws: CancellationError.self) { try await ended.value }
        deaf.cancel()
        gate.fulfill(6)
        #expect(await late.valueIgnoringCancellation == 6)
        #expect(await deaf.value == 6)
    }

    @Test func aStructuredLimitWaitsForTheEndOfTheBody() async {
        let (ended, cancelled) = (Promise<Void>(), Promise<Void>())
        let clock = clock
        let run = Task {
            try await withTimeLimit(.seconds(1), AgentClock(clock), Failed()) {
                defer { ended.fulfill() }
                await withTaskCancellationHandler {
                    await cancelled.valueIgnoringCancellation
                } onCancel: {
                    cancelled.fulfill()
                }
            }
        }
        await clock.sleepers(1)
        clock.advance(by: .seconds(1))
        await #expect(throws: Failed.self) { try await run.value }
        #expect(!ended.fulfill())
    }
}
