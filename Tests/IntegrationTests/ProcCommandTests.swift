import AgentTestSupport
import Foundation
import Glibc
import Testing

/// The proc commands without a terminal, as scripts use them.
@Suite(.sharedDaemon, .timeLimit(.minutes(5))) struct ProcCommandTests {
    private func proc(_ arguments: String..., environment: [String: String] = [:]) throws -> CommandResult {
        try CommandResult.of(
            [DaemonProcess.binary, "proc"] + arguments,
            environment: environment.merging(["WORKSPACE_AGENT_HTTP_SOCKET": shared().daemon.socket]) { $1 })
    }

    /// A script in which `$A` is the program under test.
    private func shell(_ script: String) throws -> CommandResult {
        try CommandResult.of(
            ["/bin/bash", "-c", script],
            environment: ["A": DaemonProcess.binary, "WORKSPACE_AGENT_HTTP_SOCKET": shared().daemon.socket])
    }

    // MARK: run

    @Test(arguments: [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -INT $$", 130)])
    func theExitCodeIsTheProcesss(script: String, code: Int32) throws {
        let result = try proc("run", "--", "sh", "-c", "echo out; echo err >&2; \(script)")
        #expect(result.code == code)
        #expect(result.output == "out\nerr\n")
        #expect(result.errors == "")
    }

    @Test func itRunsHereWithTheAgentsEnvironment() throws {
        let directory = try TemporaryDirectory()
        let command = #"sh -c 'pwd; echo ${SECRET-none}; echo "$@"' - 'a b' '*'"#
        let result = try shell("cd \(directory.path); SECRET=1 $A proc run -- \(command)")
        #expect(result.output == "\(directory.path)\nnone\na b *\n")
        let gone = try shell("cd \(directory.path); mkdir x; cd x; rmdir ../x; $A proc run -- true")
        #expect(gone.code == 1 && gone.errors.contains("no working directory"), "\(gone.errors)")
    }

    @Test func aProgramThatIsMissingIsOneLine() throws {
        let result = try proc("run", "--", "/nonexistent/program")
        #expect(result.code == 1)
        #expect(result.errors.contains("/nonexistent/program: No such file or directory"), "\(result.errors)")
        #expect(result.errors.split(separator: "\n").count == 1)
        #expect(try proc("run", "true").code == 2)
        #expect(try proc("run", "--timeout", "200h", "--", "true").code == 2)
    }

    @Test func aTimeoutIsSaid() throws {
        let result = try proc("run", "--timeout", "100ms", "--", "sleep", "1000")
        #expect(result.code == 143)
        #expect(result.errors == "workspace-agent: the process was ended after 100ms (--timeout)\n")
        let byVariable = try proc("run", "--", "sleep", "1000", environment: ["WORKSPACE_AGENT_PROC_TIMEOUT": "90ms"])
        #expect(byVariable.errors == "workspace-agent: the process was ended after 90ms (--timeout)\n")
    }

    @Test func inputAndOutputAreBytes() throws {
        let directory = try TemporaryDirectory()
        let script =
            "cd \(directory.path); head -c 3000000 /dev/urandom > in; printf 'no newline' >> in; cat in | $A proc run -- sh -c 'cat; exit 4' | cat > out; echo ${PIPESTATUS[@]}"
        #expect(try shell(script).output == "0 4 0\n")
        let (input, output) = ("\(directory.path)/in", "\(directory.path)/out")
        #expect(try Data(contentsOf: URL(fileURLWithPath: output)) == Data(contentsOf: URL(fileURLWithPath: input)))
        // Nothing to read at all, and a process that reads nothing.
        #expect(try shell("$A proc run -- wc -c <&-").output == "0\n")
        #expect(try shell("yes | $A proc run -- echo done; echo ${PIPESTATUS[1]}").output == "done\n0\n")
    }

    @Test func aPipeThatClosesEndsAllQuietly() async throws {
        let (_, connection) = try shared()
        let name = "marker-\(getpid())-\(UInt32.random(in: 0...UInt32.max))"
        let command = "sh -c 'while :; do echo \(name); done'"
        let result = try shell("$A proc run -- \(command) | head -n 1; echo ${PIPESTATUS[0]}")
        #expect(result.output == "\(name)\n141\n")
        #expect(result.errors == "")
        try await eventually("the process has ended") {
            let ours = try connection.list("?limit=1000").first { ($0["command"] as? String)?.contains(name) == true }
            return ours?["running"] as? Bool == false
        }
    }

    @Test(arguments: [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131)])
    func aSignalGoesToTheProcess(name: String, code: Int32) throws {
        // The first is handled, and the code is the process's; the second kills it.
        let process = "trap 'echo got it' \(name); echo go; while :; do :; done"
        let result = try shell(
            """
            coproc exec $A proc run -- sh -c "\(process)"
            pid=$COPROC_PID; exec 3<&${COPROC[0]}
            read -u 3 line; kill -\(name) $pid; read -u 3 line; echo $line
            kill -\(name) $pid; wait $pid; echo $?
            """)
        #expect(result.output == "got it\n\(code)\n", "\(result.errors)")
    }

    @Test func detachedItGoesOn() throws {
        let (_, connection) = try shared()
        let result = try proc("run", "--detach", "--", "sleep", "1000")
        let id = String(result.output.dropLast())
        #expect(result.code == 0 && UUID(uuidString: id) != nil, "\(result.output)")
        #expect(try connection.output(id).json["running"] as? Bool == true)
        #expect(try proc("signal", String(id.prefix(13)), "int").output.hasPrefix("Signal \"SIGINT\" sent"))
        #expect(try proc("wait", id).output == "killed SIGINT\n")
        let again = try proc("signal", id, "kill")
        #expect(again.code == 1 && again.errors.contains("is not running"), "\(again.errors)")
    }

    @Test func aTerminalWithoutOneHere() throws {
        let script = "tty > /dev/null && stty size && echo $TERM"
        let result = try proc("run", "--pty", "--", "sh", "-c", script, environment: ["TERM": "vt99"])
        #expect(result.output == "24 80\r\nvt99\r\n")
        #expect(try shell("echo 'echo from $((40 + 2))' | $A proc run --pty -- sh").output.contains("from 42\r\n"))
    }

    @Test(arguments: ["abc", "abc\n", "", "one\ntwo"]) func theEndOfPipedInputEndsATerminalsProgram(text: String) throws
    {
        let quoted = text.replacingOccurrences(of: "\n", with: "\\n")
        let result = try shell("printf '\(quoted)' | $A proc run --pty -- sh -c 'stty -echo; cat; echo end'; echo $?")
        #expect(result.output.hasSuffix("end\r\n0\n"), "\(result.output) \(result.errors)")
        // Before it is asked not to, the terminal may echo what is typed.
        let lines = text.replacingOccurrences(of: "\n", with: "\r\n")
        #expect(lines.isEmpty || result.output.contains(lines))
    }

    // MARK: attach

    @Test func attachGivesInputAndTakesOutput() throws {
        let id = try shared().connection.start("read a; echo got $a; exit 6", ["stdin": true])
        let result = try shell(
            "$A proc attach --no-stdin \(id) & echo hello | $A proc attach \(id); echo $?; wait $!; echo $?")
        #expect(result.output.split(separator: "\n").sorted() == ["6", "6", "got hello", "got hello"])
    }

    /// Only Ctrl-C is for the process.
    @Test(arguments: [("TERM", 143), ("HUP", 129)]) func anAttachThatIsEndedLeavesTheProcess(
        name: String, code: Int32
    ) throws {
        let (_, connection) = try shared()
        let id = try connection.start("trap 'echo got it' INT; echo go; while :; do :; done")
        let result = try shell(
            """
            coproc exec $A proc attach \(id)
            pid=$COPROC_PID; exec 3<&${COPROC[0]}
            read -u 3 line; kill -INT $pid; read -u 3 line; echo $line
            kill -\(name) $pid; wait $pid; echo $?
            """)
        #expect(result.output == "got it\n\(code)\n", "\(result.errors)")
        #expect(try connection.output(id).json["running"] as? Bool == true)
        _ = try connection.signal(id, "kill")
    }

    // MARK: ls, output

    @Test func theListIsATableOrTheAnswer() throws {
        let (_, connection) = try shared()
        let running = try connection.start("sleep 1000; echo \u{1B}[31m")
        let ended = try connection.start("exit 3")
        _ = try connection.finish(ended)
        let table = try proc("ls", "-a").output.split(separator: "\n")
        #expect(table.first?.hasPrefix("ID        STATUS") == true)
        func hasLine(_ parts: [String]) -> Bool {
            table.contains { line in parts.allSatisfy { line.contains($0) } }
        }
        #expect(hasLine([String(running.prefix(8)), "  running ", "  sleep 1000; echo ␛[31m"]))
        #expect(hasLine([String(ended.prefix(8)), "  exited 3 ", "  exit 3"]))
        let short = try proc("ls").output
        #expect(short.contains(running.prefix(8)) && !short.contains(ended.prefix(8)))
        #expect(try proc("ls", "--limit", "1").output.split(separator: "\n").count == 2)
        for (flag, ids) in [("--all", [running, ended]), ("--limit=1000", [running])] {
            let json = try JSONSerialization.jsonObject(with: Data(proc("ls", "-o", "json", flag).output.utf8))
            let list = (json as? [String: Any])?["processes"] as? [[String: Any]]
            let found = Set((list ?? []).compactMap { $0["id"] as? String }).intersection([running, ended])
            #expect(found == Set(ids))
        }
        #expect(try proc("ls", "--limit", "0").code == 2)
        _ = try connection.signal(running, "kill")
    }

    @Test func theFirstCharactersOfAnIDWillDo() throws {
        let (_, connection) = try shared()
        var ids: [String] = []
        // Of 17 ids two begin with the same hexadecimal digit.
        for _ in 0..<17 { ids.append(try connection.start("echo it is me")) }
        for id in ids { _ = try connection.finish(id) }
        let id = try #require(ids.first)
        #expect(try proc("output", String(id.prefix(18).uppercased())).output == "it is me\n")
        let digit = try #require("0123456789abcdef".first { digit in ids.filter { $0.first == digit }.count > 1 })
        let ambiguous = try proc("output", String(digit))
        #expect(ambiguous.code == 1)
        #expect(ambiguous.errors.contains("processes have ids that begin with \"\(digit)\" ("), "\(ambiguous.errors)")
        for unknown in ["x", "", "x/../list"] {
            let result = try proc("output", "--", unknown)
            #expect(result.code == 1 && result.errors.contains("no process has an id that begins with"))
        }
        let missing = try proc("wait", "00000000-0000-0000-0000-000000000000")
        #expect(missing.code == 1 && missing.errors.contains("not found"), "\(missing.errors)")
    }

    @Test func outputInThreeWays() throws {
        let (_, connection) = try shared()
        let directory = try TemporaryDirectory()
        let bytes = Data((0..<300_000).map { _ in UInt8.random(in: 0...255) })
        try bytes.write(to: URL(fileURLWithPath: "\(directory.path)/in"))
        let id = try connection.start("cat \(directory.path)/in")
        let answer = try connection.finish(id)
        #expect(try proc("output", id).output == answer["output"] as? String)
        #expect(try proc("output", id, "-o", "json").output.contains("\"truncated\":{"))
        for flag in ["--raw", "--follow"] {
            #expect(try shell("$A proc output \(id) \(flag) > \(directory.path)/out").code == 0)
            #expect(try Data(contentsOf: URL(fileURLWithPath: "\(directory.path)/out")) == bytes, "\(flag)")
            let closed = try shell("$A proc output \(id) \(flag) | head -c 10 > /dev/null; echo ${PIPESTATUS[0]}")
            #expect(closed.output == "141\n" && closed.errors == "")
        }
        #expect(try proc("output", id, "--raw", "--follow").code == 2)
        let long = try connection.start("head -c 3000 /dev/zero | tr '\\0' x")
        _ = try connection.finish(long)
        let cut = try proc("output", long)
        #expect(cut.output.hasSuffix(" ... [truncated]"))
        #expect(cut.errors == "workspace-agent: 1 long lines are cut; --raw has them whole\n")
    }

    @Test func followShowsWhatComesAndEnds() throws {
        let id = try shared().connection.start("echo one; read x; echo two $x; exit 3", ["stdin": true])
        let result = try shell(
            """
            coproc exec $A proc output \(id) --follow
            exec 3<&${COPROC[0]}; pid=$COPROC_PID
            read -u 3 line; echo $line; echo go | $A proc attach \(id) > /dev/null
            cat <&3; wait $pid; echo $?
            """)
        #expect(result.output == "one\ntwo go\n0\n", "\(result.errors)")
    }

    /// More than the agent keeps, of a process that never waits for us.
    @Test func missingOutputIsSaid() throws {
        let directory = try TemporaryDirectory()
        // Nothing is read before the process has written all of it.
        let command = "head -c 80000000 /dev/zero; touch \(directory.path)/done"
        let result = try shell(
            """
            $A proc run -- sh -c '\(command)' | (while [ ! -e \(directory.path)/done ]; do :; done; wc -c)
            echo ${PIPESTATUS[0]}
            """)
        let lines = result.output.split(separator: "\n").compactMap { Int($0) }
        let total = result.errors.split(separator: "\n").last?.split(separator: " ").compactMap { Int($0) }.first ?? 0
        #expect(lines.count == 2 && lines.last == 0 && total > 0, "\(result.errors)")
        #expect(lines.first == 80_000_000 - total)
        #expect(result.errors.hasPrefix("workspace-agent: output is missing from byte 67108864 on: "))
        #expect(result.errors.split(separator: "\n").count == 2)
    }

    // MARK: wait

    @Test func waitForWhatAProcessDoes() throws {
        let (_, connection) = try shared()
        let directory = try TemporaryDirectory()
        let server = """
            import socket, time
            s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
            print('port', s.getsockname()[1], flush=True)
            open('\(directory.path)/file', 'w'); time.sleep(1000)
            """
        let id = try connection.start("exec python3 -c \"\(server)\"")
        let line = try proc("wait", id, "--for", "output:^port [0-9]+$", "--timeout", "30s")
        let port = try #require(line.output.hasPrefix("port ") ? Int(line.output.dropFirst(5).dropLast()) : nil)
        let byPort = try proc("wait", id, "--for=port:\(port)", "--timeout", "30s")
        #expect(byPort.code == 0 && byPort.output == "" && byPort.errors == "")
        // The path is the caller's, not the process's.
        #expect(try shell("cd \(directory.path); $A proc wait \(id) --for file:file --timeout 30s").code == 0)

        let late = try proc("wait", id, "--for", "output:never", "--timeout", "50ms")
        #expect(late.code == 1)
        #expect(late.errors.hasSuffix("is still running, and 50ms was over before its output matched \"never\"\n"))
        let json = try proc("wait", id, "--timeout", "50ms", "--output", "json")
        #expect(json.code == 1 && json.output.contains("\"timed_out\":true"), "\(json.output)")
        let wrong = try proc("wait", id, "--for", "output:(")
        #expect(wrong.code == 2 && wrong.errors.hasPrefix("workspace-agent: --for: "), "\(wrong.errors)")
        #expect(try proc("wait", id, "--for", "exit:").code == 2)

        _ = try connection.signal(id, "kill")
        let ended = try proc("wait", id, "--for", "port:1")
        #expect(ended.code == 1 && ended.errors.hasSuffix("ended (killed SIGKILL) before port 1 was open\n"))
        #expect(try proc("wait", id).output == "killed SIGKILL\n")
    }
}
