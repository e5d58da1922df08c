import AgentCore
import AgentTestSupport
import Foundation
import Testing

@testable import BoundaryLog

@Suite struct WindowTests {
    private func item(_ id: Int64, _ session: String, bytes: Int = 10) -> ForwardWindow.Item {
        .init(id: id, request: request(session, Int(id)), bytes: bytes)
    }

    @Test func sessionsGoBesideEachOtherAndInOrder() {
        var window = ForwardWindow { _ in .seconds(1) }
        for (id, session) in [(1, "a"), (2, "a"), (3, "b"), (5, "a")] { window.admit(item(Int64(id), session)) }
        let a = window.next(now: .zero), b = window.next(now: .zero)
        #expect(a?.session == "a" && a?.request.logs.first?.sequenceNumber == 1)
        #expect(b?.session == "b")
        #expect(window.next(now: .zero) == nil, "one call a session")
        window.succeeded("b")
        #expect(window.takeDone() == nil, "1 is not done")
        window.succeeded("a")
        #expect(window.takeDone() == 1)
        #expect(window.takeDone() == nil)
        #expect(window.next(now: .zero)?.request.logs.first?.sequenceNumber == 2)
        window.succeeded("a")
        #expect(window.takeDone() == 3)
        window.skip(7)
        #expect(window.next(now: .zero)?.request.logs.first?.sequenceNumber == 5)
        window.succeeded("a")
        #expect(window.takeDone() == 7)
        #expect(window.batches == 0 && window.bytes == 0)
    }

    @Test func aFailureHoldsUpItsSessionOnly() {
        var window = ForwardWindow { .seconds($0) }
        window.admit(item(1, "a"))
        window.admit(item(2, "b"))
        _ = window.next(now: .zero)
        window.failed("a", now: .zero)
        #expect(window.next(now: .zero)?.session == "b")
        #expect(window.nextDue == .seconds(1))
        #expect(window.next(now: .milliseconds(999)) == nil)
        #expect(window.next(now: .seconds(1))?.session == "a")
        window.failed("a", now: .seconds(1))
        #expect(window.nextDue == .seconds(3), "longer each time")
    }

    @Test func aPoisonBatchIsGivenUp() {
        var window = ForwardWindow { _ in .seconds(1) }
        window.admit(item(1, "a"))
        window.admit(item(2, "a"))
        for refusal in 1...BoundaryLimits.refusals {
            #expect(window.next(now: .seconds(refusal))?.request.logs.first?.sequenceNumber == 1)
            #expect(window.refused("a", now: .seconds(refusal))?.id == (refusal == BoundaryLimits.refusals ? 1 : nil))
            // The connection may go in between; that is no refusal.
            if refusal == 1 {
                _ = window.next(now: .seconds(5))
                window.abandoned("a")
                #expect(window.next(now: .seconds(5))?.request.logs.first?.sequenceNumber == 1)
                window.failed("a", now: .zero)
            }
        }
        #expect(window.takeDone() == 1)
        #expect(window.next(now: .zero)?.request.logs.first?.sequenceNumber == 2)
    }

    @Test(arguments: [-1, 0, 1]) func whoFallsBehindIsSentTogether(off: Int) {
        var window = ForwardWindow { _ in .seconds(1) }
        let count = BoundaryLimits.mergeFrom + off
        for id in 1...Int64(count) { window.admit(item(id, "a")) }
        let call = window.next(now: .zero)
        #expect(call?.batches == (off < 0 ? 1 : count))
        #expect(call?.request.logs.map { Int($0.sequenceNumber) } == Array(1...(off < 0 ? 1 : count)))
        window.succeeded("a")
        #expect(window.takeDone() == (off < 0 ? 1 : Int64(count)))
    }

    @Test func bytesOfBatchesThatAreSentTogether() {
        var window = ForwardWindow { _ in .seconds(1) }
        for id in 1...40 { window.admit(item(Int64(id), "a", bytes: 32_768)) }
        #expect(window.next(now: .zero)?.batches == BoundaryLimits.mergeBytes / 32_768)
        var other = ForwardWindow { _ in .seconds(1) }
        for id in 1...40 {
            var item = item(Int64(id), "a")
            item.request.confinedProcessName = id < 4 ? "x" : "y"
            other.admit(item)
        }
        #expect(other.next(now: .zero)?.batches == 3, "only what is alike but for its logs")
    }

    @Test func togetherRefusedTheyGoAlone() {
        var window = ForwardWindow { _ in .zero }
        for id in 1...20 { window.admit(item(Int64(id), "a")) }
        #expect(window.next(now: .zero)?.batches == 20)
        #expect(window.refused("a", now: .zero) == nil)
        var given: [Int64] = []
        var sent: [Int] = []
        for id in 21...60 { window.admit(item(Int64(id), "a")) }
        while window.batches > 40 {
            guard let call = window.next(now: .zero) else { break }
            #expect(call.batches == 1)
            let number = Int(call.request.logs[0].sequenceNumber)
            if number == 7 {
                if let item = window.refused("a", now: .zero) { given.append(item.id) }
            } else {
                sent.append(number)
                window.succeeded("a")
            }
        }
        #expect(given == [7])
        #expect(sent == (1...20).filter { $0 != 7 })
        #expect(window.next(now: .zero)?.batches == 40, "the others together again")
    }

