import AgentCore
import AgentProto
import Logging
import SwiftProtobuf
import Synchronization

/// Sends what is in the queue to the control plane: at least once, in order within each boundary
/// session, across connections and sessions of the agent.
package final class BoundaryForwarder: Sendable {
    /// What a failed call means.
    package enum Failure: Sendable, Equatable {
        /// The connection failed (or has no such rpc): ``run(report:classify:)`` ends with the error, and
        /// the next one goes on.
        case link
        /// The connection works: the batch is sent again after a while.
        case transient
        /// The control plane takes the batch for invalid.
        case refused
    }

    package typealias Request = Coder_Agent_V2_ReportBoundaryLogsRequest

    private struct Saved {
        var window: ForwardWindow
        /// The newest batch that was read.
        var cursor: Int64 = 0
    }

    private enum Event: Sendable {
        case read([QueuedBatch])
        case sent(ForwardWindow.Call, (any Error)?)
        case due
    }

    private let queue: DurableQueue
    private let clock: AgentClock
    private let metrics: BoundaryMetrics
    private let logger: Logger
    /// Nil while a run has it.
    private let saved: Mutex<Saved?>

    /// - Parameter backoff: how long to wait after so many failures in a row (from 1).
    package init(
        queue: DurableQueue, clock: AgentClock, metrics: BoundaryMetrics, logger: Logger,
        backoff: @escaping @Sendable (Int) -> Duration = BoundaryForwarder.backoff
    ) {
        self.queue = queue
        self.clock = clock
        self.metrics = metrics
        self.logger = logger
        saved = Mutex(Saved(window: ForwardWindow(backoff: backoff)))
    }

    /// That of the run loop (docs/contracts/control-plane.md#run-loop): 100 ms to 10 s, doubled each time, full jitter.
    package static let backoff: @Sendable (Int) -> Duration = { failures in
        min(.seconds(10), .milliseconds(100) * (1 << min(max(failures - 1, 0), 10))) * Double.random(in: 0...1)
    }

    /// Returns when nothing is left to forward of what was there at the mark (or at this call), or the
    /// task is cancelled. What is left then stays on disk for the next start.
    package func drained(through mark: Int? = nil) async { await queue.drained(through: mark) }

    /// Forwards over one connection until the task is cancelled or the queue closed.
    /// - Parameters:
    ///   - report: sends one request and returns when it is acknowledged. Called for several sessions
    ///     at once.
    ///   - classify: what an error of `report` means.
    /// - Throws: the error that `classify` called `link`; `BoundaryError.running`.
    package func run(
        report: @escaping @Sendable (Request) async throws -> Void,
        classify: @escaping @Sendable (any Error) -> Failure
    ) async throws {
        let taken = saved.withLock { saved in
            defer { saved = nil }
            return saved
        }
        guard var state = taken else {
            throw BoundaryError(.running, "boundary logs are being forwarded over another connection already")
        }
        let linkError = await forward(&state, report, classify)
        saved.withLock { [state] in $0 = state }
        if let linkError { throw linkError }
    }

    /// One connection's worth.
    private struct Turn: Sendable {
        var saved: Saved
        var calls = 0
        var reads = false
        var waits = false
        var ending = false
        var linkError: (any Error)?
    }

    private func forward(
        _ state: inout Saved, _ report: @escaping @Sendable (Request) async throws -> Void,
        _ classify: @Sendable (any Error) -> Failure
    ) async -> (any Error)? {
        var turn = Turn(saved: state)
        await withTaskGroup(of: Event.self) { group in
            while true {
                if Task.isCancelled { turn.ending = true }
                if turn.ending {
                    // What is under way still counts: its answer may be here already.
                    group.cancelAll()
                } else {
                    start(&turn, &group, report)
                }
                guard let event = await group.next() else { return }
                handle(event, &turn, classify)
            }
        }
        state = turn.saved
        return turn.linkError
    }

    private func start(
        _ turn: inout Turn, _ group: inout TaskGroup<Event>,
        _ report: @escaping @Sendable (Request) async throws -> Void
    ) {
        let now = clock.now()
        while turn.calls < BoundaryLimits.calls, let call = turn.saved.window.next(now: now) {
            turn.calls += 1
            group.addTask {
                do {
                    try await report(call.request)
                    return .sent(call, nil)
                } catch {
                    return .sent(call, error)
                }
            }
        }
        if !turn.reads, turn.saved.window.hasRoom {
            turn.reads = true
            let (window, cursor, queue) = (turn.saved.window, turn.saved.cursor, queue)
            group.addTask {
                await .read(
                    queue.read(
                        after: cursor, batches: BoundaryLimits.windowBatches - window.batches,
                        bytes: BoundaryLimits.windowBytes - window.bytes))
            }
        }
        if !turn.waits, let due = turn.saved.window.nextDue {
            turn.waits = true
            group.addTask { [clock] in
                // Looks again soon: another session may be due before.
                try? await clock.sleep(min(max(.zero, due - now), BoundaryLimits.duePollInterval))
                return .due
            }
        }
    }

    private func handle(_ event: Event, _ turn: inout Turn, _ classify: @Sendable (any Error) -> Failure) {
        switch event {
        case .due: turn.waits = false
        case .read(let batches):
            turn.reads = false
            admit(batches, &turn.saved)
            // Nothing comes of a queue that is closed.
            if batches.isEmpty { turn.ending = true }
        case .sent(let call, nil):
            turn.calls -= 1
            turn.saved.window.succeeded(call.session)
            metrics.forwarded(call.batches)
        case .sent(let call, let error?):
            turn.calls -= 1
            // Errors of calls that we gave up ourselves say nothing.
            switch turn.ending ? .link : classify(error) {
            case .link:
                turn.saved.window.abandoned(call.session)
                if !turn.ending, !Task.isCancelled { turn.linkError = error }
                turn.ending = true
            case .transient:
                turn.saved.window.failed(call.session, now: clock.now())
                logger.debug("boundary logs were not taken; they are sent again", metadata: ["error": "\(error)"])
            case .refused:
                guard let item = turn.saved.window.refused(call.session, now: clock.now()) else { break }
                metrics.dropped(.forwardFailed, logs: item.request.logs.count)
                logger.error(
                    "the control plane refuses a batch of boundary logs; it is dropped",
                    metadata: [
                        "error": "\(error)", "logs": "\(item.request.logs.count)",
                        "refusals": "\(BoundaryLimits.refusals)",
                    ])
            }
        }
        if let done = turn.saved.window.takeDone() { queue.acknowledge(through: done) }
    }

    private func admit(_ batches: [QueuedBatch], _ state: inout Saved) {
        for batch in batches {
            state.cursor = batch.id
            do {
                let request = try Request(serializedBytes: batch.payload)
                state.window.admit(.init(id: batch.id, request: request, bytes: batch.payload.count))
            } catch {
                // It was a request when it came in.
                metrics.dropped(.queueDamaged, logs: batch.logs)
                logger.error(
                    "a batch in the boundary log queue is damaged; it is dropped", metadata: ["error": "\(error)"])
                state.window.skip(batch.id)
            }
        }
    }
}
