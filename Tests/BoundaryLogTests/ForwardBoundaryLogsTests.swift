import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import ControlPlaneTestSupport
import DRPC
import SwiftProtobuf
import Testing

@testable import BoundaryLog

/// What the routine takes for a refusal of a batch, and what for an outage of the control plane.
@Suite(.timeLimit(.minutes(2))) struct ForwardBoundaryLogsTests {
    /// A control plane that answers as a test says.
    private final class Plane: UnaryConnection {
        let apiVersion: APIVersion
        let taken = Watched<[Request]>([])
        let attempts = Watched(0)
        private let report: @Sendable (Int) throws -> Void
        private let others: @Sendable () throws -> Void

        /// - Parameters:
        ///   - others: what becomes of calls other than ReportBoundaryLogs.
        ///   - report: what becomes of ReportBoundaryLogs, by the number of the attempt from 1.
        init(
            _ version: APIVersion = APIVersion(2, 9), others: @escaping @Sendable () throws -> Void = {},
            report: @escaping @Sendable (Int) throws -> Void
        ) {
            (apiVersion, self.others, self.report) = (version, others, report)
        }

        func call<Input: Message, Output: Message>(
            _ method: Method<Input, Output>, _ input: Input
        ) async throws -> Output {
            guard let request = input as? Request else {
                try others()
                return Output()
            }
            try report(
                attempts.update { count in
                    count += 1
                    return count
                })
            taken.update { $0.append(request) }
            return Output()
        }

        func ended() async -> String { "" }
        func close() async {}
    }

    private static let answer = DRPCError(.remote(0), "insert audit log: no")

    /// Runs the routine over a queue with one batch of two logs until the condition holds.
    /// - Returns: what the routine threw, if it ended by itself.
    @discardableResult
    private func forward(
        over plane: Plane, until condition: @escaping @Sendable (TestQueue) -> Bool
    ) async throws -> (any Error)? {
        let directory = try TemporaryDirectory()
        let test = try TestQueue(TestQueue.configuration(directory))
        var batch = request("s", 1, logs: 2)
        batch.confinedProcessName = "curl"
        #expect(test.add(batch))
        let routine = ForwardBoundaryLogs(forwarder: test.forwarder(), queue: test.queue)
        #expect(!routine.isDrained)
        let failure = Watched<(any Error)?>(nil)
        let run = Task {
            do { try await routine.run(plane) } catch { failure.update { $0 = error } }
        }
        try await eventually("the condition") { condition(test) || failure.value != nil }
        run.cancel()
        await run.value
        _ = await test.queue.close()
        return failure.value
    }

    @Test func aBatchIsDeliveredWithTheFieldsOf29() async throws {
        let plane = Plane { _ in }
        #expect(try await forward(over: plane) { $0.queue.status.batches == 0 } == nil)
        let batch = try #require(plane.taken.value.first)
        #expect(plane.taken.value.count == 1)
        #expect(batch.sessionID == "s" && batch.confinedProcessName == "curl")
        #expect(batch.logs.map(\.sequenceNumber) == [2, 3])
    }

    @Test func anOlderControlPlaneGetsNoFieldsOf29() async throws {
        let plane = Plane(APIVersion(2, 8)) { _ in }
        try await forward(over: plane) { $0.queue.status.batches == 0 }
        let batch = try #require(plane.taken.value.first)
        #expect(batch.sessionID == "" && batch.confinedProcessName == "")
        #expect(batch.logs.map(\.sequenceNumber) == [0, 0])
        #expect(batch.logs.map(\.httpRequest.method) == ["GET", "GET"])
    }

    /// It answers others: the batch is the reason.
    @Test func aBatchThatIsRefusedAgainAndAgainIsDropped() async throws {
        let plane = Plane { _ in throw Self.answer }
        let failure = try await forward(over: plane) { test in
            test.metric("batches_dropped_total{reason=\"forward_failed\"}") >= 0 && test.queue.status.batches == 0
        }
        #expect(failure == nil)
        #expect(plane.attempts.value == BoundaryLimits.refusals)
        #expect(plane.taken.value.isEmpty)
    }

    /// It answers nothing: the batch waits for better days.
    @Test func anOutageDropsNothing() async throws {
        let plane = Plane(others: { throw Self.answer }) { attempt in
            if attempt <= 3 * BoundaryLimits.refusals { throw Self.answer }
        }
        #expect(try await forward(over: plane) { $0.queue.status.batches == 0 } == nil)
        #expect(plane.taken.value.count == 1)
        #expect(plane.attempts.value == 3 * BoundaryLimits.refusals + 1)
    }

    /// These end the routine, and the batch stays for the next connection.
    @Test(arguments: [
        DRPCError(.closed, "the connection is closed"), DRPCError(.remote(DRPCError.unimplementedCode), "unknown rpc"),
    ])
    func aLostConnectionAndAnUnknownCallEndTheRoutine(_ error: DRPCError) async throws {
        let plane = Plane { _ in throw error }
        let failure = try await forward(over: plane) { _ in false }
        #expect((failure as? DRPCError)?.code == error.code)
        #expect(plane.attempts.value == 1)
    }
}
