import AgentCore
import AgentProto
import ControlPlaneAPI
import Logging
import ServiceLifecycle

/// The agent's side of the control plane: one session after the other, until the daemon ends.
///
/// Put it first in the service group, so that the connection is the last to end; call ``finish()`` before
/// anything else ends, so that the control plane hears of the end while everything still works.
package final class ControlPlaneAgent: Service {
    private struct State: Sendable {
        var session: AgentSession?
        var isFinishing = false
        var isClosed = false
        var delivered: Bool?
    }

    private let state = Watched(State())
    private let runtime: LinkRuntime
    private let reinit: ReinitWatcher?
    private let makeSession: @Sendable () async -> AgentSession

    /// - Parameters:
    ///   - reinit: nil never starts anew.
    ///   - makeSession: composes a session with fresh routines. What is to outlive it is captured.
    package init(
        runtime: LinkRuntime, reinit: ReinitWatcher?, makeSession: @escaping @Sendable () async -> AgentSession
    ) {
        (self.runtime, self.reinit, self.makeSession) = (runtime, reinit, makeSession)
    }

    /// The current session; nil before the first.
    package var session: AgentSession? { state.read(\.session) }

    /// Whether everything was delivered at shutdown; nil before its end. The exit status is 0 when it
    /// was.
    package var delivered: Bool? { state.read(\.delivered) }

    /// Runs until a graceful shutdown closes the connection, or the task is cancelled.
    package func run() async throws {
        await withGracefulShutdownHandler {
            await withTaskGroup(of: Void.self) { group in
                if let reinit { group.addTask { await reinit.run { _ in await self.restart() } } }
                await sessions()
                group.cancelAll()
            }
        } onGracefulShutdown: {
            Task(executorPreference: self.runtime.executor) { await self.close() }
        }
    }

    /// Ends the current session in order, see ``AgentSession/finish()``; no other begins. Further calls wait
    /// for the first.
    /// - Returns: whether all was delivered.
    @discardableResult package func finish() async -> Bool {
        let (first, session) = state.update { state in
            defer { state.isFinishing = true }
            return (!state.isFinishing, state.session)
        }
        if !first { return (try? await state.first(\.delivered)) ?? false }
        // Before the first session there is nothing to report.
        let delivered = await session?.finish() ?? true
        state.update { $0.delivered = delivered }
        return delivered
    }

    /// Calls the body with the current connection.
    /// - Throws: ``ControlPlaneLink/offline`` at once when there is none; what the body throws.
    package func withConnection<T>(_ body: (any AgentConnection) async throws -> T) async throws -> T {
        guard let session else { throw ControlPlaneLink.offline }
        return try await session.link.withConnection(body)
    }

    /// Passes an app's status upward; see ``ControlPlaneLink/updateAppStatus(_:)``.
    package func updateAppStatus(
        _ request: Coder_Agent_V2_UpdateAppStatusRequest
    ) async throws -> Coder_Agent_V2_UpdateAppStatusResponse {
        guard let session else { throw ControlPlaneLink.offline }
        return try await session.link.updateAppStatus(request)
    }

    private func sessions() async {
        while !Task.isCancelled, !state.read(\.isFinishing) {
            let session = await makeSession()
            let isFinishing = state.update { state in
                if !state.isFinishing { state.session = session }
                return state.isFinishing
            }
            if !isFinishing { await session.run() }
        }
        // A service that ends before its turn has the whole group cancelled.
        _ = try? await state.first { $0.isClosed ? true : nil }
    }

    private func close() async {
        let session = state.update { state in
            state.isFinishing = true
            return state.session
        }
        await session?.close()
        state.update { $0.isClosed = true }
    }

    private func restart() async {
        guard let session = state.read({ $0.isFinishing ? nil : $0.session }) else { return }
        if await !session.finish() { runtime.logger.warning("starting anew although not everything was delivered") }
        await session.close()
    }
}
