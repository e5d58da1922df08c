import AgentTestSupport
import Foundation
import Glibc
import Testing

@Suite(.sharedDaemon) struct ProcessConditionTests {
    private func path(_ id: String, _ query: [String: String]) -> String {
        var parts = URLComponents()
        parts.queryItems = query.map { URLQueryItem(name: $0.key, value: $0.value) }
        let text = (parts.percentEncodedQuery ?? "").replacingOccurrences(of: "+", with: "%2B")
        return "\(RawConnection.processes)/\(id)/wait?\(text)"
    }

    private func wait(_ connection: RawConnection, _ id: String, _ query: [String: String]) throws -> [String: Any] {
        try connection.request("GET", path(id, query)).json
    }

    /// A command that waits for the file before it goes on.
    private func gate(_ daemon: DaemonProcess) -> (wait: String, open: () throws -> Void) {
        let file = "\(daemon.directory.path)/\(newChat())"
        return (
            "while [ ! -e \(file) ]; do sleep 0.02; done",
            { try "".write(toFile: file, atomically: false, encoding: .utf8) }
        )
    }

    @Test func outputIsMatchedAcrossWrites() throws {
        let (daemon, connection) = try shared()
        let (go, open) = gate(daemon)
        let id = try connection.start("printf 'first\\nlistening on '; \(go); printf '8080 now'; sleep 1000")
        let waiter = try daemon.connect()
        try waiter.send("GET", path(id, ["for": "output", "pattern": #"on (\d+)"#]))
        #expect(try wait(connection, id, ["for": "output", "pattern": "listening"])["offset"] as? Int == 6)
        #expect(!waiter.isReadable)
        try open()
        let answer = try waiter.response().json
        #expect(answer["met"] as? Bool == true)
        #expect(answer["for"] as? String == "output")
        #expect(answer["offset"] as? Int == 16)
        #expect(answer["match"] as? String == "on 8080")
        #expect((answer["line"] as? String)?.hasPrefix("listening on 8080") == true)
        #expect(answer["after_ms"] as? Int ?? -1 >= 0)
        #expect(answer["running"] == nil)
        #expect(try connection.signal(id, "kill").status == 200)
    }

    @Test func theProcessThatEndsFirst() throws {
        let (daemon, connection) = try shared()
        let missing = "\(daemon.directory.path)/\(newChat())"
        for query in [
            ["for": "output", "pattern": "never"], ["for": "port", "port": "1"], ["for": "file", "path": missing],
        ] {
            // While it runs, and when it has ended.
            let id = try connection.start("echo said; sleep 0.3; exit 5")
            for _ in 0..<2 {
                let answer = try wait(connection, id, query)
                #expect(answer["met"] as? Bool == false, "\(query)")
                #expect(answer["timed_out"] as? Bool == false)
                #expect(answer["exit_code"] as? Int == 5)
                #expect(answer["output"] as? String == "said\n")
            }
        }
    }

    @Test func whatIsSoAtTheEndIsMet() throws {
        let (daemon, connection) = try shared()
        let file = "\(daemon.directory.path)/\(newChat())"
        let id = try connection.start("sleep 0.2; touch \(file); printf 'the last'")
        for query in [["for": "output", "pattern": "last$"], ["for": "file", "path": file], ["for": "exit"]] {
            for _ in 0..<2 { #expect(try wait(connection, id, query)["met"] as? Bool == true, "\(query)") }
        }
        #expect(try wait(connection, id, ["for": "exit"])["output"] as? String == "the last")
        #expect(try wait(connection, id, ["for": "exit"])["exit_code"] as? Int == 0)
    }

    @Test func theTime() throws {
        let (_, connection) = try shared()
        let id = try connection.start("sleep 1000")
        for query in [
            ["for": "exit"], ["for": "output", "pattern": "x"], ["for": "port", "port": "1"],
            ["for": "file", "path": "/none"],
        ] {
            let begin = ContinuousClock.now
            let answer = try wait(connection, id, query.merging(["timeout_ms": "150"]) { _, new in new })
            #expect(begin.duration(to: .now) >= .milliseconds(145))
            #expect(answer["met"] as? Bool == false)
            #expect(answer["timed_out"] as? Bool == true)
            #expect(answer["running"] as? Bool == true)
            #expect(
                try wait(connection, id, query.merging(["timeout_ms": "0"]) { _, new in new })["met"] as? Bool == false)
        }
        #expect(try connection.signal(id, "kill").status == 200)
    }

    /// A port of a grandchild, as a program that is not a shell opens it.
    @Test(arguments: ["127.0.0.1", "0.0.0.0", "::1", "::"]) func portsOfDescendants(_ address: String) throws {
        let (daemon, connection) = try shared()
        let (go, open) = gate(daemon)
        let file = "\(daemon.directory.path)/\(newChat())"
        let family = address.contains(":") ? "AF_INET6" : "AF_INET"
        let program = """
            import socket, time, os
            s = socket.socket(socket.\(family)); s.bind(("\(address)", 0))
            open("\(file).tmp", "w").write(str(s.getsockname()[1])); os.rename("\(file).tmp", "\(file)")
            while not os.path.exists("\(file).go"): time.sleep(0.02)
            s.listen(); time.sleep(1000)
            """
        let script = "\(file).py"
        try program.write(toFile: script, atomically: false, encoding: .utf8)
        // In a session of its own, below a shell that is below the leader.
        let id = try connection.start("sh -c 'setsid python3 \(script); true'; \(go)")
        #expect(try wait(connection, id, ["for": "file", "path": file])["met"] as? Bool == true)
        let port = try String(contentsOfFile: file, encoding: .utf8)
        let query = ["for": "port", "port": port]
        let waiter = try daemon.connect()
        try waiter.send("GET", path(id, query))
        // Bound, but nothing listens.
        #expect(
            try wait(connection, id, query.merging(["timeout_ms": "200"]) { _, new in new })["met"] as? Bool == false)
        let stranger = try connection.start("sleep 1000")
        try "".write(toFile: "\(file).go", atomically: false, encoding: .utf8)
        #expect(try waiter.response().json["met"] as? Bool == true)
        #expect(try wait(connection, id, query)["met"] as? Bool == true)
        // It is not another process's.
        #expect(
            try wait(connection, stranger, query.merging(["timeout_ms": "100"]) { _, new in new })["met"] as? Bool
                == false)
        try open()
        for id in [id, stranger] { _ = try connection.signal(id, "kill") }
        _ = try connection.run("pkill -f \(script)")
    }

    @Test func filesThatAppear() throws {
        let (daemon, connection) = try shared()
        let root = "\(daemon.directory.path)/\(newChat())"
        mkdir(root, 0o755)
        let id = try connection.start("sleep 1000", ["workdir": root])
        let steps: [(path: String, make: () -> Void)] = [
            ("\(root)/made", { close(open("\(root)/made", O_CREAT | O_WRONLY, 0o600)) }),
            (
                "\(root)/renamed",
                {
                    close(open("\(root)/x", O_CREAT | O_WRONLY, 0o600)); rename("\(root)/x", "\(root)/renamed")
                }
            ),
            ("relative", { mkfifo("\(root)/relative", 0o600) }),
            (
                "\(root)/a/b/c/",
                {
                    mkdir("\(root)/a", 0o700); mkdir("\(root)/a/b", 0o700); mkdir("\(root)/a/b/c", 0o700)
                }
            ),
            // Comes as a whole, by the name of a directory further up.
            (
                "\(root)/p/q/r",
                {
                    mkdir("\(root)/y", 0o700); mkdir("\(root)/y/q", 0o700); mkdir("\(root)/y/q/r", 0o700);
                    rename("\(root)/y", "\(root)/p")
                }
            ),
            ("\(root)/link", { symlink("/etc", "\(root)/link") }),
        ]
        for step in steps {
            let waiter = try daemon.connect()
            try waiter.send("GET", path(id, ["for": "file", "path": step.path]))
            #expect(
                try wait(connection, id, ["for": "file", "path": step.path, "timeout_ms": "50"])["met"] as? Bool
                    == false)
            step.make()
            let answer = try waiter.response().json
            #expect(answer["met"] as? Bool == true, "\(step.path)")
            #expect(try wait(connection, id, ["for": "file", "path": step.path])["met"] as? Bool == true)
        }
        // Where a link leads to nothing, nothing is there.
        symlink("\(root)/nothing", "\(root)/dangling")
        #expect(
            try wait(connection, id, ["for": "file", "path": "dangling", "timeout_ms": "50"])["met"] as? Bool == false)
        #expect(try connection.signal(id, "kill").status == 200)
    }

    /// 200 waits of each kind: no thread, no descriptor but one for inotify, and nothing is read again and again.
    @Test func twoHundredWaitsOfEachKind() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let (go, open) = gate(daemon)
        let file = "\(daemon.directory.path)/\(newChat())"
        let id = try connection.start(
            "\(go); echo now; touch \(file); exec python3 -m http.server 0 --bind 127.0.0.1 2>&1")
        let descriptors = ProcFS.descriptors(daemon.pid)
        var waiters: [RawConnection] = []
        for query in [["for": "output", "pattern": "^now$"], ["for": "file", "path": file], ["for": "exit"]] {
            for _ in 0..<200 {
                let waiter = try daemon.connect()
                try waiter.send("GET", path(id, query))
                waiters.append(waiter)
            }
        }
        try await eventually("all are taken") {
            ProcFS.descriptors(daemon.pid) >= descriptors + 600
        }
        #expect(ProcFS.threads(daemon.pid) <= 12)
        #expect(ProcFS.descriptors(daemon.pid) <= descriptors + 602)
        try open()
        for waiter in waiters[..<400] { #expect(try waiter.response().json["met"] as? Bool == true) }
        #expect(!waiters[400].isReadable)
        #expect(try connection.signal(id, "kill").status == 200)
        for waiter in waiters[400...] { #expect(try waiter.response().json["signal"] as? String == "SIGKILL") }
        waiters = []
        try await eventually("everything is given back") { ProcFS.descriptors(daemon.pid) <= descriptors }
    }

    @Test func aClientThatLeavesEndsItsWait() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let id = try connection.start("sleep 1000")
        let before = ProcFS.descriptors(daemon.pid)
        for query in [
            ["for": "exit"], ["for": "output", "pattern": "x"], ["for": "port", "port": "1"],
            ["for": "file", "path": "/none/x"],
        ] {
            let waiter = try daemon.connect()
            try waiter.send("GET", path(id, query))
            waiter.closeSending()
            #expect(try waiter.response().json["met"] as? Bool == false)
        }
        try await eventually("everything is given back") { ProcFS.descriptors(daemon.pid) <= before }
        // And at the daemon's end it is answered.
        let waiter = try daemon.connect()
        try waiter.send("GET", path(id, ["for": "file", "path": "/none/x"]))
        try await eventually("it is taken") { ProcFS.descriptors(daemon.pid) > before }
        #expect(try await daemon.stop() == 0)
        #expect(try waiter.response().json["met"] as? Bool == false)
    }

    @Test func badQueries() throws {
        let (_, connection) = try shared()
        let id = try connection.start("true")
        for (query, field) in [
            ([:], "for"), (["for": "ever"], "for"), (["for": "output"], "pattern"),
            (["for": "output", "pattern": ""], "pattern"),
            (["for": "output", "pattern": "("], "pattern"), (["for": "output", "pattern": #"(a)\1"#], "pattern"),
            (["for": "output", "pattern": String(repeating: "a", count: 1_025)], "pattern"),
            (["for": "port"], "port"), (["for": "port", "port": "0"], "port"),
            (["for": "port", "port": "65536"], "port"),
            (["for": "file"], "path"), (["for": "file", "path": "a\u{0}b"], "path"),
            (["for": "file", "path": String(repeating: "a", count: 4_096)], "path"),
            (["for": "exit", "port": "1"], "port"), (["for": "exit", "timeout_ms": "300001"], "timeout_ms"),
            (["for": "exit", "timeout_ms": "-1"], "timeout_ms"),
        ] as [([String: String], String)] {
            let answer = try connection.request("GET", path(id, query))
            #expect(answer.status == 400, "\(query)")
            let validations = answer.json["validations"] as? [[String: Any]]
            #expect(validations?.first?["field"] as? String == field, "\(query)")
        }
        #expect(try connection.request("GET", path(id, ["for": "exit", "x": "1"])).status == 400)
        #expect(try connection.request("GET", path(newChat(), ["for": "exit"])).status == 404)
        #expect(
            try connection.request("GET", path(id, ["for": "output", "pattern": String(repeating: "a", count: 1_024)]))
                .status == 200)
    }
}
