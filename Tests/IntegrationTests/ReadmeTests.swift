import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import AgentCore

/// The README's commands, typed into one shell beside a running `dev`, as a newcomer does after `make run`.
@Suite(.blocking) struct ReadmeTests {
    /// A command with the lines that the README shows as its answer.
    private struct Step {
        var command: String
        var expected: [String] = []
        var isInterrupted: Bool { command.contains("# until Ctrl-C") }
    }

    private static func steps() throws -> [Step] {
        let path = URL(fileURLWithPath: #filePath).deletingLastPathComponent().path + "/../../README.md"
        let text = try #require(readTextFile(path))
        var steps: [Step] = []
        var isContinued = false
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
            guard line.hasPrefix("    ") else {
                isContinued = false
                if !line.isEmpty, steps.last?.expected.isEmpty == false { steps.append(Step(command: ":")) }
                continue
            }
            let line = String(line.dropFirst(4))
            if line.hasPrefix("$ ") {
                steps.append(Step(command: String(line.dropFirst(2))))
            } else if isContinued {
                steps[steps.count - 1].command += "\n" + line
            } else if !steps.isEmpty {
                steps[steps.count - 1].expected.append(line)
            }
            isContinued = line.hasSuffix("\\")
        }
        return steps.filter { $0.command != ":" }
    }

    /// What an answer must look like: `…` stands for anything, and no two runs have the same ids, numbers of
    /// processes, bytes and times.
    private static func pattern(_ line: String) -> String {
        let wild = line.replacingOccurrences(of: "/home/me", with: "…")
        var text = NSRegularExpression.escapedPattern(for: wild).replacingOccurrences(of: "…", with: ".*")
        for (variable, form) in [
            ("[0-9a-f]{8}(\\\\?-[0-9a-f]{4}){3}\\\\?-[0-9a-f]{12}", "[0-9a-f-]{36}"),
            ("\\d{4}\\\\?-\\d\\d\\\\?-\\d\\dT[0-9:]+Z", "\\\\S+Z"), ("\"(max_rss_bytes|pid)\":\\d+", "\"$1\":\\\\d+"),
        ] {
            text = text.replacingOccurrences(of: variable, with: form, options: .regularExpression)
        }
        return "^\(text)$"
    }

    @Test(.timeLimit(.minutes(5))) func everyCommandWorksAsTyped() async throws {
        let steps = try Self.steps()
        try #require(steps.count >= 12)
        let home = try TemporaryDirectory()
        let port = try LoopbackSocket.freePort()
        let environment = ["HOME": home.path, "XDG_STATE_HOME": "", "XDG_RUNTIME_DIR": "", "TMPDIR": home.path]
        let output = "\(home.path)/dev.out"
        let line = "exec \(DaemonProcess.binary) dev --http-address 127.0.0.1:\(port) > \(output) 2>&1"
        let dev = try DaemonProcess.spawn(["/bin/sh", "-c", line], environmentOfTests(environment))
        defer {
            kill(dev, SIGKILL)
            waitpid(dev, nil, 0)
        }
        try await eventually("dev is ready", within: .seconds(60)) { readTextFile(output)?.contains("READY") == true }
        #expect(readTextFile(output)?.contains("export PATH=") == true)

        let shell = try Shell(home.path, environmentOfTests(environment))
        var seen = ""
        for step in steps {
            let binary = URL(fileURLWithPath: DaemonProcess.binary).deletingLastPathComponent().path
            var command = step.command.replacingOccurrences(of: "$PWD/.build/release", with: binary)
            command = command.replacingOccurrences(of: ":7717/", with: ":\(port)/")
            let patterns = step.expected.filter { $0 != "…" }.map(Self.pattern)
            try shell.type(step.isInterrupted ? "\(command.split(separator: "#")[0]) & job=$!" : command)
            // An answer in JSON has no line end.
            try shell.type("echo")
            try await eventually("the answer to: \(command)\n\(patterns)", within: .seconds(60)) {
                seen = shell.output()
                let lines = seen.split(whereSeparator: \.isNewline).map(String.init)
                return patterns.allSatisfy { pattern in
                    lines.contains { $0.range(of: pattern, options: .regularExpression) != nil }
                }
            }
            if step.isInterrupted {
                try shell.type("kill -INT $job; wait $job; echo interrupted with $?")
                try await eventually("it ends", within: .seconds(60)) {
                    shell.output().contains("interrupted with 130")
                }
            }
            #expect(!shell.output().contains("workspace-agent: "), "\(shell.output())")
        }
        kill(dev, SIGTERM)
        var status: Int32 = 0
        #expect(waitpid(dev, &status, 0) == dev && status == 0)
    }

    private func environmentOfTests(_ changes: [String: String]) -> [String: String] {
        var variables = ProcessInfo.processInfo.environment.filter { !$0.key.hasPrefix("CODER_") }
        variables.merge(changes) { _, new in new }
        return variables.filter { !$0.value.isEmpty }
    }
}

/// A shell that reads what is typed and writes to a file.
private final class Shell {
    private let pid: pid_t
    private let input: CInt
    private let file: String

    init(_ directory: String, _ environment: [String: String]) throws {
        file = "\(directory)/shell.out"
        let fifo = "\(directory)/typed"
        guard mkfifo(fifo, 0o600) == 0 else { throw DeadlineExceeded(what: "mkfifo") }
        pid = try DaemonProcess.spawn(["/bin/sh", "-c", "exec bash < \(fifo) > \(file) 2>&1"], environment)
        input = open(fifo, O_WRONLY | O_CLOEXEC)
    }

    deinit {
        close(input)
        kill(pid, SIGKILL)
        waitpid(pid, nil, 0)
    }

    func type(_ command: String) throws {
        let bytes = Array((command + "\n").utf8)
        guard write(input, bytes, bytes.count) == bytes.count else { throw DeadlineExceeded(what: "the shell") }
    }

    func output() -> String { readTextFile(file) ?? "" }
}
