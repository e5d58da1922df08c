import AgentTestSupport
import Foundation
import Glibc
import Testing

/// Where the built daemon takes boundary logs, from whom, and what it shows of them.
@Suite("Boundary logs: socket", .serialized, .blocking) struct BoundarySocketTests {
    private func mode(_ path: String) -> mode_t? {
        var info = stat()
        return lstat(path, &info) == 0 ? info.st_mode : nil
    }

    private func reasons(_ daemon: DaemonProcess) throws -> [String] {
        try daemon.connect().request("GET", "/healthz").json["reasons"] as? [String] ?? []
    }

    @Test func theFlagNamesThePath() async throws {
        for flag in ["--boundary-log-proxy-socket-path", "--agent-firewall-log-proxy-socket-path"] {
            let directory = try TemporaryDirectory()
            let path = "\(directory.path)/named.sock"
            let daemon = try DaemonProcess(arguments: [flag, path])
            #expect(mode(path) == S_IFSOCK | 0o600)
            #expect(daemon.readyStatus.contains("boundary logs \(path)"))
            #expect(try await daemon.stop() == 0)
            #expect(mode(path) == nil)
        }
    }

    @Test func variablesNameThePath() async throws {
        for name in ["BOUNDARY", "FIREWALL"] {
            let directory = try TemporaryDirectory()
            let path = "\(directory.path)/named.sock"
            let daemon = try DaemonProcess(environment: ["CODER_AGENT_\(name)_LOG_PROXY_SOCKET_PATH": path])
            #expect(mode(path) == S_IFSOCK | 0o600)
            #expect(try await daemon.stop() == 0)
        }
    }

    @Test func theDefaultIsInTMPDIR() async throws {
        let directory = try TemporaryDirectory()
        let daemon = try DaemonProcess(environment: ["TMPDIR": directory.path])
        #expect(mode("\(directory.path)/boundary-audit.sock") == S_IFSOCK | 0o600)
        #expect(try await daemon.stop() == 0)
    }

