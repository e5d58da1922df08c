import AgentCore
import DRPC
import Glibc
import SwiftProtobuf

/// What the control plane has seen: every call and every connection, the last of each kind with
/// complete counts (``SimulatorLimits/callsKept``, ``SimulatorLimits/callBytesKept``).
package final class Recorder: Sendable {
    /// What is kept; what isn't is counted all the same.
    package struct Configuration: Sendable {
        /// Calls kept of each rpc; 0 keeps none.
        package var callsKept = SimulatorLimits.callsKept
        /// Encoded bytes of the calls kept of each rpc.
        package var callBytesKept = SimulatorLimits.callBytesKept
        /// Overrides `callsKept` by rpc name (`BatchCreateLogs`).
        package var keptByRPC: [String: Int] = [:]

        package init() {}
    }

    private let state = Watched(Recording())
    private let configuration: Configuration
    private let clock: AgentClock
    private let wallTime: @Sendable () -> Duration
    private let onEvent: (@Sendable (RecordedEvent) -> Void)?

    /// - Parameters:
    ///   - clock: runs the deadlines of waiters.
    ///   - wallTime: time since 1970, for the records.
    ///   - onEvent: called with everything as it is recorded, in order of its number, on the event loop
    ///     that brought it, while the recorder is locked: it must not wait, nor ask the recorder.
    package init(
        configuration: Configuration = Configuration(), clock: AgentClock,
        wallTime: @escaping @Sendable () -> Duration = Recorder.systemTime,
        onEvent: (@Sendable (RecordedEvent) -> Void)? = nil
    ) {
        self.configuration = configuration
        self.clock = clock
        self.wallTime = wallTime
        self.onEvent = onEvent
    }

    /// Time since 1970.
    package static let systemTime: @Sendable () -> Duration = {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }

    /// Everything recorded so far.
    package var recording: Recording { state.value }

    /// Calls received of an rpc, those that are not kept any more too.
    package func count<Request, Response>(_ method: Method<Request, Response>) -> Int {
        recording.count(method)
    }

    /// The kept requests of an rpc that took effect, oldest first.
    package func requests<Request, Response>(_ method: Method<Request, Response>) -> [Request] {
        recording.requests(method)
    }

    /// Records a call.
    package func call(
        rpc: String, connection: Int, request: any Message, outcome: RecordedCall.Outcome = .answered
    ) {
        let limit = configuration.keptByRPC[rpc] ?? configuration.callsKept
        // Encoded only to know its size, so only where it counts.
        let bytes = limit > 0 ? ((try? request.serializedBytes() as [UInt8])?.count ?? 0) : 0
        record { recording, number in
            let call = RecordedCall(
                number: number, at: wallTime(), connection: connection, rpc: rpc, request: request, outcome: outcome)
            recording.add(call, bytes: bytes, limit: limit, byteLimit: configuration.callBytesKept)
            return .call(call)
        }
    }

    /// Records a change of a connection.
    package func connection(_ number: Int, _ change: ConnectionEvent.Change) {
        record { recording, sequence in
            let event = ConnectionEvent(number: sequence, at: wallTime(), connection: number, change: change)
            recording.add(event)
            return .connection(event)
        }
    }

    private func record(_ body: (inout Recording, UInt64) -> RecordedEvent) {
        state.update { recording in
            recording.lastNumber += 1
            let event = body(&recording, recording.lastNumber)
            onEvent?(event)
        }
    }

    /// Returns the recording once the condition holds for it; looked at after each record, and by no
    /// clock.
    /// - Parameter what: for the error at the deadline: `READY is reported`.
    /// - Throws: ``SimulatorError`` with `.timeout`, or CancellationError.
    @discardableResult
    package func wait(
        _ what: String, within limit: Duration = .seconds(60),
        until condition: @escaping @Sendable (Recording) throws -> Bool
    ) async throws -> Recording {
        try await withTimeLimit(
            limit, clock, SimulatorError(.timeout, "not within \(limit): \(what); seen: \(recording.summary)")
        ) { [self] in
            while true {
                let recording = recording
                if try condition(recording) { return recording }
                _ = try await state.first { $0.lastNumber != recording.lastNumber ? true : nil }
            }
        }
    }
}
