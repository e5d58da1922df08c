import AgentTestSupport
import ControlPlaneAPI
import ControlPlaneSimulator
import Foundation
import Glibc
import Testing

/// The built daemon between writers of boundary logs and a control plane.
@Suite("Boundary logs: delivery", .serialized, .blocking) struct BoundaryDeliveryTests {
    @Test func whatIsWrittenArrives() async throws {
        let plane = try await BoundaryPlane()
        let daemon = try plane.daemon()
        var written = BoundaryDigest()
        var writers = (0..<4).map { BoundaryWriter("session-\($0)", logs: 1 + $0 * 5) }
        let connections = try writers.map { _ in try RawConnection(unix: plane.socket) }
        for _ in 0..<25 {
            for index in writers.indices {
                try connections[index].send(writers[index].frames(10, tag: index % 2 == 0 ? 1 : 2))
            }
        }
        for writer in writers {
            written.logs += writer.digest.logs
            written.sum &+= writer.digest.sum
        }
        try await plane.arrived(written.logs)
        let seen = plane.seen
        #expect(seen.digest == written)
        #expect(seen.disorder == 0)
        #expect(seen.duplicates == 0)
        // 1,000 batches of 4 sessions; the control plane counts fewer calls where batches were merged.
        #expect(seen.requests <= 1_000)
        try await eventually("all is acknowledged") {
            try daemon.metric("agent_boundary_log_proxy_batches_forwarded_total") == 1_000
        }
        try await eventually("the queue is empty") {
            try daemon.metric("agent_boundary_log_proxy_queue_batches") == 0
        }
        #expect(try daemon.metric("agent_boundary_log_proxy_queue_bytes") == 0)
        #expect(try await daemon.stop() == 0)
        await plane.stop()
    }

    @Test func emptyRequestsAreForwarded() async throws {
        let plane = try await BoundaryPlane()
        let daemon = try plane.daemon()
        let connection = try RawConnection(unix: plane.socket)
        try connection.send(Data(BoundaryWriter.frame([], tag: 1)))
        try await eventually("the empty request arrives") { plane.seen.requests == 1 }
        #expect(try await daemon.stop() == 0)
        await plane.stop()
    }

    @Test func nothingIsLostWhileTheControlPlaneIsAway() async throws {
        let plane = try await BoundaryPlane()
        let daemon = try plane.daemon()
        var writer = BoundaryWriter("outage", logs: 3)
        let connection = try RawConnection(unix: plane.socket)
        try connection.send(writer.frames(10))
        try await plane.arrived(30)
        // Acknowledged, too: what the outage cuts off is sent twice.
        try await eventually("the queue is empty") {
            try daemon.metric("agent_boundary_log_proxy_queue_batches") == 0
        }
        await plane.down()
        let begin = ContinuousClock.now
        for _ in 0..<20 { try connection.send(writer.frames(100)) }
        // Writers never wait for the control plane.
        #expect(begin.duration(to: .now) < .seconds(60))
        try await eventually("they wait on disk") {
            try daemon.metric("agent_boundary_log_proxy_queue_batches") == 2_000
        }
        plane.up()
        try await plane.arrived(writer.digest.logs)
        #expect(plane.seen.digest == writer.digest)
        #expect(plane.seen.disorder == 0)
        #expect(try daemon.metric(#"agent_boundary_log_proxy_batches_dropped_total{reason="buffer_full"}"#) == 0)
        #expect(try await daemon.stop() == 0)
        await plane.stop()
    }

    @Test func theNextLifeForwardsWhatWasLeft() async throws {
        let plane = try await BoundaryPlane()
        await plane.down()
        let first = try plane.daemon()
        var writer = BoundaryWriter("two lives")
        try RawConnection(unix: plane.socket).send(writer.frames(500))
        // Everything that was handed to the socket is taken in before the end.
        _ = try await first.stop()
        #expect(try boundaryLogs(inCopyOf: plane.database)["two lives"]?.count == 500)
        plane.up()
        let second = try plane.daemon()
        try await plane.arrived(500)
        #expect(plane.seen.digest == writer.digest)
        #expect(plane.seen.disorder == 0)
        #expect(plane.seen.duplicates == 0)
        #expect(try await second.stop() == 0)
        await plane.stop()
    }

    @Test func killedAtRandomMomentsItLosesNothingCommitted() async throws {
        let figures = try await BoundaryKills.run(kills: 5, rate: 1_000)
        print("boundary kills: \(figures)")
        #expect(figures.committedAndLost == 0)
        #expect(figures.disorder == 0)
        #expect(figures.sent == figures.came)
        #expect(figures.committed > 0)
    }

    /// A boundary that writes until the very end must not make the end one in disorder: what it wrote before is
    /// delivered, the rest waits on disk.
    @Test func logsThatComeDuringShutdownAreNoFailure() async throws {
        let plane = try await BoundaryPlane()
        let daemon = try plane.daemon()
        var writer = BoundaryWriter("to the end")
        let connection = try RawConnection(unix: plane.socket)
        try connection.send(writer.frames(50))
        try await plane.arrived(50)
        // Slow enough that there is always something under way.
        plane.server.faults.plan(.delay(.milliseconds(50)), on: AgentAPI.reportBoundaryLogs, times: nil)
        try connection.send(writer.frames(200))
        daemon.signal(SIGTERM)
        let clock = plane.clock
        while (try? connection.send(writer.frames(5))) != nil { try await clock.sleep(.milliseconds(10)) }
        #expect(try await daemon.wait() >> 8 & 0xff == 0, "\(daemon.log.suffix(2_000))")
        #expect(plane.seen.disorder == 0)
        let arrived = plane.arrived
        let left = try boundaryLogs(inCopyOf: plane.database)["to the end"]?.count ?? 0
        print("boundary logs at shutdown: \(writer.digest.logs) written, \(arrived) arrived, \(left) left on disk")
        #expect(arrived >= 250)
        await plane.stop()
    }