    @Test func anEmptyPathTurnsItOff() async throws {
        let directory = try TemporaryDirectory()
        let variables = [
            "CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH": "",
            "CODER_AGENT_FIREWALL_LOG_PROXY_SOCKET_PATH": "\(directory.path)/other.sock", "TMPDIR": directory.path,
        ]
        for (arguments, environment) in [([], variables), (["--boundary-log-proxy-socket-path", ""], [:])] {
            let daemon = try DaemonProcess(arguments: arguments, environment: environment)
            #expect(!daemon.readyStatus.contains("boundary"))
            #expect(
                try FileManager.default.contentsOfDirectory(atPath: directory.path).allSatisfy { !$0.contains("sock") })
            #expect(!FileManager.default.fileExists(atPath: "\(daemon.directory.path)/boundary.sock"))
            #expect(try reasons(daemon).allSatisfy { !$0.contains("boundary") })
            #expect(try await daemon.stop() == 0)
        }
    }

    @Test(.enabled(if: Privileges.isRoot)) func others() async throws {
        func write(_ daemon: DaemonProcess) throws -> Int32 {
            let program = """
                socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un($ARGV[0])) or die "$!"; print S "\\1\\0\\0\\0"
                """
            return try CommandResult.of(
                Privileges.asNobody + ["perl", "-MSocket", "-e", program, "\(daemon.directory.path)/boundary.sock"]
            ).code
        }
        let closed = try DaemonProcess()
        #expect(mode("\(closed.directory.path)/boundary.sock") == S_IFSOCK | 0o600)
        #expect(try write(closed) != 0)
        #expect(try closed.metric("agent_boundary_log_proxy_queue_batches") == 0)
        #expect(try await closed.stop() == 0)

        let open = try DaemonProcess(arguments: ["--boundary-log-proxy-socket-mode", "0666"])
        #expect(mode("\(open.directory.path)/boundary.sock") == S_IFSOCK | 0o666)
        #expect(try write(open) == 0)
        let log = try await open.logged("boundary connected")
        let line = try #require(log.split(separator: "\n").first { $0.contains("boundary connected") })
        #expect(line.contains("uid=\(Privileges.nobody)"))
        #expect(line.contains("pid="))
        try await eventually("it is taken in") { try open.metric("agent_boundary_log_proxy_queue_batches") == 1 }
        #expect(try await open.stop() == 0)
    }

    @Test func staleLiveAndForeignFiles() async throws {
        let first = try DaemonProcess()
        let path = "\(first.directory.path)/boundary.sock"
        // Live: it stays where it is, and the second daemon serves all else.
        let second = try DaemonProcess(environment: ["CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH": path])
        #expect(try reasons(second).contains { $0.contains("boundary logs") && $0.contains(path) })
        #expect(try await second.stop() == 0)
        #expect(mode(path) == S_IFSOCK | 0o600)
        try RawConnection(unix: path).send(Data([1, 0, 0, 0]))
        try await eventually("the first one takes it in") {
            try first.metric("agent_boundary_log_proxy_queue_batches") == 1
        }
        // Stale: replaced.
        first.signal(SIGKILL)
        _ = try await first.wait()
        #expect(mode(path) == S_IFSOCK | 0o600)
        let third = try DaemonProcess(environment: ["CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH": path])
        try RawConnection(unix: path).send(Data([1, 0, 0, 0]))
        // Foreign at the end: it is not ours to remove.
        unlink(path)
        try "mine".write(toFile: path, atomically: false, encoding: .utf8)
        #expect(try await third.stop() == 0)
        #expect(try String(contentsOfFile: path, encoding: .utf8) == "mine")
        // Foreign at the start: never touched.
        let fourth = try DaemonProcess(environment: ["CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH": path])
        #expect(try reasons(fourth).contains { $0.contains("boundary logs") && $0.contains(path) })
        #expect(try await fourth.stop() == 0)
        #expect(try String(contentsOfFile: path, encoding: .utf8) == "mine")
    }

    @Test func standaloneTheyWaitForAControlPlane() async throws {
        let plane = try await BoundaryPlane()
        let alone = try DaemonProcess(directory: plane.directory)
        var writer = BoundaryWriter("patient")
        try RawConnection(unix: plane.socket).send(writer.frames(50))
        try await eventually("they wait") { try alone.metric("agent_boundary_log_proxy_queue_batches") == 50 }
        #expect(try await alone.stop() == 0)
        let connected = try plane.daemon()
        try await plane.arrived(50)
        #expect(plane.seen.digest == writer.digest)
        #expect(try await connected.stop() == 0)
        await plane.stop()
    }

    @Test func metricsAreThoseOfTheTable() async throws {
        let daemon = try DaemonProcess(arguments: ["--prometheus-address", "127.0.0.1:0"])
        let text = try daemon.connect().request("GET", "/debug/prometheus").text
        let name = "agent_boundary_log_proxy_"
        func series(_ metric: String, _ reasons: [String]) -> [String] {
            reasons.map { "\(name)\(metric){reason=\"\($0)\"} 0" }
        }
        let expected =
            series("batches_dropped_total", ["buffer_full", "forward_failed"])
            + series(
                "logs_dropped_total", ["buffer_full", "forward_failed", "boundary_channel_full", "boundary_batch_full"])
            + series("frames_rejected_total", ["unknown_tag", "too_large", "undecodable", "empty", "truncated"])
            + ["batches_forwarded_total", "queue_batches", "queue_bytes", "sequence_gaps_total"].map {
                "\(name)\($0) 0"
            }
        let lines = Set(text.split(separator: "\n").map(String.init))
        for line in expected { #expect(lines.contains(line), "\(line)") }
        for gauge in ["queue_batches", "queue_bytes"] { #expect(lines.contains("# TYPE \(name)\(gauge) gauge")) }
        for counter in [
            "batches_dropped_total", "logs_dropped_total", "batches_forwarded_total", "frames_rejected_total",
            "sequence_gaps_total",
        ] { #expect(lines.contains("# TYPE \(name)\(counter) counter")) }
        let log = try await daemon.logged("serving metrics")
        let address = try #require(
            log.split(separator: "\n").first { $0.contains("serving metrics") }?.split(separator: ":").last)
        let port = try #require(Int(address.prefix { $0.isNumber }))
        #expect(try RawConnection(port: port).request("GET", "/metrics").text.contains("\(name)queue_batches 0"))
        #expect(try await daemon.stop() == 0)
    }

    @Test func badFramesAndStatusesAreCounted() async throws {
        let daemon = try DaemonProcess()
        let path = "\(daemon.directory.path)/boundary.sock"
        func rejected(_ reason: String) throws -> Double? {
            try daemon.metric("agent_boundary_log_proxy_frames_rejected_total{reason=\"\(reason)\"}")
        }
        let good = try RawConnection(unix: path)
        // A broken payload, an envelope with nothing in it, a status (3 and 4 dropped), a negative one.
        try good.send(Data([1, 0, 0, 1, 0xff, 2, 0, 0, 0]))
        try good.send(Data([2, 0, 0, 6, 0x12, 4, 8, 3, 16, 4]))
        try good.send(Data([2, 0, 0, 13, 0x12, 11, 8] + [UInt8](repeating: 0xff, count: 9) + [1]))
        // A hole: 0, then 5.
        var writer = BoundaryWriter("holes")
        try good.send(writer.frames(1))
        _ = writer.frames(4)
        try good.send(writer.frames(1))
        try await eventually("they are taken in") { try daemon.metric("agent_boundary_log_proxy_queue_batches") == 2 }
        #expect(try rejected("undecodable") == 1)
        #expect(try rejected("empty") == 1)
        let logs = "agent_boundary_log_proxy_logs_dropped_total"
        #expect(try daemon.metric("\(logs){reason=\"boundary_channel_full\"}") == 3)
        #expect(try daemon.metric("\(logs){reason=\"boundary_batch_full\"}") == 4)
        #expect(try daemon.metric("agent_boundary_log_proxy_sequence_gaps_total") == 1)
        for (frame, reason) in [([UInt8(3), 0, 0, 0], "unknown_tag"), ([1, 0, 0x80, 1], "too_large")] {
            let connection = try RawConnection(unix: path, timeout: 10)
            try connection.send(Data(frame))
            #expect(try connection.isAtEnd())
            try await eventually(reason) { try rejected(reason) == 1 }
        }
        do { try RawConnection(unix: path).send(Data([1, 0, 0, 9, 1])) }
        try await eventually("truncated") { try rejected("truncated") == 1 }
        #expect(try await daemon.stop() == 0)
    }

    @Test func healthTellsOfAQueueOverHalfFull() async throws {
        let daemon = try DaemonProcess()
        let connection = try RawConnection(unix: "\(daemon.directory.path)/boundary.sock")
        // 32 MiB and a little, in the largest frames.
        let payload = [UInt8]([0x12, 0xfb, 0xff, 0x01]) + [UInt8](repeating: 0x78, count: 32_763)
        let frame = Data(BoundaryWriter.frame(payload, tag: 1))
        for count in 1...10 {
            // No more at once than it takes in without dropping any.
            for _ in 0..<100 { try connection.send(frame) }
            try await eventually("they are taken in") {
                try daemon.metric("agent_boundary_log_proxy_queue_batches") == Double(100 * count)
            }
        }
        #expect(try reasons(daemon).allSatisfy { !$0.contains("boundary") })
        for _ in 0..<30 { try connection.send(frame) }
        try await eventually("health tells") {
            try reasons(daemon).contains { $0.hasPrefix("boundary log queue is over half full: 1030 batches, ") }
        }
        #expect(try daemon.connect().request("GET", "/healthz").json["status"] as? String == "degraded")
        #expect(try await daemon.stop() == 0)
    }
}
