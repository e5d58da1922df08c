import AgentTestSupport
import Foundation
import Glibc
import Testing

@Suite(.sharedDaemon) struct ProcessSignalTests {
    @Test(arguments: [("kill", "SIGKILL"), ("terminate", "SIGTERM")])
    func killAndTerminate(name: String, signal: String) throws {
        let (_, connection) = try shared()
        let id = try connection.start("exec sleep 1000")
        let response = try connection.signal(id, name)
        #expect(response.status == 200)
        #expect(response.text == #"{"message":"Signal \"\#(name)\" sent to process \"\#(id)\"."}"#)
        let answer = try connection.finish(id)
        #expect(answer["exit_code"] as? Int == -1)
        #expect(answer["signal"] as? String == signal)
        #expect(answer["reason"] as? String == "killed_by_request")
        let again = try connection.signal(id, name)
        #expect(again.status == 409)
        #expect(again.text == #"{"message":"Process \"\#(id)\" is not running."}"#)
    }

    @Test(arguments: [
        ("{}", "Signal is required."), (#"{"signal":""}"#, "Signal is required."),
        (#"{"signal":null}"#, "Signal is required."), ("{", "Request body must be valid JSON."),
        (#"{"signal":9}"#, "Request body must be valid JSON."),
        (#"{"signal":"SIGKILL"}"#, #"Unsupported signal "SIGKILL". Use "kill" or "terminate"."#),
        (#"{"signal":"KILL"}"#, #"Unsupported signal "KILL". Use "kill" or "terminate"."#),
        (#"{"signal":"x\"y"}"#, #"Unsupported signal "x"y". Use "kill" or "terminate"."#),
        (#"{"signal":"9"}"#, #"Unsupported signal "9". Use "kill" or "terminate"."#),
    ])
    func badSignals(body: String, message: String) throws {
        let (_, connection) = try shared()
        let id = try connection.start("sleep 1000")
        let response = try connection.request("POST", "/api/v0/processes/\(id)/signal", body: body)
        #expect(response.status == 400)
        #expect(response.json["message"] as? String == message)
        #expect(try connection.output(id).json["running"] as? Bool == true)
    }

    @Test(arguments: ["SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
    func furtherSignalsAreDelivered(name: String) async throws {
        let (_, connection) = try shared()
        let short = name.dropFirst(3)
        let id = try connection.start(
            "trap 'echo got \(short); exit 5' \(short); echo ready; while :; do sleep 0.05; done")
        try await eventually("it listens") { try connection.output(id).json["total_bytes"] as? Int == 6 }
        #expect(try connection.signal(id, name).status == 200)
        let answer = try connection.finish(id)
        // The shell may report the death of the sleep that it was waiting for.
        let output = try #require(answer["output"] as? String)
        #expect(output.hasPrefix("ready\n") && output.hasSuffix("got \(short)\n"))
        #expect(answer["exit_code"] as? Int == 5)
        #expect(answer["reason"] as? String == "exited")
    }

    @Test func stopAndContinue() async throws {
        let (_, connection) = try shared()
        let id = try connection.start("exec sleep 1000")
        let pid = try connection.pid(id)
        #expect(try connection.signal(id, "SIGSTOP").status == 200)
        try await eventually("it stops") { ProcFS.state(pid) == "T" }
        #expect(try connection.output(id).json["running"] as? Bool == true)
        #expect(try connection.signal(id, "SIGCONT").status == 200)
        try await eventually("it goes on") { ProcFS.state(pid) == "S" }
        #expect(try connection.signal(id, "SIGSTOP").status == 200)
        #expect(try connection.signal(id, "kill").status == 200)
        #expect(try connection.finish(id)["signal"] as? String == "SIGKILL")
    }

    @Test func killHitsGrandchildren() async throws {
        let (_, connection) = try shared()
        let id = try connection.start("sh -c 'sh -c \"sleep 1000; :\"; :' & sh -c 'sleep 1000; :'; :")
        let leader = try connection.pid(id)
        func session() -> [pid_t] {
            let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
            return names.compactMap { pid_t($0) }.filter { pid in
                guard let fields = ProcFS.fields(pid), fields.count > 3 else { return false }
                return pid_t(fields[3]) == leader && fields[0] != "Z"
            }
        }
        try await eventually("the family is complete") { session().count == 6 }
        #expect(try connection.signal(id, "kill").status == 200)
        #expect(try connection.finish(id)["running"] as? Bool == false)
        try await eventually("nobody is left") { session().isEmpty }
        try await eventually("the pipe is free") { try connection.output(id).json["lingering"] == nil }
    }

    @Test func aKilledScriptDoesNotGoOnToItsNextCommand() throws {
        let (_, connection) = try shared()
        for _ in 0..<10 {
            let id = try connection.start("sleep 1000; echo went on")
            _ = try connection.output(id, "?wait=true&timeout_ms=50")
            _ = try connection.signal(id, "kill")
            let answer = try connection.finish(id)
            #expect(answer["output"] as? String == "")
            #expect(answer["signal"] as? String == "SIGKILL")
            #expect(answer["reason"] as? String == "killed_by_request")
        }
    }

    @Test func terminateHitsChildrenToo() async throws {
        let (_, connection) = try shared()
        let id = try connection.start("sleep 1000 & echo $!; wait")
        try await eventually("its output is here") { try connection.output(id).json["total_bytes"] as? Int ?? 0 > 1 }
        let text = try #require(try connection.output(id).json["output"] as? String)
        let child = try #require(pid_t(text.trimmingCharacters(in: .newlines)))
        _ = try connection.signal(id, "terminate")
        #expect(try connection.finish(id)["running"] as? Bool == false)
        try await eventually("the child is gone and reaped") { !ProcFS.exists(child) }
    }

    @Test func aProcessThatIgnoresTerminate() async throws {
        let (_, connection) = try shared()
        let id = try connection.start("trap 'echo no' TERM; echo ready; while :; do sleep 0.05; done")
        try await eventually("it listens") { try connection.output(id).json["total_bytes"] as? Int == 6 }
        #expect(try connection.signal(id, "terminate").status == 200)
        try await eventually("it says no") {
            // The shell may add that its sleep was terminated.
            (try connection.output(id).json["output"] as? String)?.contains("no\n") == true
        }
        #expect(try connection.output(id).json["running"] as? Bool == true)
        #expect(try connection.signal(id, "kill").status == 200)
        #expect(try connection.finish(id)["reason"] as? String == "killed_by_request")
    }

    @Test func aTimeOutTerminates() throws {
        let (_, connection) = try shared()
        let begin = ContinuousClock.now
        let answer = try connection.run("echo x; exec sleep 1000", ["timeout_ms": 5_000])
        let took = begin.duration(to: .now)
        #expect(took >= .milliseconds(4_995) && took < .seconds(60))
        #expect(answer["reason"] as? String == "timeout")
        #expect(answer["signal"] as? String == "SIGTERM")
        #expect(answer["output"] as? String == "x\n")
        let early = try connection.run("exit 3", ["timeout_ms": 60_000])
        #expect(early["reason"] as? String == "exited")
    }

    @Test func aTimeOutKillsWhatIgnoresIt() async throws {
        let (_, connection) = try shared()
        let begin = ContinuousClock.now
        let id = try connection.start("trap '' TERM; while :; do sleep 0.1; done", ["timeout_ms": 5_000])
        try await eventually("it is killed") {
            try connection.output(id).json["running"] as? Bool == false
        }
        // Its time, and then the grace.
        #expect(begin.duration(to: .now) > .seconds(9.5))
        let answer = try connection.output(id).json
        #expect(answer["reason"] as? String == "timeout")
        #expect(answer["signal"] as? String == "SIGKILL")
    }
}

@Suite(.blocking) struct RefusedSignalTests {
    /// A setuid program that has become root is nothing that a daemon of another user may signal.
    @Test(.enabled(if: Privileges.isRoot)) func aRefusedSignalIsNotTheReasonOfALaterDeath() async throws {
        let directory = try Privileges.directoryOfNobody()
        let program = "\(directory.path)/become-root"
        #expect(try CommandResult.of(["cp", "/usr/bin/setpriv", program]).code == 0)
        chmod(program, 0o4755)
        let daemon = try DaemonProcess(environment: ["HOME": "/"], wrapper: Privileges.asNobody, directory: directory)
        let connection = try daemon.connect()
        let id = try connection.start("exec \(program) --reuid=0 sh -c 'echo up; exec sleep 1000'")
        try await eventually("it has become root") { try connection.output(id).json["total_bytes"] as? Int == 3 }
        for name in ["terminate", "kill", "terminate"] {
            let refused = try connection.signal(id, name)
            #expect(refused.status == 500)
            #expect(refused.json["message"] as? String == "Failed to signal process.")
            #expect(refused.json["detail"] as? String == "Operation not permitted")
        }
        kill(try connection.pid(id), SIGTERM)
        let answer = try connection.finish(id)
        #expect(answer["signal"] as? String == "SIGTERM")
        #expect(answer["reason"] as? String == "signaled")
        #expect(try await daemon.stop() == 0)
    }
}

@Suite(.sharedDaemon) struct ClientTokenTests {
    private func token(_ token: String, chat: String? = nil) throws -> RawConnection.Response {
        try shared().connection.request(
            "GET", "/api/v0/processes/tokens/\(token)", headers: ["Coder-Chat-Id": chat ?? ""])
    }

    @Test func aSecondStartAttaches() throws {
        let (_, connection) = try shared()
        let name = newChat()
        #expect(try token(name).text == #"{"found":false}"#)
        let body: [String: Any] = ["command": "echo once", "client_token": name, "env": ["A": "1"], "workdir": "/tmp"]
        let first = try connection.postStart(body)
        let id = try #require(first.json["id"] as? String)
        #expect(first.json["started"] as? Bool == true)
        #expect(first.json["attached"] == nil)
        for _ in 0..<2 {
            let second = try connection.postStart(body)
            #expect(second.status == 200)
            #expect(second.json["id"] as? String == id)
            #expect(second.json["started"] as? Bool == false)
            #expect(second.json["attached"] as? Bool == true)
            // Exited or not.
            _ = try connection.finish(id)
        }
        #expect(try token(name).text == #"{"found":true,"process_id":"\#(id)"}"#)
    }

    @Test func anotherBodyConflicts() throws {
        let (_, connection) = try shared()
        let name = newChat()
        let body: [String: Any] = ["command": "true", "client_token": name]
        #expect(try connection.postStart(body).status == 200)
        for other: [String: Any] in [
            ["command": "false"], ["command": "true", "env": ["A": "1"]], ["command": "true", "workdir": "/tmp"],
            ["command": "true", "background": true], ["command": "true", "timeout_ms": 9999], ["argv": ["true"]],
        ] {
            let response = try connection.postStart(other.merging(["client_token": name]) { old, _ in old })
            #expect(response.status == 409)
            #expect(response.json["message"] is String)
        }
    }

    @Test func anotherChatIsAnotherToken() throws {
        let (_, connection) = try shared()
        let (name, chat) = (newChat(), newChat())
        let body: [String: Any] = ["command": "true", "client_token": name]
        let ids = try [nil, chat, newChat()].map { try connection.postStart(body, chat: $0).json["id"] as? String }
        #expect(Set(ids.compactMap { $0 }).count == 3)
        #expect(try token(name, chat: chat).json["process_id"] as? String == ids[1])
        #expect(try token(name, chat: newChat()).text == #"{"found":false}"#)
    }

    @Test func concurrentStartsMakeOneProcess() throws {
        let (daemon, _) = try shared()
        let name = newChat()
        let connections = try (0..<20).map { _ in try daemon.connect() }
        let body = RawConnection.json(["command": "sleep 0.3; echo x", "client_token": name])
        for connection in connections { try connection.send("POST", "/api/v0/processes/start", body: body) }
        let answers = try connections.map { try $0.response().json }
        #expect(Set(answers.compactMap { $0["id"] as? String }).count == 1)
        #expect(answers.count { $0["started"] as? Bool == true } == 1)
        #expect(answers.count { $0["attached"] as? Bool == true } == 19)
    }

    @Test func aFailedStartFreesItsToken() throws {
        let (_, connection) = try shared()
        let name = newChat()
        let bad = try connection.postStart(["command": "true", "workdir": "/nonexistent", "client_token": name])
        #expect(bad.status == 400)
        #expect(try token(name).text == #"{"found":false}"#)
        #expect(try connection.postStart(["command": "true", "client_token": name]).json["started"] as? Bool == true)
    }

    @Test func tokensWithCharactersThatURLsEscape() throws {
        let (_, connection) = try shared()
        let name = "ä b \(newChat())"
        #expect(try connection.postStart(["command": "true", "client_token": name]).status == 200)
        let escaped = try #require(name.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
        #expect(try token(escaped).json["found"] as? Bool == true)
    }

    @Test func tokenLengths() throws {
        let (_, connection) = try shared()
        for (count, status) in [(256, 200), (257, 400)] {
            let name = newChat() + String(repeating: "t", count: count - 36)
            #expect(try connection.postStart(["command": "true", "client_token": name]).status == status)
        }
    }
}
