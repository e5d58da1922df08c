import AgentTestSupport
import Foundation
import Glibc
import Testing

/// Clients that ask for endless work, or never read or send on: they cost cores and descriptors, and no one else's time.
/// They take the whole machine for minutes, so they run beside no other test.
@Suite(.serialized, .blocking, .enabled(if: ProcessInfo.processInfo.environment["WA_HOSTILE"] != nil, "runs alone"))
struct HostileLoadTests {
    private static let clients = 16
    /// Has RE2 follow a hundred states for each byte of such lines, of which none matches.
    private static let slowPattern = "(?:a|b)*a(?:a|b){100}c"

    private static func slowText(lines: Int) -> String {
        "import random; r = random.Random(1)\n"
            + "for _ in range(\(lines)): print(\"\".join(r.choices(\"ab\", k=200)))"
    }

    private func many(_ daemon: DaemonProcess, _ send: (RawConnection) throws -> Void) throws -> [RawConnection] {
        try (0..<Self.clients).map { _ in
            let connection = try RawConnection(unix: daemon.socket)
            try send(connection)
            return connection
        }
    }

    /// What hostile clients ask for: a long output, files, a process that never ends, and many with long commands.
    private func prepare(_ daemon: DaemonProcess) throws -> (text: String, directory: String, endless: String) {
        let connection = try daemon.connect()
        let text = try connection.start("exec python3 -c '\(Self.slowText(lines: 100_000))'")
        #expect(try connection.finish(text)["exit_code"] as? Int == 0)
        let directory = "\(daemon.directory.path)/files"
        mkdir(directory, 0o700)
        for number in 0..<4 {
            let file = "\(directory)/\(number)"
            let made = try connection.run("exec python3 -c '\(Self.slowText(lines: 10_000))' >\(file)")
            #expect(made["exit_code"] as? Int == 0)
        }
        for _ in 0..<200 {
            _ = try connection.start("true #" + String(repeating: "\u{1}", count: 200_000))
        }
        return (text, directory, try connection.start("exec yes"))
    }

    /// Each finding of a slow pattern would take minutes: that starts are done before any of them, and the end before all,
    /// shows that neither waits for them.
    @Test(.timeLimit(.minutes(10))) func startsAndTheEndWaitForNone() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let (text, directory, endless) = try prepare(daemon)
        let pattern = Self.slowPattern.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
        let base = RawConnection.processes

