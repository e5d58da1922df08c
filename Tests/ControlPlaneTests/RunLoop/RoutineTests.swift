import AgentCore
import AgentProto
import AgentTestSupport
import FoundationEssentials
import Glibc
import SwiftProtobuf
import ControlPlaneAPI
import Testing

@testable import ControlPlane

@Suite struct RoutineTests {
    @Test(arguments: [
        ("10.0.0.1:22", "10.0.0.1"), ("10.0.0.1", "10.0.0.1"), ("[::1]:22", "::1"), ("::1", "::1"), ("[::1]", "::1"),
        ("fe80::1%eth0", "fe80::1"), ("[fe80::1%eth0]:1", "fe80::1"), ("localhost", "127.0.0.1"),
        ("localhost:8080", "127.0.0.1"), ("", ""), ("/run/x.sock", ""), ("@", ""), ("example.com:1", ""), ("[", ""),
        ("1.2.3.4.5:1", ""), (":80", ""),
    ])
    func ipWithoutPort(_ peer: String, _ ip: String) {
        #expect(PeerIP.text(peer) == ip)
    }

    @Test func connectionReportsAreBounded() throws {
        let simulation = Simulation()
        let log = LogLines()
        let server = FakeControlPlane(
            simulation,
            .init(dial: { _ in
                simulation.now < .seconds(10) ? .fail(ControlPlaneError(.unreachable, "down")) : .connect
            }))
        let session = SimulatedSession(simulation, server, logger: log)
        for index in 0..<2_050 {
            if index == 2_048 { #expect(log.count(.warning, "too many connection reports") == 0) }
            session.reports.report(
                id: UUID(), .connect, .vscode, peer: "10.0.0.\(index % 250):1", status: Int32(index), reason: "r")
        }
        #expect(session.metric("agent_connection_reports_waiting") == "2048")
        #expect(log.count(.warning, "too many connection reports") == 1)
        try simulation.run("delivered") { session.reports.state.read { $0.waiting.isEmpty && !$0.sending } }
        let sent = server.requests(AgentAPI.reportConnection).map(\.connection)
        #expect(sent.map(\.statusCode) == Array(0..<2_048))
        #expect(sent.first?.ip == "10.0.0.0" && sent.first?.reason == "r" && sent.first?.id.count == 16)
        #expect(sent.first?.timestamp.seconds == 1_800_000_000)
        #expect(session.metric("agent_connection_reports_dropped_total") == "2")
    }

    @Test func aFailedReportIsDroppedAndTheOthersGoOn() throws {
        let simulation = Simulation()
        let log = LogLines()
        let server = FakeControlPlane(
            simulation,
            .init(call: { call in
                call.method == "ReportConnection" && call.earlier == 1
                    ? .fail(ControlPlaneError(.protocolViolation, "what?")) : .answer
            }))
        let session = SimulatedSession(simulation, server, logger: log)
        for index in 0..<4 { session.reports.report(id: UUID(), .connect, .ssh, peer: "", status: Int32(index)) }
        simulation.run(for: .seconds(5))
        #expect(server.requests(AgentAPI.reportConnection).map(\.connection.statusCode) == [0, 2, 3])
        #expect(server.dials.count == 1)
        #expect(log.count(.warning, "not delivered") == 1)
    }

    @Test func bannersAreKeptAndBounded() {
        let banners = AnnouncementBanners()
        func banner(_ message: String, enabled: Bool = true) -> AnnouncementBanners.Banner {
            var banner = AnnouncementBanners.Banner()
            (banner.enabled, banner.message) = (enabled, message)
            return banner
        }
        banners.set([banner("off", enabled: false), banner("on"), banner(String(repeating: "x", count: 9_000))])
        #expect(banners.current.map(\.message.count) == [2, 8_192])
        for count in [63, 64, 65] {
            banners.set((0..<count).map { banner("\($0)") })
            #expect(banners.current.count == min(count, 64))
        }
    }

    @Test func subsystemsAreValidated() throws {
        #expect(try Subsystems.parse(nil) == [])
        #expect(try Subsystems.parse("") == [])
        #expect(try Subsystems.parse("envbox") == [.envbox])
        #expect(try Subsystems.parse("exectrace, envbuilder,exectrace") == [.exectrace, .envbuilder])
        for wrong in ["nope", "envbox,", "Envbox", "envbox envbuilder", ","] {
            let error = #expect(throws: ControlPlaneError.self) { try Subsystems.parse(wrong) }
            #expect(error?.code == .configuration)
            #expect(error?.message.hasPrefix("CODER_AGENT_SUBSYSTEM: \"") == true)
        }
        let many = Array(repeating: "envbox", count: 17).joined(separator: ",")
        #expect(throws: ControlPlaneError.self) { try Subsystems.parse(many) }
    }

    @Test(
        arguments: [(0, 0, 60), (-5, 0, 60), (.min, .min, 60), (0, 1, 1), (30, 0, 30), (.max, .max, 3_600)]
            as [(Int64, Int32, Int64)])
    func theIntervalOfStatsIsGuarded(_ seconds: Int64, _ nanos: Int32, _ expected: Int64) {
        #expect(ReportStats.interval(.init(seconds: seconds, nanos: nanos)) == .seconds(expected))
    }
}

@Suite struct ResourceTests {
    private func put(_ directory: TemporaryDirectory, _ files: [String: String]) throws -> ResourceReader {
        for (path, text) in files {
            let whole = directory.path + path
            try createDirectories(String(whole[..<(whole.lastIndex(of: "/") ?? whole.endIndex)]), mode: 0o700)
            let file = try #require(fopen(whole, "w"))
            fputs(text, file)
            fclose(file)
        }
        return ResourceReader(root: directory.path)
    }

