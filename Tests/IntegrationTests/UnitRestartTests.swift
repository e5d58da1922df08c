import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

/// Units over the death of the daemon.
@Suite("Units: restarts", .blocking, .timeLimit(.minutes(10))) struct UnitRestartTests {
    private func sync(_ daemon: DaemonProcess, _ arguments: String...) throws -> RunningProgram {
        try sync(daemon, arguments)
    }

    private func sync(_ daemon: DaemonProcess, _ arguments: [String]) throws -> RunningProgram {
        var environment = ProcessInfo.processInfo.environment
        environment["CODER_AGENT_SOCKET_PATH"] = "\(daemon.directory.path)/agent.sock"
        return try RunningProgram([DaemonProcess.binary, "sync"] + arguments, environment: environment)
    }

    private func kill(_ daemon: DaemonProcess) async throws {
        daemon.signal(SIGKILL)
        _ = try await daemon.wait()
    }

    @Test(arguments: [SIGKILL, SIGTERM]) func aUnitWaitsForWhatItWantedBefore(signal: CInt) async throws {
        let first = try DaemonProcess()
        #expect(try sync(first, "want", "app", "git", "node").end().code == 0)
        #expect(try sync(first, "start", "node").end().code == 0)
        #expect(try sync(first, "complete", "node").end().code == 0)
        first.signal(signal)
        _ = try await first.wait()
        let second = try DaemonProcess(directory: first.directory)
        let start = try sync(second, "start", "app")
        #expect(start.nextOutput() == "Unit \"app\" is waiting for dependencies to be satisfied: [git, node]\n")
        let timeline = try sync(second, "timeline", "--output", "json").end().output
        #expect(timeline.contains(#""unit_name": "node""#))
        #expect(try sync(second, "start", "git").end().code == 0)
        #expect(try sync(second, "complete", "git").end().code == 0)
        let outcome = start.end()
        #expect(outcome.code == 0 && outcome.output.hasSuffix("finished waiting for dependencies: [git, node]\n"))
        let units = try second.connect().request("GET", "/api/v0/units").text
        #expect(units.contains(#""name":"node""#))
        #expect(try second.connect().request("GET", "/healthz").text.contains(#""status":"ok""#))
        #expect(try await second.stop() == 0)
    }

    @Test func aStartThatWaitsGoesOnWaiting() async throws {
        let first = try DaemonProcess()
        #expect(try sync(first, "want", "app", "git").end().code == 0)
        let start = try sync(first, "start", "app", "--timeout", "10m")
        #expect(start.nextOutput() == "Unit \"app\" is waiting for dependencies to be satisfied: [git]\n")
        var daemon = first
        for _ in 0..<3 {
            try await kill(daemon)
            daemon = try DaemonProcess(directory: first.directory)
        }
        #expect(try sync(daemon, "start", "git").end().code == 0)
        #expect(try sync(daemon, "complete", "git").end().code == 0)
        let outcome = start.end()
        #expect(outcome.code == 0 && outcome.errors == "", "\(outcome)")
        #expect(outcome.output.hasSuffix("Unit \"app\" finished waiting for dependencies: [git]\n"))
        #expect(try sync(daemon, "status", "app", "--output", "json").end().output.contains(#""status": "started""#))
        #expect(try await daemon.stop() == 0)
    }

    @Test func anAgentThatHasForgottenIsSaid() async throws {
        let first = try DaemonProcess()
        #expect(try sync(first, "want", "app", "git").end().code == 0)
        let start = try sync(first, "start", "app", "--timeout", "10m")
        #expect(start.nextOutput().contains("is waiting"))
        try await kill(first)
        #expect(unlink("\(first.directory.path)/state/units") == 0)
        let second = try DaemonProcess(directory: first.directory)
        let outcome = start.end()
        #expect(outcome.code == 1)
        #expect(
            outcome.errors
                == "the agent at \(first.directory.path)/agent.sock was restarted and has forgotten what unit 'app' "
                + "waits for; declare it again (sync want) and run this command again\n")
        #expect(try sync(second, "list").end().output == "No units registered\n", "it was not started")
        #expect(try await second.stop() == 0)
    }

    /// Scripts run again in the next daemon, whatever they had done in the last.
    @Test func scriptsMayRunAgain() async throws {
        let first = try DaemonProcess()
        let script = [["want", "app", "git"], ["start", "git"]]
        for arguments in script {
            #expect(try sync(first, arguments).end().code == 0)
        }
        try await kill(first)
        let second = try DaemonProcess(directory: first.directory)
        for arguments in script + [["complete", "git"], ["start", "app"]] {
            let outcome = try sync(second, arguments).end()
            #expect(outcome.code == 0, "\(arguments): \(outcome.errors)")
        }
        #expect(try sync(second, "start", "app").end().errors.contains("same status already set"))
        #expect(try await second.stop() == 0)
    }

    @Test func aFileThatCannotBeUsedIsSaid() async throws {
        let directory = try TemporaryDirectory()
        #expect(mkdir("\(directory.path)/state", 0o700) == 0 && mkdir("\(directory.path)/state/units", 0o700) == 0)
        let daemon = try DaemonProcess(directory: directory)
        #expect(try sync(daemon, "want", "app", "git").end().code == 0)
        #expect(try sync(daemon, "start", "app", "--timeout", "1ms").end().code == 1)
        let health = try daemon.connect().request("GET", "/healthz").text
        #expect(health.contains("units: they would not outlive the daemon: ") && health.contains("degraded"))
        #expect(try await daemon.stop() == 0)
    }
}
