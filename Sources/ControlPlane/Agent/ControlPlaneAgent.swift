import AgentProto
import Logging
import ServiceLifecycle

/// The agent's side of the control plane: one life after the other, until the daemon ends.
///
/// It shuts down when its service group does. Put it last in the group: a group ends its services in
/// reverse order, and the control plane must hear of the end while everything else still works.
package final class ControlPlaneAgent: Service {
    private struct State: Sendable {
        var life: AgentLife?
        var ends = false
        var delivered: Bool?
    }

    private let state = Watched(State())
    private let runtime: LinkRuntime
    private let reinit: ReinitWatcher?
    private let makeLife: @Sendable () async -> AgentLife
    private let stopAcceptingWork: @Sendable () async -> Void
    private let closeLocal: @Sendable () async -> Void

    /// - Parameters:
    ///   - reinit: nil never starts anew.
    ///   - stopAcceptingWork: has the local APIs take nothing new; only at the daemon's end.
    ///   - closeLocal: closes sockets and ends children, after delivery; only at the daemon's end.
    ///   - makeLife: composes a life with fresh routines. What is to outlive it is captured.
    package init(
        runtime: LinkRuntime, reinit: ReinitWatcher?, stopAcceptingWork: @escaping @Sendable () async -> Void = {},
        closeLocal: @escaping @Sendable () async -> Void = {}, makeLife: @escaping @Sendable () async -> AgentLife
    ) {
        (self.runtime, self.reinit, self.makeLife) = (runtime, reinit, makeLife)
        (self.stopAcceptingWork, self.closeLocal) = (stopAcceptingWork, closeLocal)
    }

    /// The life of the moment; nil before the first.
    package var life: AgentLife? { state.read(\.life) }

    /// Whether everything was delivered at shutdown; nil before its end. The exit status is 0 when it
    /// was.
    package var delivered: Bool? { state.read(\.delivered) }

    /// Runs until ``shutdown()`` has ended; a graceful shutdown of the service group calls that.
    package func run() async throws {
        await withGracefulShutdownHandler {
            await withTaskGroup(of: Void.self) { group in
                if let reinit { group.addTask { await reinit.run { _ in await self.restart() } } }
                await lives()
                group.cancelAll()
            }
        } onGracefulShutdown: {
            Task(executorPreference: self.runtime.executor) { await self.shutdown() }
        }
    }

    /// Ends the life of the moment in order, and with it ``run()``.
    /// - Returns: whether all was delivered.
    package func shutdown() async -> Bool {
        let (first, life) = state.update { state in
            defer { state.ends = true }
            return (!state.ends, state.life)
        }
        if !first { return (try? await state.first(\.delivered)) ?? false }
        let delivered: Bool
        if let life {
            delivered = await life.shutdown(stopAcceptingWork: stopAcceptingWork, closeLocal: closeLocal)
        } else {
            // Before the first life there is nothing to report; what works without it ends all the same.
            await stopAcceptingWork()
            await closeLocal()
            delivered = true
        }
        state.update { $0.delivered = delivered }
        return delivered
    }

    /// Calls the body with the connection of the moment.
    /// - Throws: ``ControlPlaneLink/offline`` at once when there is none; what the body throws.
    package func withConnection<T>(_ body: (any AgentConnection) async throws -> T) async throws -> T {
        guard let life else { throw ControlPlaneLink.offline }
        return try await life.link.withConnection(body)
    }

    /// Passes an app's status upward; see ``ControlPlaneLink/updateAppStatus(_:)``.
    package func updateAppStatus(
        _ request: Coder_Agent_V2_UpdateAppStatusRequest
    ) async throws -> Coder_Agent_V2_UpdateAppStatusResponse {
        guard let life else { throw ControlPlaneLink.offline }
        return try await life.link.updateAppStatus(request)
    }

    private func lives() async {
        while !Task.isCancelled, !state.read(\.ends) {
            let life = await makeLife()
            let ends = state.update { state in
                if !state.ends { state.life = life }
                return state.ends
            }
            if ends { break }
            await life.run()
        }
        // Cancelled without a shutdown, nothing is delivered; with one, its answer is awaited.
        if state.read(\.ends) { _ = try? await state.first(\.delivered) }
    }

    private func restart() async {
        let life = state.read { $0.ends ? nil : $0.life }
        if let life, await life.shutdown() == false {
            runtime.logger.warning("starting anew although not everything was delivered")
        }
    }
}