    private let meminfo = "MemTotal:       1000000 kB\nMemFree:  1 kB\nMemAvailable:   400000 kB\n"

    @Test func memoryOfTheMachine() throws {
        let directory = try TemporaryDirectory()
        let reader = try put(directory, ["/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/\n"])
        #expect(reader.memory() == .init(used: 614_400_000, total: 1_024_000_000))
    }

    /// The tightest limit on the way up binds.
    @Test func version2Limits() throws {
        let directory = try TemporaryDirectory()
        let reader = try put(
            directory,
            [
                "/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/a/b\n",
                "/sys/fs/cgroup/a/memory.max": "500000000\n", "/sys/fs/cgroup/a/memory.current": "300000000\n",
                "/sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 100000000\n",
                "/sys/fs/cgroup/a/b/memory.max": "max\n", "/sys/fs/cgroup/a/b/memory.current": "200000000\n",
            ])
        #expect(reader.memory() == .init(used: 200_000_000, total: 500_000_000))
    }

    @Test func version1LimitsAndNoLimit() throws {
        let directory = try TemporaryDirectory()
        var files = [
            "/proc/meminfo": meminfo, "/proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": "600000000\n",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes": "100000000\n",
            "/sys/fs/cgroup/memory/memory.stat": "total_inactive_file 40000000\n",
        ]
        #expect(try put(directory, files).memory() == .init(used: 60_000_000, total: 600_000_000))
        files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712\n"
        #expect(try put(directory, files).memory()?.total == 1_024_000_000)
        files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "99999999999999999999\n"
        #expect(try put(directory, files).memory()?.total == 1_024_000_000)
    }

    @Test func theRealMachine() throws {
        let usage = try #require(ResourceReader().memory())
        #expect(usage.total > 1_000_000 && usage.used > 0 && usage.used <= usage.total)
        let volume = try #require(ResourceReader().volume("/"))
        #expect(volume.total > 1_000_000 && volume.used >= 0 && volume.used <= volume.total)
        #expect(ResourceReader().volume("/no/such/volume") == nil)
    }