        let waits = try many(daemon) { try $0.send("GET", "\(base)/\(text)/wait?for=output&pattern=\(pattern)") }
        let greps = try many(daemon) {
            try $0.send(
                "POST", "/api/v0/grep",
                body: RawConnection.json(["root": directory, "pattern": Self.slowPattern]))
        }
        let unread =
            try many(daemon) { _ = try TestWebSocket($0, "\(base)/\(endless)/attach?offset=0") }
            + many(daemon) { try $0.send("GET", "\(base)/\(endless)/output/stream") }
            + many(daemon) { try $0.send("GET", "\(base)/\(text)/output/raw") }
            + many(daemon) { try $0.send("GET", "\(base)/list?limit=1000") }
        let bodies = try many(daemon) {
            try $0.send(
                "POST \(base)/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                    + "Content-Length: 8388608\r\n\r\n" + String(repeating: " ", count: 1 << 20))
        }

        var times: [Duration] = []
        for number in 0..<200 {
            let begin = ContinuousClock.now
            _ = try connection.start("exit \(number % 256)")
            times.append(begin.duration(to: .now))
        }
        // Neither a time-out nor a file is held up.
        let begin = ContinuousClock.now
        let timedOut = try connection.request(
            "GET", "\(base)/\(text)/wait?for=output&pattern=\(pattern)&timeout_ms=100"
        ).json
        let waited = begin.duration(to: .now)
        #expect(timedOut["met"] as? Bool == false && timedOut["timed_out"] as? Bool == true)
        #expect(timedOut["running"] as? Bool == false)
        let easy = try connection.request("GET", "\(base)/\(text)/wait?for=output&pattern=a").json
        #expect(easy["met"] as? Bool == true)
        let file = try connection.request("GET", "/api/v0/read-file?path=\(directory)/0&limit=10")
        #expect(file.status == 200)
        #expect(!waits.contains { $0.isReadable }, "a slow pattern was done before the starts were")
        times.sort()
        print(
            "with \(Self.clients) hostile clients of each kind: start p50 \(times[100]), p99 \(times[197]), "
                + "most \(times[199]); a wait of 100 ms took \(waited); "
                + "the daemon has \(ProcFS.residentKiB(daemon.pid) >> 10) MiB")

        let stop = ContinuousClock.now
        #expect(try await daemon.stop() == 0)
        let time = stop.duration(to: .now)
        print("SIGTERM took \(time)")
        #expect(time < .seconds(30))
        for wait in waits { #expect(try wait.response().json["met"] as? Bool == false) }
        withExtendedLifetime((greps, unread, bodies)) {}
    }

    /// Commands and the requests of client tokens may be large; what is kept of processes that have ended is not.
    @Test func endedProcessesKeepLittle() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        for _ in 0..<50 { _ = try connection.run("true") }
        let before = ProcFS.residentKiB(daemon.pid)
        let (command, value) = (String(repeating: "x", count: 250_000), String(repeating: "y", count: 120_000))
        let environment = Dictionary(uniqueKeysWithValues: (0..<8).map { ("V\($0)", value) })
        for number in 0..<200 {
            let answer = try connection.postStart(
                ["command": ": \(command)", "env": environment, "client_token": "\(number)", "wait_ms": 60_000])
            #expect(answer.json["exit_code"] as? Int == 0, "\(answer.text.prefix(500))")
        }
        // All of it would be 240 MiB.
        #expect(ProcFS.residentKiB(daemon.pid) - before < 60 << 10)
        let info = try connection.list("?limit=1")
        #expect(info.first?["command_truncated"] as? Bool == true)
        #expect((info.first?["command"] as? String)?.utf8.count == 4_096)
        #expect(info.first?["command"] as? String == ": " + command.prefix(4_094))
        let again = try connection.postStart(
            ["command": ": \(command)", "env": environment, "client_token": "7", "wait_ms": 60_000])
        #expect(again.json["attached"] as? Bool == true)
        #expect(try connection.postStart(["command": "true", "client_token": "7"]).status == 409)
        #expect(try await daemon.stop() == 0)
    }

    /// Clients that neither read nor answer pings end by the ping rule, whatever waits for them.
    @Test(.timeLimit(.minutes(5))) func silentWebSocketsEnd() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let chat = newChat()
        let repository = "\(daemon.directory.path)/repo"
        let made = try connection.run(
            "git init -q \(repository) && cd \(repository) && for i in 1 2 3 4 5 6 7 8 9 10; do "
                + "seq \(1_000_000) | head -c 250000 >$i; done")
        #expect(made["exit_code"] as? Int == 0)
        let endless = try connection.start("exec yes", ["workdir": repository], chat: chat)
        var routes: [String: [RawConnection]] = [:]
        for (path, name) in [
            ("\(RawConnection.processes)/\(endless)/attach?offset=0", "attach with output"),
            ("/api/v0/git/watch?chat_id=\(chat)", "git watch with a diff"),
            ("/api/v0/git/watch?heartbeat=true", "git watch without output"),
            ("/api/v0/watch?path=\(daemon.directory.path)", "files watch"),
        ] {
            for transport in [daemon.socket] {
                let silent = try RawConnection(unix: transport)
                _ = try TestWebSocket(silent, path)
                routes[name, default: []].append(silent)
            }
        }
        let quiet = try connection.start("sleep 1000")
        let silent = try RawConnection(unix: daemon.socket)
        _ = try TestWebSocket(silent, "\(RawConnection.processes)/\(quiet)/attach")
        routes["attach without output"] = [silent]
        func open() throws -> Double { try daemon.metric("agent_http_open_connections") ?? -1 }
        // This test's, and the one that asks.
        try await eventually("all are closed", within: .seconds(120)) { try open() <= 2 }
        #expect(routes.count == 5)
        #expect(try await daemon.stop() == 0)
    }
}