    @Test(arguments: [-1, 0, 1]) func limits(off: Int) {
        var window = ForwardWindow { _ in .zero }
        for id in 0..<(BoundaryLimits.windowBatches + off) { window.admit(item(Int64(id + 1), "s\(id)", bytes: 1)) }
        #expect(window.hasRoom == (off < 0))
        var heavy = ForwardWindow { _ in .zero }
        heavy.admit(item(1, "a", bytes: BoundaryLimits.windowBytes + off))
        #expect(heavy.hasRoom == (off < 0))
        var wide = ForwardWindow { _ in .zero }
        wide.admit(item(1, "a"))
        for id in 1..<(BoundaryLimits.windowSpan + off) { wide.skip(Int64(id + 1)) }
        #expect(wide.hasRoom == (off < 0))
    }
}

@Suite(.timeLimit(.minutes(5))) struct ForwarderTests {
    @Test func deliversAndDeletes() async throws {
        let directory = try TemporaryDirectory()
        let test = try TestQueue(TestQueue.configuration(directory))
        let receiver = Receiver()
        let forwarder = test.forwarder()
        for number in 0..<300 { test.add(request("s\(number % 3)", number, logs: 2)) }
        test.add(Request())
        let run = Task { try await forwarder.run(report: receiver.report, classify: Receiver.classify) }
        await forwarder.drained()
        for number in 300..<310 { test.add(request("s0", number, logs: 2)) }
        await forwarder.drained()
        #expect(throws: BoundaryError(.running, "")) {
            _ = try runBlocking { try await forwarder.run(report: receiver.report, classify: Receiver.classify) }
        }
        run.cancel()
        try await run.value
        for session in 0..<3 {
            let numbers = receiver.numbers("s\(session)")
            #expect(numbers == numbers.sorted() && Set(numbers).count == numbers.count)
        }
        #expect(receiver.count == 620)
        #expect(receiver.state.value.requests.contains(Request()), "the empty request, too")
        #expect(test.metric("batches_forwarded_total") == 311)
        #expect(test.queue.status.batches == 0)
        await test.queue.close()
    }

    private func runBlocking(_ body: @escaping @Sendable () async throws -> Void) throws {
        let result = Mutex2<Result<Void, any Error>?>(nil)
        let done = DispatchSemaphore(value: 0)
        Task {
            do { result.value = .success(try await body()) } catch { result.value = .failure(error) }
            done.signal()
        }
        done.wait()
        try result.value?.get()
    }

    @Test func linksThatDropLoseNothing() async throws {
        let directory = try TemporaryDirectory()
        let test = try TestQueue(TestQueue.configuration(directory))
        let receiver = Receiver()
        let forwarder = test.forwarder()
        let calls = Mutex2(0)
        let total = 2_000
        for number in 0..<total { test.add(request("s\(number % 5)", number / 5)) }
        var links = 0
        while test.queue.status.batches > 0 {
            links += 1
            do {
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask {
                        try await forwarder.run(
                            report: { request in
                                let call = calls.update {
                                    $0 += 1; return $0
                                }
                                // Sometimes it arrives and the answer is lost.
                                if call % 23 != 0 { try await receiver.report(request) }
                                if call % 23 == 0 || call % 37 == 0 { throw Receiver.Failure(what: "link") }
                            }, classify: Receiver.classify)
                    }
                    group.addTask { await forwarder.drained() }
                    try await group.next()
                    group.cancelAll()
                }
            } catch { #expect(error as? Receiver.Failure == .init(what: "link")) }
        }
        var duplicates = 0
        for session in 0..<5 {
            let numbers = receiver.numbers("s\(session)")
            duplicates += numbers.count - Set(numbers).count
            var seen = -1
            for number in numbers {
                #expect(number <= seen + 1, "in order but for what is sent again")
                seen = max(seen, number)
            }
            #expect(seen == total / 5 - 1)
        }
        print("links that drop: \(links) links, \(total) batches, \(duplicates) duplicates")
        await test.queue.close()
    }

    @Test func aRefusedBatchIsCountedAndOthersGoOn() async throws {
        let directory = try TemporaryDirectory()
        let test = try TestQueue(TestQueue.configuration(directory))
        let receiver = Receiver()
        let tries = Mutex2<[UInt64: Int]>([:])
        receiver.state.update { state in
            state.answer = { request in
                guard let number = request.logs.first?.sequenceNumber else { return nil }
                let count = tries.update {
                    $0[number, default: 0] += 1; return $0[number] ?? 0
                }
                if request.logs.contains(where: { $0.sequenceNumber == 8 }) { return .init(what: "refused") }
                return number == 40 && count < 4 ? .init(what: "transient") : nil
            }
        }
        for number in 0..<30 { test.add(request("s", number, logs: 4)) }
        let forwarder = test.forwarder()
        let run = Task { try await forwarder.run(report: receiver.report, classify: Receiver.classify) }
        await forwarder.drained()
        run.cancel()
        try await run.value
        #expect(receiver.numbers("s") == (0..<120).filter { !(8..<12).contains($0) })
        #expect(test.metric(#"batches_dropped_total{reason="forward_failed"}"#) == 1)
        #expect(test.metric(#"logs_dropped_total{reason="forward_failed"}"#) == 4)
        #expect(test.metric("batches_forwarded_total") == 29)
        await test.queue.close()
    }

    @Test func aClosedQueueEndsTheRun() async throws {
        let directory = try TemporaryDirectory()
        let test = try TestQueue(TestQueue.configuration(directory))
        let forwarder = test.forwarder()
        let receiver = Receiver()
        async let run: Void = forwarder.run(report: receiver.report, classify: Receiver.classify)
        await test.queue.close()
        try await run
    }

    @Test func waitsBetweenTries() {
        for (failures, most) in [(1, 0.1), (2, 0.2), (7, 6.4), (8, 10), (100, 10), (0, 0.1), (.max, 10)] {
            for _ in 0..<20 {
                let wait = BoundaryForwarder.backoff(failures)
                #expect(wait >= .zero && wait <= .seconds(most))
            }
        }
    }
}
