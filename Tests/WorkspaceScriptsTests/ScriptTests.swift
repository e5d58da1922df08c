import AgentCore
import AgentProto
import AgentTestSupport
import DRPC
import FoundationEssentials
import Glibc
import SwiftProtobuf
import Synchronization
import Testing

@testable import WorkspaceScripts

private typealias Script = Coder_Agent_V2_WorkspaceAgentScript

@Suite(.serialized, .timeLimit(.minutes(5))) struct ScriptTests {
    private let source = "01010101-0101-0101-0101-010101010101"

    @Test func outputGoesToTheFileAndTheLogAndTheResultIsReported() async throws {
        try await ScriptFixture.with { fixture in
            mkdir("\(fixture.home)/project", 0o700)
            try fixture.manifest(scripts: [
                .make("pwd; printf 'a\\r\\n\\000b\\n\\377'; echo oops >&2; printf tail; exit 3")
            ]) { $0.directory = "~/project" }
            #expect(try await fixture.scripts.runStartScripts() == .failed)
            let connection = try await fixture.delivered()
            let logs = connection.logs.flatMap(\.logs)
            #expect(
                logs.filter { $0.level == .info }.map(\.output)
                    == ["\(fixture.home)/project", "a", "\u{fffd}b", "\u{fffd}tail"])
            #expect(logs.filter { $0.level == .error }.map(\.output) == ["oops"])
            #expect(connection.logs.allSatisfy { $0.logSourceID == Data(repeating: 1, count: 16) })
            let timing = try #require(connection.scripts.first)
            #expect(connection.scripts.count == 1)
            #expect(timing.status == .exitFailure && timing.exitCode == 3 && timing.stage == .start)
            #expect(timing.scriptID == Data(repeating: 1, count: 16))
            #expect(timing.start.seconds == 1_700_000_000 && timing.end.seconds == 1_700_000_000)
            let file = try #require(readFile("\(fixture.home)/logs/coder-script-\(source).log"))
            #expect(String(decoding: file, as: UTF8.self).contains("oops"))
            #expect(file.contains(0) && file.contains(0xff))
        }
    }

    @Test func startScriptsRunTogetherAndOncePerLife() async throws {
        try await ScriptFixture.with { fixture in
            // Each waits for what the other does.
            try fixture.manifest(scripts: [
                .make("touch ~/one; until [ -e ~/two ]; do sleep 0.01; done; echo one"),
                .make("touch ~/two; until [ -e ~/one ]; do sleep 0.01; done; echo two", number: 2),
                .make("echo never", number: 3) { $0.runOnStart = false },
            ])
            async let first = fixture.scripts.runStartScripts()
            async let second = fixture.scripts.runStartScripts()
            #expect(try await [first, second] == [.succeeded, .succeeded])
            #expect(try await fixture.scripts.runStartScripts() == .succeeded)
            #expect(try await fixture.delivered().lines.sorted() == ["one", "two"])
        }
    }

    @Test func losingTheCallerDoesNotEndAScript() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(scripts: [
                .make("touch ~/runs; until [ -e ~/go ]; do sleep 0.01; done; echo done")
            ])
            let caller = Task { try await fixture.scripts.runStartScripts() }
            try await eventually("it runs") { access("\(fixture.home)/runs", F_OK) == 0 }
            caller.cancel()
            await #expect(throws: CancellationError.self) { try await caller.value }
            creat("\(fixture.home)/go", 0o600)
            #expect(try await fixture.scripts.runStartScripts() == .succeeded)
            #expect(try await fixture.delivered().lines == ["done"])
        }
    }

    @Test func theEnvironmentIsTheBuildersAndTheScripts() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(scripts: [
                .make(
                    """
                    echo "$CODER $CODER_WORKSPACE_NAME $CODER_SCRIPT_DATA_DIR $CODER_SCRIPT_BIN_DIR $PATH"
                    stat -c %a "$CODER_SCRIPT_DATA_DIR" "$CODER_SCRIPT_BIN_DIR"
                    printf '#!/bin/sh\\necho tool' > "$CODER_SCRIPT_BIN_DIR/mytool"; chmod 700 "$CODER_SCRIPT_BIN_DIR/mytool"
                    mytool; [ "$API_KEY" = hush-secret ] && echo secret
                    cat; ps -o sid= -p $$ | tr -d ' '; echo $$
                    """)
            ])
            #expect(try await fixture.scripts.runStartScripts() == .succeeded)
            let lines = try await fixture.delivered().lines
            let state = "\(fixture.home)/state"
            #expect(lines.first == "true ws \(state)/data/\(source) \(state)/bin \(state)/bin:/usr/bin:/bin")
            #expect(Array(lines[1...4]) == ["700", "700", "tool", "secret"])
            #expect(lines.count == 7 && lines[5] == lines[6])
            #expect(!fixture.log.lines.contains { $0.contains("hush") })
        }
    }

    @Test func aTimeoutEndsTheSession() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(scripts: [
                .make("trap 'exit 0' TERM; (trap '' TERM; touch ~/ready; while :; do sleep 0.05; done) & wait") {
                    $0.timeout = Google_Protobuf_Duration(seconds: 30)
                }
            ])
            let result = Task { try await fixture.scripts.runStartScripts() }
            try await eventually("it runs") { access("\(fixture.home)/ready", F_OK) == 0 }
            await fixture.time.manual.sleepers(1)
            fixture.time.manual.advance(by: .seconds(30))
            // The leader goes at SIGTERM; the rest holds its output until SIGKILL.
            await fixture.time.manual.sleepers(2)
            #expect(fixture.commands.running == 1)
            fixture.time.manual.advance(by: .seconds(10))
            #expect(try await result.value == .timedOut)
            try await eventually("nothing is left") { fixture.commands.running == 0 }
            let connection = try await fixture.delivered()
            #expect(connection.scripts.map { "\($0.status) \($0.exitCode)" } == ["timedOut -1"])
            #expect(connection.lines.contains { $0.contains("timeout of 30.0 seconds") })
        }
    }

    @Test func outputThatIsHeldOpenIsSaid() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(scripts: [.make("sleep 1000 & echo started")])
            let result = Task { try await fixture.scripts.runStartScripts() }
            await fixture.time.manual.sleepers(1)
            #expect(fixture.commands.running == 1)
            fixture.time.manual.advance(by: .seconds(10))
            #expect(try await result.value == .succeeded)
            let connection = try await fixture.delivered()
            let timing = try #require(connection.scripts.first)
            #expect(timing.status == .pipesLeftOpen && timing.exitCode == 0)
            #expect(connection.lines.first == "started")
            let warning = try #require(connection.logs.flatMap(\.logs).last)
            #expect(warning.level == .warn && warning.output.contains("2>&1 &"))
            let file = readTextFile("\(fixture.home)/logs/coder-script-\(source).log")
            #expect(file == "started\n\(warning.output)\n")
        }
    }

    @Test func whatCannotStartIsAFailureWithAReason() async throws {
        try await ScriptFixture.with(shell: "/no/such/shell") { fixture in
            try fixture.manifest(scripts: [.make("true"), .make("nul\0", number: 2)])
            #expect(try await fixture.scripts.runStartScripts() == .failed)
            let connection = try await fixture.delivered()
            #expect(connection.scripts.allSatisfy { $0.status == .exitFailure && $0.exitCode == 255 })
            #expect(connection.scripts.count == 2)
            #expect(connection.lines.contains { $0.contains("/no/such/shell") })
            #expect(connection.lines.contains { $0.contains("NUL") })
        }
    }

    @Test func deathBySignalHasNoCode() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(scripts: [.make("kill -9 $$")])
            #expect(try await fixture.scripts.runStartScripts() == .failed)
            let connection = try await fixture.delivered()
            #expect(connection.scripts.first?.exitCode == 255)
            #expect(connection.lines == ["The script was killed by signal 9."])
        }
    }

    @Test func aMissingDirectoryMeansHome() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(scripts: [.make("pwd")]) { $0.directory = "/no/such" }
            #expect(try await fixture.scripts.runStartScripts() == .succeeded)
            let lines = try await fixture.delivered().lines
            #expect(lines.first == fixture.home && lines.last?.contains("/no/such") == true)
        }
    }

    @Test func logPathsExpandAndFilesAreAppendedTo() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(scripts: [
                .make("echo a") { $0.logPath = "~/x/$CODER_WORKSPACE_NAME.log" },
                .make("echo b", number: 2) { $0.logPath = "relative.log" },
                .make("echo c", number: 3) {
                    $0.logPath = "~/x/ws.log"
                    ($0.runOnStart, $0.runOnStop) = (false, true)
                },
                .make("echo d", number: 4) { $0.logPath = "/proc/no/log" },
            ])
            #expect(try await fixture.scripts.runStartScripts() == .succeeded)
            #expect(readTextFile("\(fixture.home)/x/ws.log") == "a\n")
            #expect(await fixture.scripts.runStopScripts() == .succeeded)
            #expect(readTextFile("\(fixture.home)/x/ws.log") == "a\nc\n")
            #expect(readTextFile("\(fixture.home)/logs/relative.log") == "b\n")
            var info = stat()
            #expect(stat("\(fixture.home)/x/ws.log", &info) == 0 && info.st_mode & 0o777 == 0o600)
            let connection = try await fixture.delivered()
            #expect(connection.lines.contains("d"))
            #expect(connection.scripts.map(\.stage).filter { $0 == .stop }.count == 1)
        }
    }

    @Test func muchOutputArrivesWholeInTheFile() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(scripts: [.make("seq 1 400000")])
            #expect(try await fixture.scripts.runStartScripts() == .succeeded)
            var info = stat()
            #expect(stat("\(fixture.home)/logs/coder-script-\(source).log", &info) == 0 && info.st_size == 2_688_895)
            #expect(fixture.log.lines.count { $0.contains("lines are left out") } == 1)
        }
    }

    @Test func aLogFileHasItsLimits() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/log"
        let first = try ScriptLogFile(path: path, limit: 10)
        #expect(first.write(Array("12345".utf8)) == nil)
        #expect(first.write(Array("67890".utf8)) == nil)
        #expect(first.write(Array("x".utf8))?.contains("limit") == true)
        #expect(first.write(Array("x".utf8)) == nil)
        #expect(readTextFile(path) == "1234567890")
        let second = try ScriptLogFile(path: path, limit: 10)
        #expect(second.write(Array("new".utf8)) == nil)
        #expect(readTextFile("\(path).1") == "1234567890")
        #expect(readTextFile(path) == "new")
        mkfifo("\(directory.path)/fifo", 0o600)
        for odd in ["fifo", "."] {
            #expect(throws: CoreError.self) { _ = try ScriptLogFile(path: "\(directory.path)/\(odd)") }
        }
    }

    @Test func cancellingEndsEverything() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(scripts: [
                .make("trap '' TERM; touch ~/ready; sleep 1000 & while :; do wait; done"),
                .make("echo no", number: 2) { ($0.runOnStart, $0.runOnStop) = (false, true) },
            ])
            let result = Task { try await fixture.scripts.runStartScripts() }
            try await eventually("it runs") { access("\(fixture.home)/ready", F_OK) == 0 }
            let isOver = Mutex(false)
            Task {
                await fixture.scripts.cancelAll()
                isOver.withLock { $0 = true }
            }
            try await eventually("its patience begins") { fixture.time.manual.sleeping > 0 }
            fixture.time.manual.advance(by: .seconds(2))
            try await eventually("all have ended") { isOver.withLock { $0 } }
            #expect(try await result.value == .failed)
            #expect(fixture.commands.running == 0)
            #expect(await fixture.scripts.runStopScripts() == .failed)
            #expect(try await fixture.delivered().scripts.count == 1)
        }
    }

    @Test func schedulesRunAndSkipWhatStillRuns() async throws {
        // 2023-11-14 22:13:20 UTC
        try await ScriptFixture.with { fixture in
            let script = Script.make("echo run; until [ -e ~/go ]; do sleep 0.01; done") {
                ($0.runOnStart, $0.cron) = (false, "TZ=UTC 0 */1 * * * *")
            }
            try fixture.manifest(scripts: [
                script, .make("echo bad", number: 2) { ($0.runOnStart, $0.cron) = (false, "0 0 30 2 *") },
            ])
            fixture.scripts.startCron()
            #expect(fixture.log.lines.contains { $0.contains("not scheduled") })
            let manual = fixture.time.manual
            await manual.sleepers(1)
            manual.advance(by: .seconds(39))
            #expect(fixture.commands.running == 0)
            await manual.sleepers(1)
            manual.advance(by: .seconds(1))
            try await eventually("it runs") { !fixture.logs.isEmpty }
            await manual.sleepers(1)
            manual.advance(by: .seconds(60))
            try await eventually("the second is left out") {
                fixture.metrics.render().contains("agent_script_cron_skipped_total 1")
            }
            creat("\(fixture.home)/go", 0o600)
            try await eventually("the first ended") { !fixture.reports.isEmpty && fixture.commands.running == 0 }
            await manual.sleepers(1)
            // The same manifest again changes nothing, another one does.
            try fixture.manifest(scripts: [script])
            await manual.sleepers(1)
            manual.advance(by: .seconds(60))
            try await eventually("the third ran") {
                fixture.metrics.render().contains(#"agent_scripts_total{stage="cron",status="ok"} 2"#)
            }
            try fixture.manifest(scripts: [])
            try await eventually("no schedule is left") { manual.sleeping == 0 }
            #expect(await fixture.scripts.runStopScripts() == .succeeded)
            let connection = try await fixture.delivered()
            #expect(connection.lines == ["run", "run"])
            #expect(connection.scripts.map(\.stage) == [.cron, .cron])
        }
    }

    @Test func resultsSurviveReconnects() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(scripts: [.make("true"), .make("false", number: 2)])
            #expect(try await fixture.scripts.runStartScripts() == .failed)
            let first = RecordingConnection()
            first.plan([nil, .drop(delivered: false)])
            let reporter = ScriptReporter(reports: fixture.reports)
            await #expect(throws: DRPCError(.closed, "")) { try await reporter.run(first) }
            #expect(first.scripts.count == 1)
            let second = try await fixture.delivered()
            #expect(Set((first.scripts + second.scripts).map(\.status)) == [.ok, .exitFailure])
        }
    }

    @Test func resultsThatWaitAreBounded() throws {
        let log = LogLines()
        let reports = ScriptReports(metrics: MetricsRegistry(), logger: log.logger)
        for _ in 0..<ScriptLimits.scriptReports { reports.add(Coder_Agent_V2_Timing()) }
        #expect(log.lines.isEmpty)
        reports.add(Coder_Agent_V2_Timing())
        #expect(log.lines.count == 1)
    }

    @Test func twoHundredScriptsLeaveNothingBehind() async throws {
        try await ScriptFixture.with { fixture in
            let scripts = (0..<200).map { number in
                Script.make("echo \(number); exit \(number % 3)", number: UInt8(number))
            }
            try fixture.manifest(scripts: scripts)
            // Standard input may be a pipe whose writer has gone.
            let before = deadDescriptors(under: fixture.home)
            #expect(try await fixture.scripts.runStartScripts() == .failed)
            try await eventually("all commands are gone") { fixture.commands.running == 0 }
            // Those of other tests come and go; what we left behind would stay.
            var left = deadDescriptors(under: fixture.home).subtracting(before)
            try await eventually("all descriptors are closed") {
                left.formIntersection(deadDescriptors(under: fixture.home))
                return left.isEmpty
            }
            let connection = try await fixture.delivered()
            #expect(connection.scripts.count == 200)
            #expect(Set(connection.lines).count == 200)
            #expect(fixture.metrics.render().contains("agent_scripts_running 0"))
        }
    }

    /// Descriptors of this process that nothing can come of: of files in the directory, of processes that have
    /// ended, of pipes whose writers are gone.
    private func deadDescriptors(under directory: String) -> Set<String> {
        var dead: Set<String> = []
        for name in directoryEntries("/proc/self/fd") {
            guard let number = CInt(name), let link = linkTarget("/proc/self/fd/\(name)") else { continue }
            let isDead =
                if link.hasPrefix("pipe:") {
                    hasHungUp(number)
                } else if link.contains("[pidfd]") {
                    (readTextFile("/proc/self/fdinfo/\(name)") ?? "").contains("Pid:\t-1\n")
                } else {
                    link.hasPrefix(directory)
                }
            if isDead { dead.insert("\(name) \(link)") }
        }
        return dead
    }

    private func hasHungUp(_ descriptor: CInt) -> Bool {
        var state = pollfd(fd: descriptor, events: 0, revents: 0)
        return poll(&state, 1, 0) == 1 && CInt(state.revents) & POLLHUP != 0
    }

    private func linkTarget(_ path: String) -> String? {
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = readlink(path, &bytes, bytes.count)
        return count > 0 ? String(decoding: bytes.prefix(count), as: UTF8.self) : nil
    }

    @Test func loginShellsThatRefuseGiveWay() {
        #expect(LoginUser.usable("/bin/sh") == "/bin/sh")
        for shell in ["", "sh", "/usr/sbin/nologin", "/bin/false", "/no/such"] {
            #expect(LoginUser.usable(shell) == "/bin/sh")
        }
        let account = UserAccount(name: "ann", home: "/home/ann", shell: "/bin/bash")
        #expect(
            LoginUser(account, environment: ["SHELL": "/bin/cat"]) == LoginUser(home: "/home/ann", shell: "/bin/bash"))
        #expect(LoginUser(account, environment: ["HOME": "/h"]).home == "/h")
        // A user that the database does not know.
        #expect(LoginUser(nil, environment: [:]) == LoginUser(home: "/", shell: "/bin/sh"))
        #expect(LoginUser(nil, environment: ["SHELL": "/bin/bash"]).shell == "/bin/bash")
    }
}

extension Google_Protobuf_Duration {
    fileprivate init(seconds: Int64) {
        self.init()
        self.seconds = seconds
    }
}
