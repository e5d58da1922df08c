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
        }
        let (started, exited) = (info["started_at_unix"] as? Int ?? 0, info["exited_at_unix"] as? Int ?? 0)
        #expect(exited >= started && exited - started < 60)
    }

    /// Its own memory, not that of the daemon, which a child has until it executes its program.
    @Test func memoryIsTheProgramsOwn() throws {
        let (daemon, connection) = try shared()
        let small = try connection.run("true")
        // What the shell and `true` take, which is less than the daemon has.
        #expect(small["exit_code"] as? Int == 0)
        #expect(small["max_rss_bytes"] == nil, "\(small)")
        let own = ProcFS.residentKiB(daemon.pid) << 10
        let wanted = 2 * own + (64 << 20)
        let large = try connection.run("python3 -c 'b = b\"x\" * \(wanted)'")
        let bytes = large["max_rss_bytes"] as? Int ?? 0
        #expect(bytes > wanted && bytes < wanted + (64 << 20), "\(bytes) for \(wanted)")
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
        let (_, connection) = try shared()
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
        // For each caller: whether it may use the process, and whether its list has it. One without a chat is
        // in no chat's list, yet a chat that knows its id may use it.
        for (chat, id, usable, isListed) in [
            (mine, owned, true, true), (mine.uppercased(), owned, true, true), (other, owned, false, false),
            (nil, owned, true, true), (mine, free, true, false), (other, free, true, false), (nil, free, true, true),
        ] as [(String?, String, Bool, Bool)] {
            let status = usable ? 200 : 404
            #expect(try connection.output(id, chat: chat).status == status)
            #expect(try connection.output(id, "?wait=true&timeout_ms=1", chat: chat).status == status)
            let raw = try connection.request(
                "GET", "/api/v0/processes/\(id)/output/raw", headers: chat.map { ["Coder-Chat-Id": $0] } ?? [:])
            #expect(raw.status == status)
            #expect(try connection.signal(id, "SIGCONT", chat: chat).status == status)
            #expect(try listed(chat).contains(id) == isListed)
        }
        // Exactly as for an unknown id.
        let hidden = try connection.output(owned, chat: other)
        #expect(hidden.text == #"{"message":"Process \"\#(owned)\" not found."}"#)
        let raw = try connection.request(
            "GET", "/api/v0/processes/\(owned)/output/raw", headers: ["Coder-Chat-Id": other])
        #expect(raw.text == hidden.text)
        #expect(try connection.signal(owned, "kill", chat: other).text == hidden.text)
        let unknown = try connection.output(UUID().uuidString.lowercased(), chat: other)
        #expect(unknown.status == hidden.status)
        #expect(Set(unknown.headers.keys) == Set(hidden.headers.keys))
        #expect(try connection.output(owned).json["running"] as? Bool == true)
    }

    /// A token is looked up as a start with it would be: in the caller's own chat, or in none.
    @Test func tokensAreLookedUpAsStartsAre() throws {
        let (_, connection) = try shared()
        let (mine, other) = (newChat(), newChat())
        func found(_ token: String, _ chat: String?) throws -> String? {
            let response = try connection.request(
                "GET", "/api/v0/processes/tokens/\(token)", headers: chat.map { ["Coder-Chat-Id": $0] } ?? [:])
            #expect(response.status == 200)
            return response.json["process_id"] as? String
        }
        let (owned, free) = (newChat(), newChat())
        let ownedID = try connection.start("true", ["client_token": owned], chat: mine)
        let freeID = try connection.start("true", ["client_token": free])
        for (token, chat, id) in [
            (owned, mine, ownedID), (owned, mine.uppercased(), ownedID), (owned, other, nil), (owned, nil, nil),
            (free, nil, freeID), (free, mine, nil), (free, other, nil),
        ] as [(String, String?, String?)] {
            #expect(try found(token, chat) == id)
            let again = try connection.postStart(["command": "true", "client_token": token], chat: chat).json
            #expect((again["attached"] as? Bool == true) == (id != nil))
        }
    }

    @Test(arguments: [
        ("list?limit", "limit"), ("ID/output?wait=true&timeout_ms", "timeout_ms"), ("ID/output/raw?offset", "offset"),
        ("ID/output/raw?limit", "limit"),
    ])
    func numbersThatAreNoneNameTheirParameter(path: String, name: String) throws {
        let (_, connection) = try shared()
        let id = try connection.start("true")
        _ = try connection.finish(id)
        for number in ["1.5", "1e30", "-1", "99999999999999999999", "", "x", "0x10", "1%20", "NaN", "٣"] {
            let escaped = number.addingPercentEncoding(withAllowedCharacters: .urlQueryAllowed) ?? ""
            let response = try connection.request(
                "GET", "/api/v0/processes/\(path.replacingOccurrences(of: "ID", with: id))=\(escaped)")
            #expect(response.status == 400, "\(number)")
            #expect(response.json["message"] as? String == "Invalid value for \"\(name)\".")
            let problems = response.json["validations"] as? [[String: String]]
            #expect(problems?.map { $0["field"] } == [name])
        }
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