    @Test func aPoisonBatchHoldsNothingUp() async throws {
        let plane = try await BoundaryPlane()
        let daemon = try plane.daemon(logLevel: "debug")
        var (poison, other) = (BoundaryWriter("poison", logs: 2), BoundaryWriter("other"))
        let connection = try RawConnection(unix: plane.socket)
        plane.server.faults.plan(.fail(text: "invalid log"), on: AgentAPI.reportBoundaryLogs, times: 3)
        try connection.send(poison.frames(1))
        let dropped = #"agent_boundary_log_proxy_batches_dropped_total{reason="forward_failed"}"#
        try await eventually("it is given up") { try daemon.metric(dropped) == 1 }
        try connection.send(poison.frames(3) + other.frames(4))
        try await plane.arrived(10)
        #expect(plane.seen.sessions["poison"] == [2, 3, 4, 5, 6, 7])
        #expect(plane.seen.digest.logs == 10)
        #expect(try daemon.metric(dropped) == 1)
        #expect(try daemon.metric(#"agent_boundary_log_proxy_logs_dropped_total{reason="forward_failed"}"#) == 2)
        #expect(plane.server.recorder.count(AgentAPI.reportBoundaryLogs) == 3 + plane.seen.requests)
        // The connection was never given up for it.
        #expect(plane.server.recorder.recording.opened == 1)
        #expect(try await daemon.stop() == 0)
        await plane.stop()
    }

    @Test func anUnwellControlPlaneCostsNoBatch() async throws {
        let plane = try await BoundaryPlane()
        let daemon = try plane.daemon()
        try await plane.server.recorder.wait("a connection") { $0.count(AgentAPI.getManifest) > 0 }
        let faults = plane.server.faults
        faults.plan(.fail(text: "database is down"), on: AgentAPI.reportBoundaryLogs, times: nil)
        faults.plan(.fail(text: "database is down"), on: AgentAPI.getAnnouncementBanners, times: nil)
        var writer = BoundaryWriter("unwell")
        try RawConnection(unix: plane.socket).send(writer.frames(5))
        try await plane.server.recorder.wait("more than three refusals") {
            $0.count(AgentAPI.reportBoundaryLogs) > 4
        }
        #expect(try daemon.metric(#"agent_boundary_log_proxy_batches_dropped_total{reason="forward_failed"}"#) == 0)
        #expect(try daemon.metric("agent_boundary_log_proxy_queue_batches") == 5)
        faults.clear(AgentAPI.reportBoundaryLogs)
        faults.clear(AgentAPI.getAnnouncementBanners)
        try await plane.arrived(5)
        #expect(plane.seen.digest == writer.digest)
        #expect(plane.seen.disorder == 0)
        #expect(try await daemon.stop() == 0)
        await plane.stop()
    }

    @Test func aControlPlaneWithoutTheCallKeepsItsConnection() async throws {
        let plane = try await BoundaryPlane()
        plane.server.faults.plan(.unimplemented, on: AgentAPI.reportBoundaryLogs, times: nil)
        let daemon = try plane.daemon()
        var writer = BoundaryWriter("old")
        try RawConnection(unix: plane.socket).send(writer.frames(5))
        _ = try await daemon.logged("does not implement")
        #expect(plane.server.recorder.recording.opened == 1)
        #expect(try daemon.metric("agent_boundary_log_proxy_queue_batches") == 5)
        // One that has learned it gets them.
        plane.server.faults.clear(AgentAPI.reportBoundaryLogs)
        await plane.proxy.cut()
        try await plane.arrived(5)
        #expect(plane.seen.digest == writer.digest)
        #expect(try await daemon.stop() == 0)
        await plane.stop()
    }

    @Test func aLoadLeavesNothingBehind() async throws {
        let plane = try await BoundaryPlane()
        let daemon = try plane.daemon()
        var total = 0
        func load() async throws {
            for round in 0..<5 {
                var writer = BoundaryWriter("load \(total) \(round)", logs: 2, padding: 200)
                let connections = try (0..<20).map { _ in try RawConnection(unix: plane.socket) }
                for connection in connections { try connection.send(writer.frames(20)) }
                total += writer.digest.logs
            }
            try await plane.arrived(total)
            try await eventually("the queue is empty") {
                try daemon.metric("agent_boundary_log_proxy_queue_batches") == 0
            }
        }
        try await load()
        func usage() -> (descriptors: Int, threads: Int, memory: Int) {
            (ProcFS.descriptors(daemon.pid), ProcFS.threads(daemon.pid), ProcFS.residentKiB(daemon.pid))
        }
        let before = usage()
        for _ in 0..<3 { try await load() }
        try await eventually("descriptors are closed") { ProcFS.descriptors(daemon.pid) <= before.descriptors }
        let after = usage()
        print("boundary load: before \(before), after \(after), \(total) logs")
        try await eventually("threads have ended") { usage().threads <= before.threads }
        #expect(after.memory - before.memory < 8 << 10)
        #expect(try await daemon.stop() == 0)
        await plane.stop()
    }
}
