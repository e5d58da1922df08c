import AgentCore
import ControlPlaneAPI
import DRPC

/// Forwards the queue's batches over each connection, and tells a batch that the control plane refuses from an
/// outage of the control plane.
package struct ForwardBoundaryLogs: DrainableRoutine {
    package let name = "boundary forwarder"
    package let atShutdown = RoutineShutdown.remains
    private let forwarder: BoundaryForwarder
    private let queue: DurableQueue
    /// The last batch that this shutdown is to deliver: boundary may write for as long as the daemon runs.
    private let mark = Watched<Int?>(nil)

    package init(forwarder: BoundaryForwarder, queue: DurableQueue) {
        (self.forwarder, self.queue) = (forwarder, queue)
    }

    /// The control plane works, and refuses this batch.
    private struct Refused: Error, CustomStringConvertible {
        var cause: DRPCError
        var description: String { cause.description }
    }

    package func run(_ connection: any AgentConnection) async throws {
        let hasSessions = connection.apiVersion.hasBoundarySessions
        try await forwarder.run { request in
            var request = request
            if !hasSessions {
                // Fields of API 2.9.
                (request.sessionID, request.confinedProcessName) = ("", "")
                for index in request.logs.indices { request.logs[index].sequenceNumber = 0 }
            }
            do {
                _ = try await connection.call(AgentAPI.reportBoundaryLogs, request)
            } catch let error as DRPCError {
                guard Self.isAnswer(error), await Self.answersOthers(connection) else { throw error }
                throw Refused(cause: error)
            }
        } classify: { error in
            if error is Refused { return .refused }
            return (error as? DRPCError).map(Self.isAnswer) == true ? .transient : .link
        }
    }

    /// Whether the control plane answered the call with an error, and knows the call.
    private static func isAnswer(_ error: DRPCError) -> Bool {
        if case .remote = error.code { return !error.isUnknownRPC }
        return false
    }

    /// An error's text does not tell a bad batch from an outage behind the control plane; whether another call
    /// is answered does, so that no log is dropped because of an outage.
    private static func answersOthers(_ connection: any AgentConnection) async -> Bool {
        (try? await connection.call(AgentAPI.getAnnouncementBanners, .init())) != nil
    }

    package func beginDelivery() {
        let now = queue.mark()
        mark.update { $0 = now }
    }

    package var isDrained: Bool { mark.value.map { queue.isDrained(through: $0) } ?? (queue.status.batches == 0) }

    package func drained() async { await forwarder.drained(through: mark.value) }
}
