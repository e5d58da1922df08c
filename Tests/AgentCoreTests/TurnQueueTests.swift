import AgentCore
import AgentTestSupport
import Testing

@Suite struct TurnQueueTests {
    private static let full = CoreError(.invalid, "full")
    private static let over = CoreError(.pathOccupied, "over")

    private func waiting(_ queue: TurnQueue, _ count: Int) async throws {
        try await eventually("\(count) wait") { queue.waiting == count }
    }

    @Test func turnsComeInOrderButForTheFirst() async throws {
        let queue = TurnQueue(limit: 3) { Self.full }
        try await queue.take()
        let (names, continuation) = AsyncStream.makeStream(of: Int.self)
        for number in 0..<3 {
            Task {
                try await queue.take()
                continuation.yield(number)
            }
            try await waiting(queue, number + 1)
        }
        await #expect(throws: Self.full) { try await queue.take() }
        Task {
            try await queue.take(first: true)
            continuation.yield(9)
        }
        try await waiting(queue, 4)
        var order: [Int] = []
        queue.give()
        for await name in names {
            order.append(name)
            if order.count == 4 { break }
            queue.give()
        }
        #expect(order == [9, 0, 1, 2])
        queue.give()
        // Free again.
        try await queue.take()
    }

    @Test func whoIsCancelledWaitsNoMore() async throws {
        let queue = TurnQueue(limit: 3) { Self.full }
        try await queue.take()
        let task = Task { try await queue.take() }
        try await waiting(queue, 1)
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        #expect(queue.waiting == 0)
        queue.give()
        let cancelled = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            try await queue.take()
        }
        await #expect(throws: CancellationError.self) { try await cancelled.value }
        try await queue.take()
    }

    @Test func theEndIsToldToAll() async throws {
        let queue = TurnQueue(limit: 3) { Self.full }
        try await queue.take()
        let task = Task { try await queue.take() }
        try await waiting(queue, 1)
        queue.end(Self.over)
        await #expect(throws: Self.over) { try await task.value }
        await #expect(throws: Self.over) { try await queue.take() }
        queue.give()
        await #expect(throws: Self.over) { try await queue.take(first: true) }
    }

    @Test func severalWorkAtOnceAndCancelledOnesArePassedOver() async throws {
        let queue = TurnQueue(atOnce: 2)
        try await queue.take()
        try await queue.take()
        let cancelled = Task { try await queue.take() }
        try await waiting(queue, 1)
        let next = Task { try await queue.take() }
        try await waiting(queue, 2)
        cancelled.cancel()
        _ = await cancelled.result
        queue.give()
        try await next.value
        queue.give()
        try await queue.take()
    }
}
