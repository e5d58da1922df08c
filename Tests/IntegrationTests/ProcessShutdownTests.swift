import AgentTestSupport
import Foundation
import Glibc
import Testing

/// What becomes of processes whose leader has long ended. Each test stops a daemon of its own.
@Suite(.blocking) struct ProcessShutdownTests {
    private static let lastPID = "/proc/sys/kernel/ns_last_pid"

    /// Runs a command to its end; the number that is its output.
    private func number(_ connection: RawConnection, _ command: String) throws -> pid_t {
        let output = try connection.run(command)["output"] as? String ?? ""
        return try #require(pid_t(output.trimmingCharacters(in: .whitespacesAndNewlines)), "\(output)")
    }

    @Test func backgroundProcessesThatKeptTheirSessionAreEnded() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let file = "\(daemon.directory.path)/pid"
        let silent = ">/dev/null 2>&1 &"
        var left = [
            try number(connection, "sleep 557 \(silent) echo $!"),
            // Ignores SIGTERM.
            try number(connection, "sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' \(silent) echo $!"),
            // A group of its own, as jobs of an interactive shell have.
            try number(connection, "bash -c 'set -m; sleep 557 \(silent) echo $!'"),
        ]
        // One whose parents have all ended, long after the leader.
        _ = try connection.run("(sleep 0.3; (sleep 0.3; sleep 557 & echo $! >\(file)) & sleep 0.1) \(silent)")
        try await eventually("the last of them runs") { ProcFS.text(file).hasSuffix("\n") }
        left.append(try #require(pid_t(ProcFS.text(file).dropLast())))
        // Others end meanwhile.
        for _ in 0..<20 { _ = try connection.run("true") }
        let daemonized = try number(connection, "setsid sleep 557 \(silent) echo $!")
        defer { kill(daemonized, SIGKILL) }
        // The shell has ended, perhaps before setsid began.
        try await eventually("setsid has left the session") { getsid(daemonized) == daemonized }
        for pid in left + [daemonized] { #expect(ProcFS.runs(pid)) }
        #expect(try await daemon.stop() == 0)
        for pid in left { #expect(!ProcFS.runs(pid)) }
        #expect(ProcFS.runs(daemonized))
    }

    @Test func whatAScriptLeftInItsSessionIsEnded() async throws {
        let names = ["kept", "daemonized"]
        let world = try await LinkWorld { manifest, directory in
            manifest.scripts = [
                LinkWorld.script(
                    "start",
                    """
                    sleep 557 >/dev/null 2>&1 & echo $! >\(directory)/kept
                    setsid sleep 557 >/dev/null 2>&1 & echo $! >\(directory)/daemonized
                    """)
            ]
        }
        let daemon = try world.daemon()
        try await world.reported(.ready)
        let pids = try names.map { name in
            try #require(pid_t(ProcFS.text("\(world.directory.path)/\(name)").dropLast()))
        }
        defer { kill(pids[1], SIGKILL) }
        try await eventually("setsid has left the session") { getsid(pids[1]) == pids[1] }
        for pid in pids { #expect(ProcFS.runs(pid)) }
        #expect(try await daemon.stop() == 0)
        #expect(!ProcFS.runs(pids[0]))
        #expect(ProcFS.runs(pids[1]))
        await world.stop()
    }

    /// A session number that was ours and was given out again, to a process below us even: it has left ours.
    ///
    /// Numbers of ended processes are given out again on the whole machine meanwhile, to processes that other tests
    /// then take for theirs and kill. So scripts/test.sh runs it by itself.
    @Test(.enabled(if: getenv("WA_PID_REUSE") != nil && access(lastPID, W_OK) == 0))
    func aSessionThatHasTheNumberOfAnEarlierOneIsSpared() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        var stranger: pid_t?
        for _ in 0..<100 where stranger == nil {
            let id = try connection.start("sleep 557 >/dev/null 2>&1 & echo $!")
            let output = try connection.finish(id)["output"] as? String ?? ""
            let member = try #require(pid_t(output.dropLast()))
            let session = try connection.pid(id)
            kill(member, SIGKILL)
            try await eventually("nothing has the number") { !ProcFS.exists(member) && !ProcFS.exists(session) }
            // The kernel tells births apart by ticks of 10 ms only; within one the number cannot be another's.
            let free = ContinuousClock.now
            try await eventually("two ticks are over") { ContinuousClock.now >= free + .milliseconds(20) }
            // Its leader ends, too; what it started stays.
            let script = """
                echo \(session - 1) >\(Self.lastPID)
                setsid sh -c 'sleep 558 >/dev/null 2>&1 & echo $$ $!' &
                wait
                """
            let words = (try connection.run(script)["output"] as? String ?? "").split(whereSeparator: \.isWhitespace)
            let pids = words.compactMap { pid_t($0) }
            try #require(pids.count == 2)
            if pids[0] == session { stranger = pids[1] } else { kill(pids[1], SIGKILL) }
        }
        let pid = try #require(stranger, "the number was never given out again")
        defer { kill(pid, SIGKILL) }
        #expect(try await daemon.stop() == 0)
        #expect(ProcFS.runs(pid))
    }
}