    @Test func theWindowIsHandedOutWhenFull() {
        var window = ResourceWindow(size: 3)
        func point(_ second: Int64) -> ResourceWindow.Datapoint {
            var point = ResourceWindow.Datapoint()
            point.collectedAt = .init(seconds: second)
            return point
        }
        let out = (1...5).map { window.add(point($0))?.map(\.collectedAt.seconds) }
        #expect(out == [nil, nil, [1, 2, 3], [2, 3, 4], [3, 4, 5]])
        for size in [999, 1_000, 1_001] {
            var window = ResourceWindow(size: size)
            var full = 0
            for second in 1...1_001 {
                let all = window.add(point(Int64(second)))
                if all != nil && full == 0 { full = second }
            }
            #expect(full == min(size, 1_000))
        }
        var least = ResourceWindow(size: .min)
        #expect(least.add(point(1))?.count == 1)
    }

    /// Real reads on a pool, so real time with a clock that is moved by hand.
    @Test func pushesOnceTheWindowIsFullAndLogsAMissingVolumeOnce() async throws {
        let clock = ManualClock()
        let log = LogLines()
        let pool = BlockingPool(threads: 1)
        var answer = Coder_Agent_V2_GetResourcesMonitoringConfigurationResponse()
        answer.config.numDatapoints = 2
        answer.config.collectionIntervalSeconds = 1_000
        answer.memory.enabled = true
        answer.volumes = ["/", "/no/such/volume"].map { path in
            var volume = Coder_Agent_V2_GetResourcesMonitoringConfigurationResponse.Volume()
            (volume.enabled, volume.path) = (true, path)
            return volume
        }
        let connection = DirectConnection(configuration: answer)
        let monitor = ResourcesMonitor(
            pool: pool, runtime: LinkRuntime(clock: AgentClock(clock), logger: log.logger))
        let run = Task { try await monitor.run(connection) }
        for round in 0..<4 {
            // The timers of reads are due sooner than that.
            try await eventually("collection \(round)") {
                clock.nextDeadline == clock.now.advanced(by: .seconds(1_000)) && connection.pushes.count >= round
            }
            clock.advance(by: .seconds(1_000))
        }
        try await eventually("pushes") { connection.pushes.count >= 3 }
        run.cancel()
        let pushes = connection.pushes.value
        #expect(pushes.allSatisfy { $0.datapoints.count == 2 })
        #expect(pushes.first?.datapoints.first?.volumes.map(\.volume) == ["/"])
        #expect((pushes.first?.datapoints.first?.memory.total ?? 0) > 0)
        #expect(log.count(.warning, "a volume cannot be read path=/no/such/volume") == 1)
        _ = await run.result
        await pool.shutdown()
    }

    /// One unanswered call must not leave a connection of days without monitoring.
    @Test func aConfigurationThatIsNotAnsweredIsAskedForAgain() async throws {
        let pool = BlockingPool(threads: 1)
        let simulation = Simulation()
        let server = FakeControlPlane(
            simulation,
            .init(call: { call in
                call.method == "GetResourcesMonitoringConfiguration" && call.earlier < 2 ? .hang : .answer
            }))
        let session = SimulatedSession(
            simulation, server, extra: [ResourcesMonitor(pool: pool, runtime: simulation.runtime())])
        // Each is given up after 30 s and followed by a minute's wait.
        simulation.run(for: .seconds(89))
        #expect(server.count("GetResourcesMonitoringConfiguration") == 1)
        simulation.run(for: .seconds(90))
        #expect(server.count("GetResourcesMonitoringConfiguration") == 2)
        simulation.run(for: .seconds(1_000))
        #expect(server.count("GetResourcesMonitoringConfiguration") == 3)
        #expect(server.dials.count == 1)
        #expect(try session.shutdown())
        await pool.shutdown()
    }

    @Test func aConfigurationWithoutSenseIsNothing() async throws {
        let pool = BlockingPool(threads: 1)
        for (points, interval, enabled) in [(0, 5, true), (5, 0, true), (-1, -1, true), (5, 5, false)] {
            var answer = Coder_Agent_V2_GetResourcesMonitoringConfigurationResponse()
            answer.config.numDatapoints = Int32(points)
            answer.config.collectionIntervalSeconds = Int32(interval)
            answer.memory.enabled = enabled
            let monitor = ResourcesMonitor(
                pool: pool, runtime: LinkRuntime(clock: AgentClock(ManualClock()), logger: quiet))
            try await monitor.run(DirectConnection(configuration: answer))
        }
        await pool.shutdown()
    }
}
