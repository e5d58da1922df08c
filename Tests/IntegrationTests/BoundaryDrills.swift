import AgentTestSupport
import Foundation
import Glibc
import Testing

/// Minutes of real load, run by hand: `BOUNDARY_DRILL=1 swift test --filter BoundaryDrills`.
@Suite(.serialized, .blocking, .enabled(if: ProcessInfo.processInfo.environment["BOUNDARY_DRILL"] != nil))
struct BoundaryDrills {
    /// The control plane is away for a minute; at 2,000 batches a second the queue overflows.
    @Test(arguments: [1_600, 2_000]) func aMinuteWithoutAControlPlane(rate: Int) async throws {
        let plane = try await BoundaryPlane()
        let daemon = try plane.daemon()
        try await plane.server.recorder.wait("a connection") { $0.opened == 1 }
        await plane.down()
        let count = rate * 60
        let begin = ContinuousClock.now
        let writer = SteadyWriter(
            BoundaryWriter("minute"), to: plane.socket, rate: rate, count: UInt64(count))
        try await eventually("all is written", within: .seconds(120)) { writer.state.ended }
        let writing = begin.duration(to: .now)
        let (queued, dropped) = (
            "agent_boundary_log_proxy_queue_batches", "agent_boundary_log_proxy_batches_dropped_total"
        )
        try await eventually("all is taken in or dropped") {
            let waiting = try daemon.metric(queued) ?? 0
            return try Int(waiting + (daemon.metric("\(dropped){reason=\"buffer_full\"}") ?? 0)) == count
        }
        let lost = Int(try daemon.metric("\(dropped){reason=\"buffer_full\"}") ?? -1)
        let health = try daemon.connect().request("GET", "/healthz").text
        let memory = ProcFS.residentKiB(daemon.pid)
        let size = try FileManager.default.attributesOfItem(atPath: plane.database)[.size] as? Int ?? -1
        plane.up()
        let back = ContinuousClock.now
        try await plane.arrived(count - lost, within: .seconds(300))
        let draining = back.duration(to: .now)
        try await eventually("the queue is empty") { try daemon.metric(queued) == 0 }
        let seen = plane.seen
        print(
            "boundary outage at \(rate)/s: written \(writer.state.written) in \(writing), dropped \(lost), "
                + "arrived \(seen.digest.logs) in \(seen.requests) calls within \(draining) of the control plane's "
                + "return, duplicates \(seen.duplicates), out of order \(seen.disorder); RSS \(memory) KiB full, "
                + "\(ProcFS.residentKiB(daemon.pid)) KiB empty; file \(size) bytes; \(health)")
        #expect(lost == max(0, count - 100_000))
        // The newest are dropped: what has come is the beginning.
        #expect(seen.sessions["minute"] == Set(0..<UInt64(count - lost)))
        #expect(seen.disorder == 0)
        var sent = BoundaryDigest()
        for number in 0..<UInt64(count - lost) { sent.add(BoundaryWriter("minute").request(number)) }
        #expect(sent == seen.digest)
        #expect(try await daemon.stop() == 0)
        await plane.stop()
    }

    @Test func twentyKills() async throws {
        let figures = try await BoundaryKills.run(kills: 20, rate: 1_600)
        print("boundary kills: \(figures)")
        #expect(figures.committedAndLost == 0)
        #expect(figures.disorder == 0)
        #expect(figures.sent == figures.came)
    }

    /// A steady load for a minute, and what it leaves.
    @Test func aMinuteOfLoad() async throws {
        let plane = try await BoundaryPlane()
        let daemon = try plane.daemon()
        func usage() -> String {
            "fds \(ProcFS.descriptors(daemon.pid)), threads \(ProcFS.threads(daemon.pid)), "
                + "RSS \(ProcFS.residentKiB(daemon.pid)) KiB"
        }
        var marks = ["idle: \(usage())"]
        for round in 1...6 {
            let writer = SteadyWriter(
                BoundaryWriter("round \(round)"), to: plane.socket, rate: 2_000, count: 20_000)
            try await eventually("all is written", within: .seconds(120)) { writer.state.ended }
            try await plane.arrived(round * 20_000)
            try await eventually("the queue is empty") {
                try daemon.metric("agent_boundary_log_proxy_queue_batches") == 0
            }
            marks.append("after \(round * 20_000): \(usage())")
        }
        print("boundary load: \(marks.joined(separator: "; ")); duplicates \(plane.seen.duplicates)")
        #expect(plane.seen.digest.logs == 120_000)
        #expect(try await daemon.stop() == 0)
        await plane.stop()
    }
}
