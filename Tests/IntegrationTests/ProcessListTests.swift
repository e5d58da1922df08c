import AgentTestSupport
import Foundation
import Glibc
import Testing

@Suite(.sharedDaemon) struct ProcessListTests {
    @Test func whatIsSaidOfARunningProcess() throws {
        let (_, connection) = try shared()
        let chat = newChat()
        let before = Int(time(nil))
        let id = try connection.start("echo hello; sleep 1000", ["workdir": "/tmp"], chat: chat)
        let info = try #require(try connection.list("?limit=1000", chat: chat).first { $0["id"] as? String == id })
        #expect(info["id"] as? String == id)
        #expect(info["command"] as? String == "echo hello; sleep 1000")
        #expect(info["workdir"] as? String == "/tmp")
        #expect(info["background"] as? Bool == false)
        #expect(info["running"] as? Bool == true)
        #expect(info["chat_id"] as? String == chat)
        let started = try #require(info["started_at_unix"] as? Int)
        #expect(started >= before - 1 && started <= Int(time(nil)) + 1)
        let pid = try #require(info["pid"] as? Int)
        #expect(ProcFS.runs(pid_t(pid)))
        for absent in ["exit_code", "exited_at_unix", "reason", "signal", "lingering", "max_rss_bytes"] {
            #expect(info[absent] == nil, "\(absent)")
        }
    }

    @Test func whatIsSaidOfAnExitedProcess() throws {
        let (_, connection) = try shared()
        let id = try connection.start("i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo hello; exit 3")
        let output = try connection.finish(id)
        let info = try connection.info(id)
        for answer in [output, info] {
            #expect(answer["running"] as? Bool == false)
            #expect(answer["exit_code"] as? Int == 3)
            #expect(answer["reason"] as? String == "exited")
            #expect(answer["total_bytes"] as? Int == 6)
            #expect(answer["signal"] == nil)
            #expect(answer["lingering"] == nil)
            #expect(answer["pid"] is Int)
            #expect((answer["user_cpu_ms"] as? Int ?? -1) + (answer["system_cpu_ms"] as? Int ?? -1) > 0)
            #expect((answer["max_rss_bytes"] as? Int ?? 0) > 100_000)
        }
        let (started, exited) = (info["started_at_unix"] as? Int ?? 0, info["exited_at_unix"] as? Int ?? 0)
        #expect(exited >= started && exited - started < 60)
    }

    @Test(arguments: [("exit 0", 0), ("exit 1", 1), ("exit 255", 255), ("nonexistent-command", 127), ("exit 143", 143)])
    func exitCodes(command: String, code: Int) throws {
        let answer = try shared().connection.run(command)
        #expect(answer["exit_code"] as? Int == code)
        #expect(answer["reason"] as? String == "exited")
    }

    @Test(arguments: ["HUP", "INT", "QUIT", "ABRT", "KILL", "SEGV", "TERM", "USR1"])
    func deathBySignal(name: String) throws {
        let answer = try shared().connection.run("ulimit -c 0; kill -\(name) $$")
        #expect(answer["exit_code"] as? Int == -1)
        #expect(answer["signal"] as? String == "SIG\(name)")
        #expect(answer["reason"] as? String == "signaled")
    }

    @Test func runningFirstThenNewestFirstAndAtMostTen() throws {
        // A chat sees processes without a chat too, so this one is alone with its daemon.
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let chat = newChat()
        var exited: [String] = []
        for _ in 0..<12 {
            let id = try connection.start("true", chat: chat)
            _ = try connection.finish(id)
            exited.append(id)
        }
        let running = try (0..<2).map { _ in try connection.start("sleep 1000", chat: chat) }
        exited.append(try connection.start("true", chat: chat))
        _ = try connection.finish(exited[12])
        let expected = Array(running.reversed()) + exited.reversed()
        func ids(_ query: String) throws -> [String] {
            try connection.list(query, chat: chat).compactMap { $0["id"] as? String }
        }
        #expect(try ids("") == Array(expected.prefix(10)))
        #expect(try ids("?limit=3") == Array(expected.prefix(3)))
        #expect(try ids("?limit=1") == [running[1]])
        #expect(try ids("?limit=1000") == expected)
        #expect(try ids("?running=true") == Array(running.reversed()))
        #expect(try ids("?running=false&limit=1000") == exited.reversed())
    }

    @Test func anEmptyList() throws {
        let daemon = try DaemonProcess()
        #expect(try daemon.connect().request("GET", "/api/v0/processes/list").text == #"{"processes":[]}"#)
    }

    @Test(arguments: ["nonsense", "00000000-0000-4000-8000-000000000000", "...", "0"])
    func unknownIDs(id: String) throws {
        let (_, connection) = try shared()
        for path in ["output", "output?wait=true", "output/raw"] {
            let response = try connection.request("GET", "/api/v0/processes/\(id)/\(path)")
            #expect(response.status == 404)
            #expect(response.json["message"] as? String == "Process \"\(id)\" not found.")
        }
        let signal = try connection.signal(id, "kill")
        #expect(signal.status == 404)
        #expect(signal.json["message"] as? String == "Process \"\(id)\" not found.")
    }

    @Test func idsInUpperCaseAreTheSame() throws {
        let (_, connection) = try shared()
        let id = try connection.start("echo x")
        #expect(try connection.finish(id.uppercased())["output"] as? String == "x\n")
    }

    @Test func chatIsolation() throws {
        let (_, connection) = try shared()
        let (mine, other) = (newChat(), newChat())
        let owned = try connection.start("sleep 1000", chat: mine)
        let free = try connection.start("sleep 1000")
        func listed(_ chat: String?) throws -> Set<String> {
            Set(try connection.list("?limit=1000", chat: chat).compactMap { $0["id"] as? String })
        }
        // Who sees which: its own chat, another, none; a process without a chat is everybody's.
        for (chat, id, visible) in [
            (mine, owned, true), (mine.uppercased(), owned, true), (other, owned, false), (nil, owned, true),
            (mine, free, true), (other, free, true), (nil, free, true),
        ] as [(String?, String, Bool)] {
            #expect(try connection.output(id, chat: chat).status == (visible ? 200 : 404))
            #expect(try connection.output(id, "?wait=true&timeout_ms=1", chat: chat).status == (visible ? 200 : 404))
            #expect(try connection.signal(id, "SIGCONT", chat: chat).status == (visible ? 200 : 404))
            #expect(try listed(chat).contains(id) == visible)
        }
        // Exactly as for an unknown id.
        let hidden = try connection.output(owned, chat: other)
        #expect(hidden.text == #"{"message":"Process \"\#(owned)\" not found."}"#)
        let raw = try connection.request(
            "GET", "/api/v0/processes/\(owned)/output/raw", headers: ["Coder-Chat-Id": other])
        #expect(raw.text == hidden.text)
        #expect(try connection.signal(owned, "kill", chat: other).text == hidden.text)
        #expect(try connection.output(owned).json["running"] as? Bool == true)
    }

    @Test func anAncestorDoesNotOwnTheProcess() throws {
        let (_, connection) = try shared()
        let (parent, child) = (newChat(), newChat())
        let response = try connection.request(
            "POST", "/api/v0/processes/start",
            headers: ["Coder-Chat-Id": child, "Coder-Ancestor-Chat-Ids": #"["\#(parent)"]"#],
            body: #"{"command":"true"}"#)
        let id = try #require(response.json["id"] as? String)
        #expect(try connection.output(id, chat: child).status == 200)
        #expect(try connection.output(id, chat: parent).status == 404)
    }
}
