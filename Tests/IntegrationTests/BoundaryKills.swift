import AgentTestSupport
import Foundation
import Glibc

/// Kills the daemon again and again while a writer writes and the link drops each second.
enum BoundaryKills {
    struct Figures: CustomStringConvertible {
        var kills = 0
        var written = 0
        var arrived = 0
        /// Logs that a database held at the moment of a kill, each kill's counted anew.
        var committed = 0
        /// Of these, those that never arrived.
        var committedAndLost = 0
        var duplicates = 0
        var disorder = 0
        var connections = 0
        /// Of what arrived, as it was written and as it came.
        var sent = BoundaryDigest()
        var came = BoundaryDigest()

        /// What had not reached the disk.
        var lost: Int { written - arrived }

        var description: String {
            "\(kills) kills, \(connections) links; \(written) written, \(arrived) arrived, \(lost) lost before "
                + "a commit; \(committed) committed at a kill, \(committedAndLost) of them lost; "
                + "\(duplicates) duplicates, \(disorder) out of order; written \(sent), came \(came)"
        }
    }

    /// Boundary gets no acknowledgement, so "accepted" is what a kill finds committed in the
    /// database; what the kernel still held of the socket, or the last commit's interval did, is lost.
    static func run(kills: Int, rate: Int) async throws -> Figures {
        var random = SeededGenerator("boundary kills")
        let plane = try await BoundaryPlane()
        var figures = Figures(kills: kills)
        var committed: Set<UInt64> = []
        var daemon = try plane.daemon()
        let writer = SteadyWriter(BoundaryWriter("killed"), to: plane.socket, rate: rate)
        let (clock, proxy) = (plane.clock, plane.proxy)
        let dropping = Task {
            while (try? await clock.sleep(.seconds(1))) != nil { await proxy.cut() }
        }
        for _ in 0..<kills {
            try await clock.sleep(.milliseconds(Int64.random(in: 0...700, using: &random)))
            daemon.signal(SIGKILL)
            _ = try await daemon.wait()
            let held = try boundaryLogs(inCopyOf: plane.database)["killed"] ?? []
            figures.committed += held.count
            committed.formUnion(held)
            daemon = try plane.daemon()
        }
        try await writer.stop()
        dropping.cancel()
        await dropping.value
        try await eventually("the queue is empty") {
            try daemon.metric("agent_boundary_log_proxy_queue_batches") == 0
        }
        _ = try await daemon.stop()
        let seen = plane.seen
        let arrived = seen.sessions["killed"] ?? []
        figures.written = Int(writer.state.written)
        figures.arrived = arrived.count
        figures.committedAndLost = committed.subtracting(arrived).count
        for number in arrived { figures.sent.add(BoundaryWriter("killed").request(number)) }
        figures.came = seen.digest
        figures.duplicates = seen.duplicates
        figures.disorder = seen.disorder
        figures.connections = plane.server.recorder.recording.opened
        await plane.stop()
        return figures
    }
}
