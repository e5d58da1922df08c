import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import AgentSocket

/// The built command against a socket of this process: stdout, stderr and exit codes to the byte.
@Suite(.timeLimit(.minutes(5)), .serialized) struct CommandLineTests {
    struct Outcome: Equatable {
        var code: Int32
        var stdout: String
        var stderr: String
    }

    /// A command that runs.
    struct Running {
        private let command: RunningProgram
        /// Made for the command's other name.
        private let directory: TemporaryDirectory?

        init(_ arguments: [String], socket: String?, name: String? = nil) throws {
            var path = DaemonProcess.binary
            directory = try name.map { _ in try TemporaryDirectory() }
            if let name, let directory {
                let link = "\(directory.path)/\(name)"
                try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: path)
                path = link
            }
            var environment = ProcessInfo.processInfo.environment
            environment["CODER_AGENT_SOCKET_PATH"] = socket
            command = try RunningProgram([path] + arguments, environment: environment)
        }

        var pid: pid_t { command.pid }

        func interrupt() { command.interrupt() }

        func firstOutput() -> String { command.nextOutput() }

        func end() -> Outcome {
            let result = command.end()
            return Outcome(code: result.code, stdout: result.output, stderr: result.errors)
        }
    }

    private func run(_ arguments: String..., on agent: TestAgent, name: String? = nil) throws -> Outcome {
        try Running(arguments, socket: agent.path, name: name).end()
    }

    private func ok(_ stdout: String) -> Outcome { Outcome(code: 0, stdout: stdout + "\n", stderr: "") }
    private func failed(_ stderr: String, stdout: String = "") -> Outcome {
        Outcome(code: 1, stdout: stdout, stderr: stderr + "\n")
    }

    @Test func aUnitsLife() async throws {
        try await withAgent { agent in
            #expect(try run("exp", "sync", "ping", on: agent) == ok("Success"))
            #expect(try run("sync", "list", on: agent) == ok("No units registered"))
            #expect(try run("sync", "list", "--output", "json", on: agent) == ok("[]"))
            #expect(
                try run("exp", "sync", "want", "U", "b", "a", on: agent)
                    == ok(#"Unit "U" declared dependencies: [a, b]"#))
            var late = Outcome(code: 0, stdout: "", stderr: "")
            // On a busy machine connecting alone may take all of the time.
            for timeout in ["2s", "10s", "60s"] where late.stdout.isEmpty {
                late = try run("exp", "sync", "start", "U", "--timeout", timeout, on: agent)
            }
            #expect(
                late
                    == failed(
                        "timeout waiting for dependencies of unit 'U'",
                        stdout: "Unit \"U\" is waiting for dependencies to be satisfied: [a, b]\n"))
            #expect(try run("sync", "start", "a", on: agent) == ok(#"Unit "a" started with no dependencies"#))
            #expect(try run("sync", "complete", "a", on: agent) == ok("Success"))

            let waiting = try Running(["sync", "start", "U"], socket: agent.path)
            #expect(waiting.firstOutput() == "Unit \"U\" is waiting for dependencies to be satisfied: [a, b]\n")
            try agent.units.register("b")
            try agent.units.complete("b")
            #expect(waiting.end() == ok(#"Unit "U" finished waiting for dependencies: [a, b]"#))

            #expect(try run("sync", "want", "V", "a", on: agent) == ok(#"Unit "V" declared dependencies: [a]"#))
            #expect(
                try run("sync", "start", "V", on: agent)
                    == ok(#"Unit "V" started immediately, dependencies already satisfied: [a]"#))
            #expect(
                try run("sync", "start", "V", on: agent)
                    == failed(#"cannot start unit "V": checking status for unit "V": same status already set"#))
            #expect(
                try run("sync", "list", on: agent)
                    == ok(
                        "UNIT  STATUS     READY\nU     started    true\nV     started    true\na     completed  true\nb     completed  true"
                    ))
            #expect(
                try run("sync", "status", "V", on: agent)
                    == ok(
                        """
                        Unit:    V
                        Status:  started
                        Ready:   true

                        Dependencies:
                        DEPENDS ON  REQUIRED   CURRENT    SATISFIED
                        a           completed  completed  true
                        """))
            let status = try run("sync", "status", "V", "-o", "json", on: agent)
            let json = try JSONSerialization.jsonObject(with: Data(status.stdout.utf8)) as? NSDictionary
            #expect(
                json == [
                    "unit_name": "V", "status": "started", "is_ready": true,
                    "dependencies": [
                        [
                            "depends_on": "a", "required_status": "completed", "current_status": "completed",
                            "is_satisfied": true,
                        ] as [String: Any]
                    ],
                ])
            #expect(try run("sync", "graph", on: agent).stdout.contains("    \"V\" -> \"a\";\n"))
            let timeline = try run("sync", "timeline", on: agent).stdout.split(separator: "\n")
            #expect(timeline.map { $0.split(separator: " ")[0] } == ["UNIT", "U", "V", "a", "b"])
            #expect(
                try run("exp", "sync", "ping", on: agent, name: "coder") == ok("Success"), "installed as coder")
            #expect(try run("sync", "ping", on: agent, name: "coder") == ok("Success"))
        }
    }

    @Test func failuresAreOneLine() async throws {
        try await withAgent { agent in
            _ = try run("sync", "want", "A", "B", on: agent)
            let cycle = try run("sync", "want", "B", "A", on: agent)
            #expect(
                cycle
                    == failed(
                        #"cannot add dependency: adding edge for unit "B": failed to add dependency: adding edge (B -> A): cycle detected"#
                    ))
            #expect(try run("sync", "want", "A", on: agent).code == 2)
            #expect(try run("sync", "start", "A", "--timeout", "soon", on: agent).code == 2)
            #expect(try run("sync", "nonsense", on: agent).code == 2)
        }
        let missing = try Running(["sync", "ping", "--socket-path", "/tmp/no-such.sock"], socket: "/tmp/other").end()
        #expect(
            missing
                == failed(
                    "cannot connect to /tmp/no-such.sock: No such file or directory; check that the agent runs and "
                        + "that --socket-path or CODER_AGENT_SOCKET_PATH names its socket"))
    }

    /// A socket whose server accepts nothing: connecting works, an answer never comes.
    @Test func theTimeoutCoversAnAgentThatNeverAnswers() throws {
        let path = "/tmp/wa-test-\(UUID().uuidString.prefix(8)).sock"
        let listener = try UnixListener.bind(path: path)
        defer {
            close(listener.descriptor)
            unlink(path)
        }
        let start = ContinuousClock.now
        let outcome = try Running(["sync", "start", "U", "--timeout", "200ms"], socket: path).end()
        #expect(outcome == failed("timeout waiting for dependencies of unit 'U'"))
        #expect(ContinuousClock.now - start < .seconds(60))
    }

    @Test func interruptedIs130() async throws {
        try await withAgent { agent in
            _ = try run("sync", "want", "A", "never", on: agent)
            let waiting = try Running(["sync", "start", "A"], socket: agent.path)
            _ = waiting.firstOutput()
            waiting.interrupt()
            #expect(waiting.end().code == 130)
        }
    }
}
