import AgentTestSupport
import Foundation
import Glibc
import Testing

@Suite(.sharedDaemon) struct ProcessWaitTests {
    @Test func waitAnswersAtTheExit() async throws {
        let (daemon, connection) = try shared()
        // The process says itself when it ends. The bound is generous for a loaded machine; the
        // benchmarks measure the five milliseconds.
        var best = Double.infinity
        for _ in 0..<5 {
            let answer = try connection.run("sleep 0.05; date +%s.%N")
            let now = Date().timeIntervalSince1970
            let said = (answer["output"] as? String)?.trimmingCharacters(in: .whitespacesAndNewlines)
            best = min(best, now - (try #require(said.flatMap { Double($0) })))
        }
        #expect(best < 5)
        _ = daemon
    }

    @Test func waitAnswersAfterTheTime() async throws {
        let (_, connection) = try shared()
        let id = try connection.start("echo so far; sleep 1000")
        try await eventually("its output is here") { try connection.output(id).json["total_bytes"] as? Int == 7 }
        let begin = ContinuousClock.now
        let answer = try connection.output(id, "?wait=true&timeout_ms=300")
        let took = begin.duration(to: .now)
        #expect(took >= .milliseconds(295) && took < .seconds(60))
        #expect(answer.status == 200)
        #expect(answer.json["running"] as? Bool == true)
        #expect(answer.json["output"] as? String == "so far\n")
        for query in ["", "?wait=false", "?wait=true&timeout_ms=0", "?timeout_ms=300000"] {
            let begin = ContinuousClock.now
            #expect(try connection.output(id, query).json["running"] as? Bool == true)
            #expect(begin.duration(to: .now) < .seconds(60))
        }
    }

    @Test func waitForAnExitedProcessAnswersAtOnce() throws {
        let (_, connection) = try shared()
        let id = try connection.start("exit 7")
        for _ in 0..<3 { #expect(try connection.finish(id)["exit_code"] as? Int == 7) }
    }

    @Test func allWaitersHearOfTheExit() throws {
        let (daemon, connection) = try shared()
        let id = try connection.start("sleep 0.3; echo done; exit 9")
        let waiters = try (0..<20).map { _ in try daemon.connect() }
        for waiter in waiters { try waiter.send("GET", "/api/v0/processes/\(id)/output?wait=true") }
        let answers = try waiters.map { try $0.response().text }
        #expect(Set(answers).count == 1)
        #expect(answers.first?.contains(#""exit_code":9"#) == true)
    }

    @Test func aStartAnswersAtTheExit() throws {
        let (_, connection) = try shared()
        let answer = try connection.postStart(["command": "echo out; exit 3", "wait_ms": 60_000]).json
        #expect(answer["started"] as? Bool == true)
        let id = try #require(answer["id"] as? String)
        // Everything that /output says, too.
        var rest = answer
        var output = try connection.output(id).json
        // For a moment, a start by another test may hold a copy of the pipe.
        for key in ["id", "started", "lingering"] { (rest[key], output[key]) = (nil, nil) }
        #expect(NSDictionary(dictionary: rest) == NSDictionary(dictionary: output))
        #expect(rest["output"] as? String == "out\n")
        #expect(rest["exit_code"] as? Int == 3)
    }

    @Test func aStartAnswersAfterTheTime() throws {
        let (_, connection) = try shared()
        let begin = ContinuousClock.now
        let answer = try connection.postStart(["command": "sleep 1000", "wait_ms": 300]).json
        #expect(begin.duration(to: .now) >= .milliseconds(295))
        #expect(answer["running"] as? Bool == true)
        #expect(answer["exit_code"] == nil)
        let none = try connection.postStart(["command": "sleep 1000", "wait_ms": 0]).json
        #expect(none["running"] as? Bool == true)
        #expect(none["total_bytes"] as? Int == 0)
        for (bad, status) in [(-1, 400), (300_001, 400), (300_000, 200), (1.5, 400), ("5", 400)] as [(Any, Int)] {
            let answer = try connection.postStart(["command": "true", "wait_ms": bad])
            #expect(answer.status == status, "\(bad)")
        }
    }

    @Test func aRepeatedStartWaitsForTheFirst() throws {
        let (daemon, connection) = try shared()
        let body: [String: Any] = ["command": "sleep 0.3; echo once", "client_token": newChat(), "wait_ms": 60_000]
        let other = try daemon.connect()
        try other.send("POST", "\(RawConnection.processes)/start", body: RawConnection.json(body))
        let answers = [try connection.postStart(body).json, try other.response().json]
        #expect(Set(answers.compactMap { $0["id"] as? String }).count == 1)
        #expect(answers.allSatisfy { $0["output"] as? String == "once\n" })
        #expect(answers.compactMap { $0["attached"] as? Bool } == [true])
        // How long a client waits is no part of what it starts.
        let again = try connection.postStart(body.merging(["wait_ms": 1]) { _, new in new })
        #expect(again.status == 200 && again.json["started"] as? Bool == false)
    }

    @Test func aClientThatLeavesLeavesTheProcess() throws {
        let (daemon, connection) = try shared()
        let starter = try daemon.connect()
        let body = RawConnection.json(["command": "sleep 1000", "wait_ms": 60_000])
        try starter.send("POST", "\(RawConnection.processes)/start", body: body)
        starter.closeSending()
        let id = try #require(try starter.response().json["id"] as? String)
        #expect(try connection.output(id).json["running"] as? Bool == true)
    }

    @Test func halfClosedWaiterGetsTheStateOfTheMoment() throws {
        let (daemon, connection) = try shared()
        let id = try connection.start("sleep 1000")
        let waiter = try daemon.connect()
        try waiter.send("GET", "/api/v0/processes/\(id)/output?wait=true")
        waiter.closeSending()
        #expect(try waiter.response().json["running"] as? Bool == true)
        #expect(try waiter.isAtEnd())
    }

    @Test func lingeringDescendants() async throws {
        let (daemon, connection) = try shared()
        let go = "\(daemon.directory.path)/\(newChat())"
        let begin = ContinuousClock.now
        let id = try connection.start("(while [ ! -e \(go) ]; do sleep 0.02; done; echo late) & echo early")
        let first = try connection.finish(id)
        #expect(begin.duration(to: .now) < .seconds(60))
        #expect(first["running"] as? Bool == false)
        #expect(first["exit_code"] as? Int == 0)
        #expect(first["lingering"] as? Bool == true)
        #expect(try connection.info(id)["lingering"] as? Bool == true)
        try "".write(toFile: go, atomically: false, encoding: .utf8)
        // What it writes later is captured all the same, and then it lingers no more.
        try await eventually("the descendant ends") { try connection.output(id).json["lingering"] == nil }
        #expect(try connection.output(id).json["output"] as? String == "early\nlate\n")
        let raw = try connection.request("GET", "/api/v0/processes/\(id)/output/raw")
        #expect(raw.text == "early\nlate\n")
    }

    @Test func aServerInTheBackgroundReturnsAtOnceAndLives() throws {
        let (_, connection) = try shared()
        let id = try connection.start("sleep 1000 & echo $!")
        let answer = try connection.finish(id)
        #expect(answer["running"] as? Bool == false)
        #expect(answer["lingering"] as? Bool == true)
        let pid = try #require(pid_t((answer["output"] as? String ?? "").trimmingCharacters(in: .newlines)))
        #expect(ProcFS.runs(pid))
        kill(pid, SIGKILL)
    }

    @Test func aDaemonizerLives() async throws {
        let (_, connection) = try shared()
        let id = try connection.start("setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' & wait; exit 0")
        try await eventually("the daemon runs") { try connection.output(id).json["total_bytes"] as? Int ?? 0 > 1 }
        let text = try #require(try connection.output(id).json["output"] as? String)
        let pid = try #require(pid_t(text.trimmingCharacters(in: .newlines)))
        // Ends the shell's session, of which the daemon is no part any more.
        #expect(try connection.signal(id, "kill").status == 200)
        let answer = try connection.finish(id)
        #expect(answer["running"] as? Bool == false)
        #expect(ProcFS.runs(pid))
        kill(pid, SIGKILL)
        try await eventually("it is reaped") { !ProcFS.exists(pid) }
    }
}

/// What depends on the number of connections and threads has a daemon of its own.
@Suite(.blocking) struct WaiterTests {
    /// A connection that waits for the process's end. The daemon has read its request: it came in one piece
    /// with another that was answered.
    private func waiting(_ daemon: DaemonProcess, _ id: String) throws -> RawConnection {
        let waiter = try daemon.connect()
        let rest = "HTTP/1.1\r\nHost: localhost\r\n\r\n"
        try waiter.send("GET / \(rest)GET /api/v0/processes/\(id)/output?wait=true \(rest)")
        #expect(try waiter.response().status == 200)
        return waiter
    }

    @Test func twoHundredWaitersCostNoThread() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let id = try connection.start("sleep 1000")
        // Whatever is started on first use is there after this.
        _ = try connection.output(id, "?wait=true&timeout_ms=1")
        let before = ProcFS.threads(daemon.pid)
        let waiters = try (0..<200).map { _ in try daemon.connect(timeout: 60) }
        for waiter in waiters { try waiter.send("GET", "/api/v0/processes/\(id)/output?wait=true") }
        try await eventually("all connections are open") {
            try daemon.metric("agent_http_open_connections") ?? 0 >= 201
        }
        _ = try connection.output(id)
        try await eventually("no thread is theirs") { ProcFS.threads(daemon.pid) <= before }
        #expect(before <= 12)
        _ = try connection.signal(id, "kill")
        for waiter in waiters { #expect(try waiter.response().json["running"] as? Bool == false) }
        #expect(try await daemon.stop() == 0)
    }

    @Test func aClientThatVanishesInWaitIsFreed() async throws {
        let daemon = try DaemonProcess(tcp: true)
        let connection = try daemon.connect()
        let id = try connection.start("sleep 1000")
        let path = "/api/v0/processes/\(id)/output?wait=true"
        var vanishing: [RawConnection] = []
        for kind in 0..<12 {
            let waiter = kind % 2 == 0 ? try daemon.connect() : try daemon.connectTCP()
            try waiter.send("GET", path, headers: daemon.authorization)
            // A request behind it that nobody has read yet must not hide the end.
            if kind >= 6 { try waiter.send("GET", "/", headers: daemon.authorization) }
            if kind % 3 == 0 { waiter.resetOnClose() }
            vanishing.append(waiter)
        }
        try await eventually("they wait") { try daemon.metric("agent_http_open_connections") == 14 }
        vanishing = []
        try await eventually("they are gone") { try daemon.metric("agent_http_open_connections") ?? 99 <= 2 }
        #expect(try connection.output(id).json["running"] as? Bool == true)
        #expect(try await daemon.stop() == 0)
    }

    @Test func shutdownAnswersWaitersAtOnceAndKillsWhatIgnoresIt() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let stubborn = try connection.start("trap '' TERM; echo ready; while :; do sleep 0.1; done")
        let lingering = try connection.start("(trap '' TERM; while :; do sleep 0.1; done) & echo x; sleep 0.2")
        _ = try connection.finish(lingering)
        let plain = try (0..<20).map { _ in try connection.pid(try connection.start("sleep 1000")) }
        try await eventually("it ignores SIGTERM") { try connection.output(stubborn).json["total_bytes"] as? Int == 6 }
        let pids = try plain + [connection.pid(stubborn)]
        let group = try connection.pid(lingering)
        let waiter = try waiting(daemon, stubborn)
        try await eventually("it waits") { try daemon.metric("agent_http_open_connections") ?? 0 >= 3 }
        let begin = ContinuousClock.now
        daemon.signal(SIGTERM)
        let answer = try waiter.response()
        #expect(answer.status == 200)
        #expect(answer.json["running"] as? Bool == true)
        #expect(answer.headers["connection"] == "close")
        #expect(daemon.waitBlocking() == 0)
        // Six seconds on an idle machine; here many daemons end at once, in debug builds.
        #expect(begin.duration(to: .now) < .seconds(60))
        for pid in pids { #expect(!ProcFS.exists(pid)) }
        try await eventually("no lingering descendant survives") { !ProcFS.runs(group: group) }
    }

    @Test func shutdownKillsDescendantsThatIgnoreItWhenTheirLeaderDoesNot() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let id = try connection.start("(trap '' TERM; while :; do sleep 0.1; done) >/dev/null 2>&1 & echo $!; wait")
        try await eventually("its output is here") { try connection.output(id).json["total_bytes"] as? Int ?? 0 > 1 }
        let group = try connection.pid(id)
        defer { kill(-group, SIGKILL) }
        #expect(try await daemon.stop() == 0)
        try await eventually("no descendant survives") { !ProcFS.runs(group: group) }
    }

    @Test func startsAreRefusedDuringShutdown() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let id = try connection.start("trap '' TERM; echo ready; while :; do sleep 0.1; done")
        try await eventually("it ignores SIGTERM") { try connection.output(id).json["total_bytes"] as? Int == 6 }
        // A start whose body comes after the signal: refused, or closed without an answer.
        let late = try daemon.connect()
        try late.send("POST /api/v0/processes/start HTTP/1.1\r\nHost: a\r\nContent-Length: 18\r\n\r\n")
        let waiter = try waiting(daemon, id)
        try await eventually("all are connected") { try daemon.metric("agent_http_open_connections") ?? 0 >= 4 }
        daemon.signal(SIGTERM)
        // Waiters are let go once starts are refused.
        _ = try waiter.response()
        try? late.send(#"{"command":"true"}"#)
        if let response = try? late.response() { #expect(response.status == 503) }
        #expect(try await daemon.wait() == 0)
    }
}
