import AgentTestSupport
import Foundation
import Glibc
import Testing

/// The page's address, its sessions, and what they may do; as a client without a browser sees it.
@Suite("Page: access", .blocking, .timeLimit(.minutes(5))) struct PageAccessTests {
    /// What `workspace-agent ui` prints.
    private func invitation(_ daemon: DaemonProcess, _ more: [String] = []) throws -> (port: Int, path: String) {
        let result = try CommandResult.of(
            [DaemonProcess.binary, "ui", "--http-socket", daemon.socket, "--no-open"] + more)
        try #require(result.code == 0, "\(result.errors)")
        let url = try #require(URL(string: result.output.trimmingCharacters(in: .newlines)))
        #expect(url.scheme == "http" && url.host == "127.0.0.1")
        return (try #require(url.port), "\(url.path)?\(url.query ?? "")")
    }

    /// Opens a session.
    private func session(_ daemon: DaemonProcess, _ more: [String] = []) throws -> (port: Int, cookie: String) {
        let (port, path) = try invitation(daemon, more)
        let answer = try RawConnection(port: port).request("GET", path)
        #expect(answer.status == 303 && answer.headers["location"] == "ui")
        let cookie = try #require(answer.headers["set-cookie"])
        #expect(cookie.hasSuffix("; HttpOnly; SameSite=Strict"))
        return (port, String(cookie.prefix { $0 != ";" }))
    }

    @Test func theAddressOpensOneSession() throws {
        let daemon = try DaemonProcess()
        let (port, path) = try invitation(daemon)
        // Also for a daemon that listens on no TCP address, and on the same port each time.
        #expect(try invitation(daemon).port == port)
        let bare = try RawConnection(port: port).request("GET", "/ui")
        #expect(bare.status == 401 && bare.text.contains("workspace-agent ui") && !bare.text.contains("Loading"))
        let first = try RawConnection(port: port).request("GET", path)
        #expect(first.status == 303)
        let again = try RawConnection(port: port).request("GET", path)
        #expect(again.status == 403 && again.headers["set-cookie"] == nil && again.text.contains("workspace-agent ui"))
        let cookie = String(try #require(first.headers["set-cookie"]).prefix { $0 != ";" })
        let page = try RawConnection(port: port).request("GET", "/ui", headers: ["Cookie": cookie])
        let policy = try #require(page.headers["content-security-policy"])
        #expect(page.status == 200 && page.headers["cache-control"] == "no-store")
        for rule in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "connect-src 'self'"] {
            #expect(policy.contains(rule), "\(rule)")
        }
        let nonce = try #require(policy.firstMatch(of: /script-src 'nonce-([^']+)'/)).output.1
        #expect(page.text.contains("<script nonce=\"\(nonce)\">") && !page.text.contains("@NONCE@"))
        let second = try RawConnection(port: port).request("GET", "/ui", headers: ["Cookie": cookie])
        #expect(second.headers["content-security-policy"] != policy, "a nonce of its own")
    }

    @Test func theListenerOfThePageAsksForTheSession() throws {
        let daemon = try DaemonProcess()
        let (port, cookie) = try session(daemon)
        func status(_ headers: [String: String]) throws -> Int {
            try RawConnection(port: port).request("GET", "/api/v0/overview", headers: headers).status
        }
        #expect(try status([:]) == 401 && status(["Cookie": cookie]) == 200)
        #expect(try status(["Cookie": cookie + "x"]) == 401)
        // Of another site, of another port of this host, and by another name.
        #expect(try status(["Cookie": cookie, "Origin": "http://evil.example"]) == 403)
        #expect(try status(["Cookie": cookie, "Origin": "http://127.0.0.1:3000", "Host": "127.0.0.1:\(port)"]) == 403)
        #expect(try status(["Cookie": cookie, "Sec-Fetch-Site": "same-site"]) == 401)
        #expect(try status(["Cookie": cookie, "Host": "evil.example"]) == 403)
        let made = try RawConnection(port: port).request(
            "POST", "/api/v0/ui/sessions", headers: ["Cookie": cookie], body: "{}")
        #expect(made.status == 403)
        let ended = try RawConnection(port: port).request("DELETE", "/api/v0/ui/session", headers: ["Cookie": cookie])
        #expect(ended.status == 204)
        #expect(try status(["Cookie": cookie]) == 401)
    }

    @Test func aReadOnlySessionChangesNothing() throws {
        let daemon = try DaemonProcess(tcp: true)
        let (port, cookie) = try session(daemon, ["--read-only"])
        #expect(port == daemon.port)
        func ask(_ method: String, _ path: String, _ body: String? = nil, _ more: [String: String] = [:]) throws
            -> RawConnection.Response
        {
            try RawConnection(port: port).request(
                method, path, headers: ["Cookie": cookie].merging(more) { $1 }, body: body)
        }
        let id = UUID().uuidString.lowercased()
        let upgrade = ["Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"]
        for (method, path) in [
            ("POST", "/api/v0/processes/start"), ("POST", "/api/v0/processes/\(id)/signal"),
            ("GET", "/api/v0/processes/\(id)/attach"), ("POST", "/api/v0/write-file"), ("POST", "/api/v0/edit-files"),
            ("POST", "/api/v0/move"), ("POST", "/api/v0/delete"), ("POST", "/api/v0/make-directory"),
            ("POST", "/api/v0/set-mode"), ("PUT", "/api/v0/archive"), ("POST", "/api/v0/desktop/action"),
            ("POST", "/api/v0/desktop/recording/start"), ("POST", "/api/v0/desktop/recording/stop"),
            ("GET", "/api/v0/desktop/vnc"), ("POST", "/api/v0/ui/sessions"),
        ] {
            let answer = try ask(method, path, method == "GET" ? nil : "{}", method == "GET" ? upgrade : [:])
            #expect(answer.status == 403 && answer.text.contains("This session is read-only."), "\(method) \(path)")
        }
        for path in [
            "/api/v0/processes/list", "/api/v0/units", "/api/v0/scripts", "/api/v0/overview", "/api/v0/desktop/status",
            "/api/v0/ui/session", "/debug/logs", "/api/v0/read-file?path=/etc/passwd",
        ] {
            #expect(try ask("GET", path).status == 200, "\(path)")
        }
        #expect(try ask("GET", "/api/v0/ui/session").json["mode"] as? String == "read-only")
        #expect(try ask("POST", "/api/v0/list-directory", #"{"path":[],"relativity":"root"}"#).status == 200)
        #expect(try ask("DELETE", "/api/v0/ui/session").status == 204, "it may end itself")
    }

    @Test func aDaemonThatIsReadOnlyGivesNoMore() throws {
        let daemon = try DaemonProcess(arguments: ["--ui", "read-only"])
        let lax = try daemon.connect().request("POST", "/api/v0/ui/sessions", body: #"{"mode":"on"}"#)
        #expect(lax.status == 403 && lax.text.contains("--ui read-only"))
        let strict = try daemon.connect().request("POST", "/api/v0/ui/sessions", body: "{}")
        #expect(strict.status == 200 && strict.json["mode"] as? String == "read-only")
        let wrong = try daemon.connect().request("POST", "/api/v0/ui/sessions", body: #"{"mode":"x"}"#)
        #expect(wrong.status == 400)
    }

    @Test func offMeansOff() throws {
        let daemon = try DaemonProcess(arguments: ["--ui", "off"])
        #expect(try daemon.connect().request("GET", "/ui").status == 404)
        let result = try CommandResult.of([DaemonProcess.binary, "ui", "--http-socket", daemon.socket])
        #expect(result.code == 1 && result.errors.contains("serves no page; start it without --ui off"))
        let bad = try CommandResult.of([DaemonProcess.binary, "agent", "--ui", "maybe"])
        #expect(bad.code == 2 && bad.errors.contains("--ui: must be on, read-only or off, not \"maybe\""))
    }

    /// The page that is open finds the new daemon where the old one was.
    @Test func aRestartKeepsSessionAndPort() async throws {
        let directory = try TemporaryDirectory()
        let first = try DaemonProcess(directory: directory)
        let (port, cookie) = try session(first)
        let file = "\(directory.path)/state/ui-sessions.json"
        try await eventually("the session is kept") { ProcFS.text(file).contains("lastUsed") }
        var info = stat()
        #expect(stat(file, &info) == 0 && info.st_mode & 0o777 == 0o600)
        let before = try RawConnection(port: port).request("GET", "/api/v0/overview", headers: ["Cookie": cookie])
        #expect(try await first.stop() == 0)
        let second = try DaemonProcess(directory: directory)
        let after = try RawConnection(port: port).request("GET", "/api/v0/overview", headers: ["Cookie": cookie])
        #expect(before.status == 200 && after.status == 200)
        #expect(before.json["instance"] as? String != after.json["instance"] as? String)
        #expect(try await second.stop() == 0)
    }

    @Test func sessionsThatCannotBeSavedAreSaid() async throws {
        let daemon = try DaemonProcess()
        let file = "\(daemon.directory.path)/state/ui-sessions.json"
        try FileManager.default.createDirectory(atPath: "\(file)/x", withIntermediateDirectories: true)
        let (port, cookie) = try session(daemon)
        #expect(
            try RawConnection(port: port).request("GET", "/api/v0/overview", headers: ["Cookie": cookie]).status == 200)
        try await eventually("the log says so") {
            daemon.log.contains("open pages will need a new code after a restart") && daemon.log.contains(file)
        }
    }

    /// Whatever another user left there, or an older version.
    @Test func aFileOfSessionsThatIsNone() throws {
        for text in ["", "{", #"{"cookie":"x"}"#, String(repeating: "a", count: 100_000)] {
            let directory = try TemporaryDirectory()
            try FileManager.default.createDirectory(
                atPath: "\(directory.path)/state", withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700])
            try text.write(toFile: "\(directory.path)/state/ui-sessions.json", atomically: true, encoding: .utf8)
            _ = try session(try DaemonProcess(directory: directory))
        }
    }

    // MARK: What the page shows

    @Test func unitsAndTheirTimeline() throws {
        let daemon = try DaemonProcess()
        for words in [["want", "b", "a"], ["start", "a"], ["complete", "a"]] {
            let result = try CommandResult.of(
                [DaemonProcess.binary, "sync"] + words + ["--socket-path", "\(daemon.directory.path)/agent.sock"])
            try #require(result.code == 0, "\(result.errors)")
        }
        let answer = try daemon.connect().request("GET", "/api/v0/units").json
        let units = try #require(answer["units"] as? [[String: Any]])
        #expect(units.map { $0["name"] as? String } == ["a", "b"])
        #expect(units[0]["status"] as? String == "completed" && units[1]["ready"] as? Bool == true)
        let wanted = try #require((units[1]["dependencies"] as? [[String: Any]])?.first)
        #expect(wanted["name"] as? String == "a" && wanted["satisfied"] as? Bool == true)
        let events = try #require(answer["timeline"] as? [[String: Any]])
        #expect(events.contains { $0["unit"] as? String == "a" && $0["event"] as? String == "completed" })
        #expect((events.last?["time"] as? String)?.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil)
    }

    @Test func scriptsWithTheirRunsAndLogs() async throws {
        let world = try await LinkWorld { manifest, _ in
            manifest.scripts = [
                LinkWorld.script("tools", "echo one; echo two; exit 3"),
                LinkWorld.script("later", "true") { ($0.runOnStart, $0.cron) = (false, "0 0 5 * * *") },
            ]
        }
        let daemon = try world.daemon()
        func scripts() throws -> [[String: Any]] {
            try daemon.connect().request("GET", "/api/v0/scripts").json["scripts"] as? [[String: Any]] ?? []
        }
        try await eventually("the script has run") {
            (try scripts().first?["runs"] as? [Any])?.isEmpty == false
        }
        let (tools, later) = (try scripts()[0], try scripts()[1])
        let run = try #require((tools["runs"] as? [[String: Any]])?.first)
        #expect(run["stage"] as? String == "start" && run["status"] as? String == "exit_failure")
        #expect(run["exit_code"] as? Int == 3 && tools["running"] as? Bool == false)
        #expect(later["cron"] as? String == "0 0 5 * * *" && (later["runs"] as? [Any])?.isEmpty == true)
        let log = try daemon.connect().request("GET", "/api/v0/scripts/\(tools["id"] as? String ?? "")/log")
        #expect(log.status == 200 && log.text.contains("one\ntwo\n"))
        let none = try daemon.connect().request("GET", "/api/v0/scripts/\(later["id"] as? String ?? "")/log")
        #expect(none.status == 404 && none.text.contains("has not run yet"))
        #expect(try daemon.connect().request("GET", "/api/v0/scripts/x/log").status == 404)
        let overview = try daemon.connect().request("GET", "/api/v0/overview").json
        let link = try #require(overview["link"] as? [String: Any])
        #expect(link["state"] as? String == "connected" && link["address"] as? String == world.url)
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    @Test func theLogAsItComes() async throws {
        let daemon = try DaemonProcess(arguments: ["--log-level", "debug"])
        let stream = try EventStream(try daemon.connect(), "/api/v0/logs/stream?level=debug&lines=1000")
        var seen: [String] = []
        func read(until text: String) throws {
            while seen.last?.contains(text) != true {
                let event = try #require(try stream.next())
                // A beat of the heart, when the machine is slow.
                if event.kind.isEmpty && event.comments > 0 { continue }
                #expect(
                    event.kind == "line" && event.json["message"] is String && event.json["metadata"] is [String: Any])
                seen.append(event.data)
            }
        }
        try read(until: "agent socket is listening")
        _ = try daemon.connect().request("GET", "/api/v0/units")
        try read(until: "\"path\":\"/api/v0/units\"")
        // The daemon ends it, and doesn't cut it off after its grace.
        #expect(try await daemon.stop() == 0)
        while try stream.next() != nil {}
    }

    @Test func whatTheLogIsAskedFor() throws {
        let daemon = try DaemonProcess()
        for query in ["level=loud", "lines=1001", "lines=-1", "x=1"] {
            #expect(try daemon.connect().request("GET", "/api/v0/logs/stream?\(query)").status == 400, "\(query)")
        }
        let few = try EventStream(try daemon.connect(), "/api/v0/logs/stream?level=trace&lines=1")
        #expect(try few.next()?.kind == "line")
    }

    @Test func usageIsSampledWhenItIsAsked() throws {
        let daemon = try DaemonProcess()
        func samples() throws -> [[String: Any]] {
            let usage = try daemon.connect().request("GET", "/api/v0/overview").json["usage"] as? [String: Any]
            return usage?["samples"] as? [[String: Any]] ?? []
        }
        #expect(try samples().count == 1 && samples().count == 1, "one in five seconds")
        let sample = try samples()[0]
        #expect((sample["rss_bytes"] as? Int ?? 0) > 1 << 20 && (sample["connections"] as? Int ?? 0) >= 1)
    }
}
