import AgentCore
import AgentProto
import ControlPlaneAPI
import DRPC
import Logging

/// The run loop: connect, run all routines, tear down at the first failure, wait, connect again
/// (docs/contracts/control-plane.md#run-loop). It ends only with ``close()`` or its task.
package final class ControlPlaneLink: Sendable {
    /// The component's name in /healthz.
    package static let component = "control plane"
    /// The error of calls while there is no connection (docs/contracts/agent-socket.md#error-texts).
    package static let offline = DRPCError(.remote(0), "agent not connected to coderd")

    enum Phase: Sendable, Equatable {
        case running
        /// Shutdown has begun: only the routines that remain run.
        case stopping
        /// What is left is being delivered, over as many connections as the budget has time for.
        case delivering
        case finished
    }

    struct State: Sendable {
        var phase = Phase.running
        var status = LinkStatus.off
        var runs = false
        var connection: BoundedConnection?
        /// Indexes of routines that have a task at the moment.
        var alive: Set<Int> = []
        /// Indexes of routines whose task has outlived its connection.
        var stuck: Set<Int> = []
        /// Indexes of routines that the control plane does not implement, on this connection.
        var off: Set<Int> = []
        /// Indexes of routines for which that was said.
        var warned: Set<Int> = []
    }

    let state = Watched(State())
    let routines: [any Routine]
    let runtime: LinkRuntime
    let metrics: LinkMetrics
    private let dialler: any Dialler
    private let health: HealthRegistry

    package init(
        dialler: any Dialler, routines: [any Routine], runtime: LinkRuntime, metrics: MetricsRegistry,
        health: HealthRegistry
    ) {
        (self.dialler, self.routines, self.runtime, self.health) = (dialler, routines, runtime, health)
        self.metrics = LinkMetrics(metrics)
    }

    package var status: LinkStatus { state.read(\.status) }

    /// Keeps a connection up until ``close()``, or the task is cancelled.
    package func run() async {
        let state = state
        health.register(Self.component) { state.read(\.status).report }
        health.register("\(Self.component) routines") { [weak self] in self?.stuckReport }
        state.update { $0.runs = true }
        var backoff = Backoff()
        var delivers = false
        var attempts = 0
        var problem: String?
        while takesAttempt() {
            attempts += 1
            set(connecting: attempts, problem)
            let began: Duration
            do {
                let connection = try await dial()
                attempts = 0
                began = runtime.clock.now()
                let end = await serve(connection)
                log(end)
                problem = end.problem.map(Self.shortened)
            } catch {
                if isOver { break }
                let permanent = (error as? ControlPlaneError)?.isPermanent ?? false
                problem = failed(error, permanent: permanent, attempts: attempts)
                renew(&backoff, &delivers)
                // Its answer will hardly change within the budget.
                if permanent, delivers { break }
                await pause(backoff.next(permanent: permanent, fraction: runtime.random()), delivers)
                continue
            }
            if isOver { break }
            // As if an attempt had been made: /healthz must not say connected while we wait.
            set(connecting: attempts, problem)
            renew(&backoff, &delivers)
            await pause(backoff.next(lived: runtime.clock.now() - began, fraction: runtime.random()), delivers)
        }
        state.update {
            $0.runs = false
            $0.status = .off
        }
        metrics.state.set(LinkStatus.off.number)
    }

    /// Ends the routines that stop at shutdown, now and on later connections.
    package func beginShutdown() {
        state.update { if $0.phase == .running { $0.phase = .stopping } }
    }

    /// Has everything delivered that the remaining routines hold. Without a connection, or when it is
    /// lost, it is tried again until the budget is over; a permanent refusal ends that at once.
    /// - Returns: whether all was delivered within the budget. A routine that the control plane does
    ///   not implement has nothing to deliver.
    package func deliver(within budget: Duration = LinkLimits.delivery) async -> Bool {
        for routine in routines { (routine as? any DrainableRoutine)?.beginDelivery() }
        state.update { if $0.phase != .finished { $0.phase = .delivering } }
        _ = try? await runtime.within(budget, "delivery at shutdown") { await self.everythingDelivered() }
        let left = undelivered()
        if !left.isEmpty {
            runtime.logger.warning(
                "not everything was delivered to the control plane",
                metadata: ["routines": "\(left.joined(separator: ", "))"])
        }
        return left.isEmpty
    }

    /// Closes the connection in order and returns when ``run()`` has ended.
    package func close() async {
        state.update { $0.phase = .finished }
        _ = try? await runtime.within(LinkLimits.teardown * 3, "closing the connection") { [state] in
            try await state.first { $0.runs ? nil : true }
        }
    }

    /// Calls the body with the connection that there is.
    /// - Throws: ``offline`` at once when there is none; what the body throws.
    package func withConnection<T>(_ body: (any AgentConnection) async throws -> T) async throws -> T {
        guard let connection = state.read(\.connection) else { throw Self.offline }
        return try await body(connection)
    }

    /// Passes an app's status upward.
    /// - Throws: ``offline``; `.remote(12)` when the control plane is older than API 2.8; the control
    ///   plane's own error as it is.
    package func updateAppStatus(
        _ request: Coder_Agent_V2_UpdateAppStatusRequest
    ) async throws -> Coder_Agent_V2_UpdateAppStatusResponse {
        try await withConnection { connection in
            guard connection.apiVersion.hasAppStatus else {
                throw DRPCError(
                    .remote(DRPCError.unimplementedCode),
                    "the control plane speaks API \(connection.apiVersion); app status needs 2.8 or newer")
            }
            do {
                return try await connection.call(AgentAPI.updateAppStatus, request)
            } catch let error as DRPCError where error.isDisconnect {
                throw Self.offline
            }
        }
    }

    // MARK: - Steps of the loop

    /// Whether to connect once more.
    private func takesAttempt() -> Bool {
        if Task.isCancelled { return false }
        switch state.read(\.phase) {
        case .running, .stopping: return true
        case .delivering: return !undelivered().isEmpty
        case .finished: return false
        }
    }

    /// Begins anew with short waits once delivery has begun: there are only seconds left.
    private func renew(_ backoff: inout Backoff, _ delivers: inout Bool) {
        guard !delivers, state.read({ $0.phase == .delivering }) else { return }
        (backoff, delivers) = (Backoff(), true)
    }

    private var isOver: Bool { Task.isCancelled || state.read { $0.phase == .finished } }

    /// - Throws: `CancellationError` when the loop ends meanwhile.
    private func dial() async throws -> any AgentConnection {
        let (dialler, runtime, state) = (dialler, runtime, state)
        return try await withThrowingTaskGroup(of: (any AgentConnection)?.self) { group in
            group.addTask {
                try await runtime.within(
                    LinkLimits.dial, "connecting to the control plane", late: { await $0.close() }
                ) { try await dialler.dial() }
            }
            group.addTask {
                _ = try await state.first { $0.phase == .finished ? true : nil }
                return nil
            }
            defer { group.cancelAll() }
            if let connection = try await group.next() ?? nil { return connection }
            group.cancelAll()
            // A connection that came at the last moment is not used.
            while let result = await group.nextResult() { await (try? result.get())?.close() }
            throw CancellationError()
        }
    }

    /// Waits, but no longer than until delivery begins, or to its end.
    private func pause(_ wait: Duration, _ delivers: Bool) async {
        let (state, clock) = (state, runtime.clock)
        await withTaskGroup(of: Void.self) { group in
            group.addTask { try? await clock.sleep(wait) }
            group.addTask {
                _ = try? await state.first { state -> Bool? in
                    switch state.phase {
                    case .running, .stopping: nil
                    case .delivering: delivers ? nil : true
                    case .finished: true
                    }
                }
            }
            await group.next()
            group.cancelAll()
        }
    }

    private func set(connecting attempts: Int, _ problem: String?) {
        let now = runtime.wall().proto
        let number = state.update { state in
            switch state.status {
            // Stays until the control plane has another answer.
            case .refused: break
            case .connecting(let since, _, _):
                state.status = .connecting(since: since, attempts: attempts, problem: problem)
            case .off, .connected: state.status = .connecting(since: now, attempts: attempts, problem: problem)
            }
            return state.status.number
        }
        metrics.state.set(number)
    }

    /// - Returns: the reason, for /healthz.
    private func failed(_ error: any Error, permanent: Bool, attempts: Int) -> String {
        let reason = Self.shortened("\(error)")
        let now = runtime.wall().proto
        let (news, number) = state.update { state in
            let before = state.status
            switch (before, permanent) {
            case (.refused(let since, _), true): state.status = .refused(since: since, reason: reason)
            case (_, true): state.status = .refused(since: now, reason: reason)
            case (.connecting(let since, _, _), false):
                state.status = .connecting(since: since, attempts: attempts, problem: reason)
            case (_, false): state.status = .connecting(since: now, attempts: attempts, problem: reason)
            }
            return (Self.isNews(before, state.status), state.status.number)
        }
        metrics.dialFailures.with(permanent ? "true" : "false").increment()
        metrics.state.set(number)
        // An outage of an hour is one warning, not four hundred.
        runtime.logger.log(
            level: news ? .warning : .debug,
            permanent ? "the control plane refuses this agent" : "cannot connect to the control plane",
            metadata: ["error": "\(reason)", "attempts": "\(attempts)"])
        return reason
    }

    private static func isNews(_ before: LinkStatus, _ after: LinkStatus) -> Bool {
        switch (before, after) {
        case (.connecting(_, _, let old), .connecting(_, _, let new)): old != new
        case (.refused(_, let old), .refused(_, let new)): old != new
        default: true
        }
    }

    /// What /healthz says of routines that hang; nil when none does.
    private var stuckReport: HealthRegistry.Report? {
        let names = state.read(\.stuck).sorted().map { routines[$0].name }
        if names.isEmpty { return nil }
        return .init(
            "\(Self.component): hanging since an earlier connection, and not done until it ends: "
                + names.joined(separator: ", "))
    }

    static func shortened(_ text: String) -> String { String(text.prefix(LinkLimits.reasonCharacters)) }

    // MARK: - Delivery

    /// Names of the routines that still hold something.
    private func undelivered() -> [String] {
        let off = state.read(\.off)
        return routines.enumerated().compactMap { index, routine in
            guard let drainable = routine as? any DrainableRoutine, !off.contains(index) else { return nil }
            return drainable.isDrained ? nil : routine.name
        }
    }

    /// Returns when nothing is left, or nothing more can be delivered since the loop has ended.
    private func everythingDelivered() async {
        await withTaskGroup(of: Void.self) { race in
            race.addTask { [state] in _ = try? await state.first { $0.runs ? nil : true } }
            race.addTask { [state, routines] in
                await withTaskGroup(of: Void.self) { all in
                    for (index, routine) in routines.enumerated() {
                        guard let routine = routine as? any DrainableRoutine else { continue }
                        all.addTask {
                            await withTaskGroup(of: Void.self) { either in
                                either.addTask { await routine.drained() }
                                either.addTask { _ = try? await state.first { $0.off.contains(index) ? true : nil } }
                                await either.next()
                                either.cancelAll()
                            }
                        }
                    }
                }
            }
            await race.next()
            race.cancelAll()
        }
    }
}

extension DRPCError {
    /// Whether it only says that the connection, or the task, is ending.
    var isDisconnect: Bool { code == .closed || code == .endOfStream || code == .cancelled }
}
