import AgentSocket
import AgentTestSupport
import Foundation
import Glibc
import NIOPosix
import Testing

/// Heavy, or at the edge of what the machine gives: one after the other.
@Suite(.serialized, .blocking) struct ResourceTests {
    @Test func aThousandShortRunsLeaveNothingBehind() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect(timeout: 60)
        func run(_ count: Int) throws {
            for _ in 0..<count { #expect(try connection.run("echo x")["exit_code"] as? Int == 0) }
        }
        // Whatever is made on first use is there after these.
        try run(50)
        try await eventually("it is quiet") { !ProcFS.children(of: daemon.pid).contains { $0.isZombie } }
        let before = (
            descriptors: ProcFS.descriptors(daemon.pid), threads: ProcFS.threads(daemon.pid),
            memory: ProcFS.residentKiB(daemon.pid)
        )
        try run(1000)
        try await eventually("descriptors are closed") { ProcFS.descriptors(daemon.pid) <= before.descriptors }
        try await eventually("threads of the burst have ended") { ProcFS.threads(daemon.pid) <= before.threads }
        #expect(ProcFS.residentKiB(daemon.pid) - before.memory < 8 << 10)
        #expect(ProcFS.children(of: daemon.pid).isEmpty)
        #expect(try connection.list("?limit=1000").count == 1000)
        let spools = try FileManager.default.contentsOfDirectory(atPath: "\(daemon.directory.path)/state/processes")
        #expect(spools.count <= 1001)
        #expect(try await daemon.stop() == 0)
    }

