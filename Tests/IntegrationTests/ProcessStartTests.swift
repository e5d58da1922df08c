import AgentTestSupport
import Foundation
import Glibc
import Testing

@Suite(.sharedDaemon) struct ProcessStartTests {
    @Test func startAnswersWithAnIDAndStarted() throws {
        let (_, connection) = try shared()
        let response = try connection.postStart(["command": "true"])
        #expect(response.status == 200)
        #expect(response.headers["content-type"] == "application/json; charset=utf-8")
        let id = try #require(response.json["id"] as? String)
        #expect(UUID(uuidString: id)?.uuidString.lowercased() == id)
        #expect(response.json["started"] as? Bool == true)
        #expect(response.json.count == 2)
    }

    @Test(arguments: [
        ("", "Request body must be valid JSON."), ("{", "Request body must be valid JSON."),
        ("[]", "Request body must be valid JSON."), ("nonsense", "Request body must be valid JSON."),
        (#"{"command":1}"#, "Request body must be valid JSON."),
        (#"{"command":"true","env":{"A":1}}"#, "Request body must be valid JSON."),
        (#"{"command":"true","env":["A=1"]}"#, "Request body must be valid JSON."),
        (#"{"command":"true","background":"yes"}"#, "Request body must be valid JSON."),
        (#"{"command":"true"} x"#, "Request body must be valid JSON."),
        (#"{"command":""}"#, "Command is required."), ("{}", "Command is required."),
        (#"{"command":null}"#, "Command is required."), (#"{"argv":[]}"#, "Command is required."),
        (#"{"command":"a\u0000b"}"#, "Invalid value for \"command\"."),
        (#"{"command":"true","workdir":"/a\u0000b"}"#, "Invalid value for \"workdir\"."),
        (#"{"command":"true","env":{"A\u0000":"1"}}"#, "Invalid value for \"env\"."),
        (#"{"command":"true","env":{"A":"1\u0000"}}"#, "Invalid value for \"env.A\"."),
        (#"{"command":"true","env":{"A=B":"1"}}"#, "Invalid value for \"env\"."),
        (#"{"command":"true","env":{"":"1"}}"#, "Invalid value for \"env\"."),
        (#"{"command":"true","argv":["true"]}"#, "Invalid value for \"argv\"."),
        (#"{"argv":[""]}"#, "Invalid value for \"argv\"."),
        (#"{"command":"true","timeout_ms":0}"#, "Invalid value for \"timeout_ms\"."),
        (#"{"command":"true","timeout_ms":-1}"#, "Invalid value for \"timeout_ms\"."),
        (#"{"command":"true","client_token":""}"#, "Invalid value for \"client_token\"."),
    ])
    func badBodies(body: String, message: String) throws {
        let (_, connection) = try shared()
        let response = try connection.request(
            "POST", "/api/v0/processes/start", headers: ["Content-Length": "\(body.utf8.count)"], body: body)
        #expect(response.status == 400)
        #expect(response.json["message"] as? String == message)
    }

    @Test func bodiesThatAreNotText() throws {
        let (daemon, _) = try shared()
        let deep = String(repeating: "[", count: 100_000)
        for body in [Data([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d]), Data(deep.utf8), Data(repeating: 0, count: 64)] {
            let connection = try daemon.connect()
            try connection.send(
                "POST /api/v0/processes/start HTTP/1.1\r\nHost: a\r\nContent-Length: \(body.count)\r\n\r\n")
            try connection.send(body)
            let response = try connection.response()
            #expect(response.status == 400)
            #expect(response.json["message"] as? String == "Request body must be valid JSON.")
        }
    }

    @Test func contentTypes() throws {
        let (_, connection) = try shared()
        for (type, status) in [
            ("application/json", 200), ("application/json; charset=utf-8", 200), ("Application/JSON", 200), ("", 200),
            ("text/plain", 415), ("application/x-www-form-urlencoded", 415), ("application/jsonx", 415),
        ] {
            let response = try connection.request(
                "POST", "/api/v0/processes/start", headers: ["Content-Type": type], body: #"{"command":"true"}"#)
            #expect(response.status == status, "\(type)")
        }
    }

    @Test func unknownKeysAreIgnored() throws {
        let (_, connection) = try shared()
        #expect(try connection.postStart(["command": "true", "future": ["a": 1], "x": NSNull()]).status == 200)
    }

    @Test func argvRunsWithoutAShell() throws {
        let (_, connection) = try shared()
        let response = try connection.postStart(["argv": ["printf", "%s|", "a b", "$HOME", "*", ""]])
        let id = try #require(response.json["id"] as? String)
        #expect(try connection.finish(id)["output"] as? String == "a b|$HOME|*||")
        for program in ["/nonexistent/program", "no-such-program-here", "/tmp", "/etc/passwd"] {
            let refused = try connection.postStart(["argv": [program]])
            #expect(refused.status == 400)
            #expect(refused.json["message"] as? String == "Failed to start process.")
            #expect((refused.json["detail"] as? String)?.contains(program) == true)
        }
    }

    @Test func sizesOfCommandAndEnvironment() throws {
        let (_, connection) = try shared()
        // A comment is as long as one likes.
        func command(_ bytes: Int) -> String { "echo ok #" + String(repeating: "x", count: bytes - 9) }
        for (bytes, status) in [((256 << 10) - 1, 200), (256 << 10, 200), ((256 << 10) + 1, 413)] {
            let response = try connection.postStart(["command": command(bytes)])
            #expect(response.status == status)
            if let id = response.json["id"] as? String {
                #expect(try connection.finish(id)["output"] as? String == "ok\n")
            }
        }
        // Ten variables whose names and values fill the limit.
        func environment(_ bytes: Int) -> [String: String] {
            var environment: [String: String] = [:]
            for number in 0..<10 {
                let size = bytes / 10 + (number < bytes % 10 ? 1 : 0)
                environment["V\(number)"] = String(repeating: "v", count: size - 2)
            }
            return environment
        }
        for (bytes, status) in [((1 << 20) - 1, 200), (1 << 20, 200), ((1 << 20) + 1, 413)] {
            let response = try connection.postStart(["command": "echo ${#V0}", "env": environment(bytes)])
            #expect(response.status == status, "\(bytes): \(response.text.prefix(300))")
        }
        #expect(
            try connection.postStart(["command": "true", "env": ["A": String(repeating: "x", count: 131_072)]]).status
                == 413)
    }

    @Test func environment() throws {
        let (_, connection) = try shared()
        let chat = newChat()
        let id = try connection.start(
            "echo $A-$PATH-$CODER_CHAT_ID",
            ["env": ["A": "ä\"b\nc", "PATH": "/usr/bin:/bin", "CODER_CHAT_ID": "fake"]],
            chat: chat)
        #expect(try connection.finish(id)["output"] as? String == "ä\"b c-/usr/bin:/bin-\(chat)\n")
        #expect(try connection.run("echo x$CODER_CHAT_ID")["output"] as? String == "x\n")
    }

    @Test func theDaemonsEnvironmentIsPassedOnButNotItsOwnSettings() throws {
        let daemon = try DaemonProcess(environment: [
            "CODER_PROC_PRIO_MGMT": "1", "CODER_PROC_NICE_SCORE": "1", "CODER_PROC_OOM_SCORE": "900", "OURS": "kept",
            "CODER_PROC_FUTURE": "1",
        ])
        let text = try #require(try daemon.connect().run("env")["output"] as? String)
        #expect(text.contains("OURS=kept\n"))
        for name in ["CODER_PROC_", "NOTIFY_SOCKET"] { #expect(!text.contains(name)) }
    }

    @Test func theHeaderCommandGetsNoneOfTheDaemonsSettings() async throws {
        let directory = try TemporaryDirectory()
        let file = "\(directory.path)/env"
        let daemon = try DaemonProcess(environment: [
            "CODER_PROC_FUTURE": "1", "OURS": "kept", "CODER_AGENT_URL": "http://127.0.0.1:1",
            "CODER_AGENT_TOKEN": "t", "CODER_AGENT_HEADER_COMMAND": "env >\(file).$$; mv \(file).$$ \(file)",
        ])
        try await eventually("it ran") { access(file, F_OK) == 0 }
        let text = ProcFS.text(file)
        #expect(text.contains("OURS=kept\n"))
        for name in ["CODER_PROC_", "NOTIFY_SOCKET"] { #expect(!text.contains(name)) }
        daemon.signal(SIGKILL)
        _ = try await daemon.wait()
    }

    @Test func workdir() throws {
        let (daemon, connection) = try shared()
        let directory = daemon.directory.path
        #expect(try connection.run("pwd", ["workdir": directory])["output"] as? String == "\(directory)\n")
        #expect(try connection.info(try connection.start("true", ["workdir": "/tmp"]))["workdir"] as? String == "/tmp")
        let home = try #require(getenv("HOME").map { String(cString: $0) })
        #expect(try connection.run("pwd")["output"] as? String == "\(home)\n")
        #expect(try connection.run("pwd", ["workdir": ""])["output"] as? String == "\(home)\n")
        for bad in ["/nonexistent/directory", "/etc/passwd", "relative", "."] {
            let response = try connection.postStart(["command": "true", "workdir": bad])
            #expect(response.status == 400)
            #expect(response.json["message"] as? String == "Failed to start process.")
            #expect((response.json["detail"] as? String)?.contains(bad) == true)
        }
    }

    @Test func theChildStartsClean() throws {
        let (_, connection) = try shared()
        // stdin is /dev/null, 1 and 2 are the same pipe, nothing else is open.
        let fds = try #require(
            try connection.run(
                "readlink /proc/self/fd/0; readlink /proc/$$/fd/1; readlink /proc/$$/fd/2; ls /proc/$$/fd")[
                    "output"] as? String)
        let lines = fds.split(separator: "\n")
        #expect(lines.first == "/dev/null")
        #expect(lines.count == 6)
        #expect(lines[1] == lines[2] && lines[1].hasPrefix("pipe:"))
        #expect(lines[3...] == ["0", "1", "2"])
        #expect(try connection.run("cat; echo end")["output"] as? String == "end\n")
        // Its own session and group, no signal blocked or ignored.
        let status = try #require(
            try connection.run("echo $$; cut -d' ' -f5,6 /proc/$$/stat; cat /proc/self/status")["output"] as? String)
        let parts = status.split(separator: "\n")
        #expect(parts[1] == "\(parts[0]) \(parts[0])")
        for name in ["SigBlk", "SigIgn"] {
            let line = try #require(parts.first { $0.hasPrefix("\(name):") })
            // 32 and 33 are the C library's own, and whatever whoever started us left there.
            let set = try #require(UInt64(line.split(separator: "\t")[1], radix: 16))
            #expect(set & ~(3 << 31) == 0, "\(line)")
        }
        #expect(try connection.run("ulimit -Sn")["output"] as? String == "\(softLimit())\n")
    }

    private func softLimit() -> rlim_t {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(UInt32(RLIMIT_NOFILE.rawValue)), &limit)
        return limit.rlim_cur
    }

    @Test func aProcessOutlivesItsRequest() throws {
        let (daemon, connection) = try shared()
        let other = try daemon.connect()
        let id = try other.start("sleep 0.2; echo survived", ["background": true])
        other.closeSending()
        #expect(try other.isAtEnd())
        #expect(try connection.finish(id)["output"] as? String == "survived\n")
        #expect(try connection.info(id)["background"] as? Bool == true)
        #expect(try connection.info(try connection.start("true"))["background"] as? Bool == false)
    }
}