    @Test func hundredsOfSocketClientsLeaveNothingBehind() async throws {
        let daemon = try DaemonProcess()
        let path = "\(daemon.directory.path)/agent.sock"
        func round() async throws {
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                for _ in 0..<100 {
                    tasks.addTask {
                        let client = try await AgentSocketClient.connect(
                            path: path, group: MultiThreadedEventLoopGroup.singleton)
                        for _ in 0..<20 { try await client.ping() }
                        await client.close()
                    }
                }
                try await tasks.waitForAll()
            }
        }
        let descriptors = ProcFS.descriptors(daemon.pid)
        try await round()
        let memory = ProcFS.residentKiB(daemon.pid)
        for _ in 0..<5 { try await round() }
        try await eventually("descriptors are closed") { ProcFS.descriptors(daemon.pid) <= descriptors + 2 }
        #expect(ProcFS.residentKiB(daemon.pid) - memory < 8 << 10)
        #expect(try await daemon.stop() == 0)
    }

    @Test func fiveHundredProcesses() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect(timeout: 60)
        let threads = ProcFS.threads(daemon.pid)
        var ids: [String] = []
        for _ in 0..<500 { ids.append(try connection.start("exec sleep 1000")) }
        let refused = try connection.postStart(["command": "true"])
        #expect(refused.status == 429)
        #expect(refused.json["message"] as? String == "Too many running processes.")
        try await eventually("no thread is theirs") { ProcFS.threads(daemon.pid) <= threads + 2 }
        // One that ends makes room for one.
        _ = try connection.signal(ids[0], "kill")
        _ = try connection.finish(ids[0])
        #expect(try connection.run("true")["exit_code"] as? Int == 0)
        let begin = ContinuousClock.now
        #expect(try await daemon.stop() == 0)
        #expect(begin.duration(to: .now) < .seconds(60))
        #expect(ProcFS.children(of: daemon.pid).isEmpty)
    }

    @Test(.enabled(if: Privileges.isRoot)) func aFullDiskNeverStopsTheCapture() async throws {
        let directory = try TemporaryDirectory()
        let disk = "\(directory.path)/disk"
        mkdir(disk, 0o700)
        try #require(
            try CommandResult.of(["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", disk]).code == 0)
        defer { _ = try? CommandResult.of(["umount", "-l", disk]) }
        let daemon = try DaemonProcess(arguments: ["--state-dir", "\(disk)/state"])
        let connection = try daemon.connect()
        let answer = try connection.run("seq 1 1000000; echo last")
        #expect(answer["exit_code"] as? Int == 0)
        #expect(answer["total_bytes"] as? Int == 6_888_901)
        let text = try #require(answer["output"] as? String)
        #expect(text.hasPrefix("1\n2\n3\n"))
        #expect(text.hasSuffix("999999\n1000000\nlast\n"))
        let id = try #require(try connection.list().first?["id"] as? String)
        let raw = try connection.request("GET", "/api/v0/processes/\(id)/output/raw")
        #expect(raw.status == 410)
        #expect(raw.json["message"] is String)
        // Its room is given back, so the next one has its own.
        try await eventually("the file is removed") { try daemon.metric("agent_process_spool_bytes") == 0 }
        let small = try connection.start("echo small")
        _ = try connection.finish(small)
        #expect(try connection.request("GET", "/api/v0/processes/\(small)/output/raw").text == "small\n")
        #expect(try await daemon.stop() == 0)
    }

    /// Clients that come in the daemon's first moments, and more than its limit of open files has room for, take nothing
    /// of what it needs itself: its sockets, starts, other clients.
    @Test(arguments: [64, 256]) func aCrowdLeavesTheDaemonItsDescriptors(limit: Int) async throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/http.sock"
        let crowd = Thread {
            var held: [RawConnection] = []
            while !Thread.current.isCancelled {
                // It is not there yet, or full.
                guard held.count < 300, let one = try? RawConnection(unix: path) else {
                    poll(nil, 0, 1)
                    continue
                }
                held.append(one)
            }
        }
        crowd.start()
        defer { crowd.cancel() }
        let daemon = try DaemonProcess(tcp: true, wrapper: ["prlimit", "--nofile=\(limit)"], directory: directory)
        // Each waits its turn in the crowd, which takes its time on a busy machine.
        let health = try daemon.connect(timeout: 300).request("GET", "/healthz")
        #expect(health.json["status"] as? String == "ok", "\(health.text)")
        #expect(try daemon.connectTCP(timeout: 300).request("GET", "/", headers: daemon.authorization).status == 200)
        for _ in 0..<3 {
            let connection = try daemon.connect(timeout: 300)
            #expect(try connection.run("echo started")["output"] as? String == "started\n")
        }
        for _ in 0..<3 {
            let client = try await AgentSocketClient.connect(
                path: "\(directory.path)/agent.sock", group: MultiThreadedEventLoopGroup.singleton)
            try await client.ping()
            await client.close()
        }
        #expect(try await daemon.stop() == 0)
    }

    @Test func tooFewDescriptorsAreSaid() throws {
        let directory = try TemporaryDirectory()
        let result = try CommandResult.of([
            "prlimit", "--nofile=63", DaemonProcess.binary, "agent", "--http-socket", "\(directory.path)/s",
            "--state-dir", "\(directory.path)/state", "--log-dir", directory.path,
        ])
        #expect(result.code == 1)
        #expect(result.errors.contains("may have 63 open files, and needs 64 at least"), "\(result.errors)")
    }

    /// Leaves the daemon no descriptor that is free.
    private func takeDescriptors(of daemon: DaemonProcess) throws {
        let open = Set(
            try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon.pid)/fd").compactMap { Int($0) })
        let lowest = try #require((0...open.count).first { !open.contains($0) })
        let result = try CommandResult.of(["prlimit", "--pid=\(daemon.pid)", "--nofile=\(lowest):"])
        try #require(result.code == 0, "\(result.errors)")
    }

    private func giveDescriptors(to daemon: DaemonProcess) throws {
        let result = try CommandResult.of(["prlimit", "--pid=\(daemon.pid)", "--nofile=1024:"])
        try #require(result.code == 0, "\(result.errors)")
    }

    /// Silent clients make room for those that ask something.
    @Test func outOfDescriptors() async throws {
        let daemon = try DaemonProcess(tcp: true)
        let observer = try daemon.connectTCP()
        #expect(try observer.request("GET", "/", headers: daemon.authorization).status == 200)
        let silent = try (0..<20).map { _ in try daemon.connect() }
        try await eventually("all are accepted") { try daemon.metric("agent_http_open_connections") == 22 }
        try takeDescriptors(of: daemon)
        let refused = try observer.request(
            "POST", "/api/v0/processes/start", headers: daemon.authorization, body: #"{"command":"true"}"#)
        #expect([429, 500].contains(refused.status))
        #expect(refused.json["message"] as? String == "Failed to start process.")
        // They stay, so that each needs a descriptor of its own.
        let newcomers = try (0..<5).map { _ in try daemon.connect() }
        for newcomer in newcomers { #expect(try newcomer.request("GET", "/").status == 200) }
        let log = try await daemon.logged("out of descriptors")
        #expect(log.split(separator: "\n").count { $0.contains("out of descriptors") } == 1)
        try giveDescriptors(to: daemon)
        #expect(try daemon.connect().run("echo back")["output"] as? String == "back\n")
        #expect(try #require(try daemon.metric("agent_http_accept_pauses_total")) >= 1)
        withExtendedLifetime(silent) {}
        #expect(try await daemon.stop() == 0)
    }

    /// Nothing makes room: no unix client is connected, and those over TCP are counted for themselves.
    @Test func outOfDescriptorsDoesNotSpin() async throws {
        let daemon = try DaemonProcess(tcp: true)
        let connection = try daemon.connectTCP()
        func pauses() throws -> Double {
            let text = try connection.request("GET", "/debug/prometheus", headers: daemon.authorization).text
            let line = text.split(separator: "\n").first { $0.hasPrefix("agent_http_accept_pauses_total ") }
            return line.flatMap { Double($0.split(separator: " ")[1]) } ?? 0
        }
        #expect(try pauses() == 0)
        try takeDescriptors(of: daemon)
        let (before, begin) = (try cpuTicks(daemon.pid), ContinuousClock.now)
        let idle = try (0..<100).map { _ in try daemon.connect() }
        _ = try await daemon.logged("out of descriptors")
        try await eventually("it has tried again twice") {
            // Answering us costs it time, too.
            poll(nil, 0, 50)
            return try pauses() >= 3
        }
        let (ticks, seconds) = (try cpuTicks(daemon.pid) - before, begin.duration(to: .now) / .seconds(1))
        // Ticks are hundredths of a second.
        #expect(Double(ticks) < 50 * seconds)
        #expect(seconds >= 1, "it pauses a second at a time")
        withExtendedLifetime(idle) {}
        // The end needs none either.
        #expect(try await daemon.stop() == 0)
    }

    private func cpuTicks(_ pid: pid_t) throws -> Int {
        let fields = try #require(ProcFS.fields(pid))
        return (Int(fields[11]) ?? 0) + (Int(fields[12]) ?? 0)
    }

    @Test(.enabled(if: Privileges.isRoot)) func noMoreProcesses() async throws {
        // RLIMIT_NPROC counts a user's processes and threads, and means nothing to root.
        let daemon = try DaemonProcess(
            environment: ["HOME": "/tmp"], wrapper: Privileges.asNobody, directory: try Privileges.directoryOfNobody())
        let connection = try daemon.connect()
        #expect(try connection.run("true")["exit_code"] as? Int == 0)
        // Only a user may lower it for a process of its own.
        func limit(_ soft: String) throws -> Int32 {
            try CommandResult.of(
                Privileges.asNobody + ["prlimit", "--pid=\(daemon.pid)", "--nproc=\(soft):"]
            ).code
        }
        try #require(try limit("1") == 0)
        let refused = try connection.postStart(["command": "true"])
        #expect([429, 500].contains(refused.status))
        #expect(refused.json["message"] as? String == "Failed to start process.")
        #expect((refused.json["detail"] as? String)?.contains("Resource temporarily unavailable") == true)
        #expect(try connection.request("GET", "/healthz").status == 200)
        #expect(try limit("4096") == 0)
        #expect(try connection.run("true")["exit_code"] as? Int == 0)
        #expect(try await daemon.stop() == 0)
    }

    /// The shell's child makes a grandchild and goes; the grandchild ends later.
    private static let orphan = "sh -c 'sleep 0.2 >/dev/null 2>&1 & echo $!'"

    private func orphan(_ connection: RawConnection) throws -> pid_t {
        let text = try connection.run(Self.orphan)["output"] as? String ?? ""
        return try #require(pid_t(text.trimmingCharacters(in: .newlines)))
    }

    @Test func orphansAreReaped() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let pids = try (0..<20).map { _ in try orphan(connection) }
        try await eventually("all are reaped") { !pids.contains { ProcFS.exists($0) } }
        // With starts all the while: reaping must not take their exits away.
        for _ in 0..<50 {
            _ = try orphan(connection)
            #expect(try connection.run("exit 6")["exit_code"] as? Int == 6)
        }
        try await eventually("nobody is left") { ProcFS.children(of: daemon.pid).isEmpty }
        #expect(try await daemon.stop() == 0)
    }

    @Test func noReap() async throws {
        let daemon = try DaemonProcess(arguments: ["--no-reap"])
        let connection = try daemon.connect()
        let text = try connection.run("sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!'")["output"] as? String ?? ""
        let pid = try #require(pid_t(text.trimmingCharacters(in: .newlines)))
        try await eventually("somebody else adopts it") {
            ProcFS.fields(pid).map { pid_t($0[1]) != daemon.pid } ?? false
        }
        kill(pid, SIGKILL)
        // What it started itself it reaps all the same.
        for _ in 0..<20 { #expect(try connection.run("true")["exit_code"] as? Int == 0) }
        try await eventually("nobody is left") { ProcFS.children(of: daemon.pid).isEmpty }
        #expect(try await daemon.stop() == 0)
    }

    @Test(arguments: [([:], 5, 998), (["CODER_PROC_NICE_SCORE": "3", "CODER_PROC_OOM_SCORE": "777"], 3, 777)])
    func priorities(settings: [String: String], nice: Int, oom: Int) async throws {
        let daemon = try DaemonProcess(environment: settings.merging(["CODER_PROC_PRIO_MGMT": "1"]) { old, _ in old })
        let connection = try daemon.connect()
        let own = try #require(ProcFS.fields(daemon.pid).flatMap { Int($0[16]) })
        let ownOOM = ProcFS.text("/proc/\(daemon.pid)/oom_score_adj")
        let output = try connection.run("cut -d' ' -f19 /proc/self/stat; cat /proc/self/oom_score_adj")["output"]
        #expect(output as? String == "\(min(own + nice, 19))\n\(oom)\n")
        #expect(ProcFS.text("/proc/\(daemon.pid)/oom_score_adj") == ownOOM)
        #expect(ProcFS.fields(daemon.pid).flatMap { Int($0[16]) } == own)
    }

    @Test(.enabled(if: Privileges.isRoot)) func aRefusedPriorityIsLoggedAndNoError() async throws {
        let daemon = try DaemonProcess(
            environment: [
                "HOME": "/tmp", "CODER_PROC_PRIO_MGMT": "1", "CODER_PROC_NICE_SCORE": "-10",
                "CODER_PROC_OOM_SCORE": "-900",
            ], wrapper: Privileges.asNobody, directory: try Privileges.directoryOfNobody())
        #expect(try daemon.connect().run("echo x")["output"] as? String == "x\n")
        let log = try await daemon.logged("priority not set")
        #expect(log.contains("niceness") && log.contains("oom_score_adj"))
    }

    @Test func prioritiesThatAreNoNumbers() async throws {
        let daemon = try DaemonProcess(environment: ["CODER_PROC_PRIO_MGMT": "1", "CODER_PROC_NICE_SCORE": "much"])
        #expect(try daemon.connect().run("echo x")["output"] as? String == "x\n")
        _ = try await daemon.logged("CODER_PROC_NICE_SCORE=much")
    }

    @Test func aMuteDaemonWithoutAStateDirectoryStillRunsCommands() async throws {
        let daemon = try DaemonProcess(arguments: ["--state-dir", "/proc/nowhere"])
        let connection = try daemon.connect()
        let health = try connection.request("GET", "/healthz").json
        #expect(health["status"] as? String == "degraded")
        let id = try connection.start("echo x")
        #expect(try connection.finish(id)["output"] as? String == "x\n")
        #expect(try connection.request("GET", "/api/v0/processes/\(id)/output/raw").status == 410)
        #expect(try await daemon.stop() == 0)
    }
}
