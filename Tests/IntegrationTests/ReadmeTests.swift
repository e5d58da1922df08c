import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import AgentCore

/// The commands of the documents that newcomers read, typed into one shell beside a running `dev`.
@Suite(.blocking) struct ReadmeTests {
    /// A command with the lines that the document shows as its answer.
    private struct Step {
        var command: String
        var expected: [String] = []
        var isInterrupted: Bool { command.contains("# until Ctrl-C") }
    }

    private static func steps(_ document: String) throws -> [Step] {
        let text = try #require(readTextFile("\(DevProcess.repository)/\(document)"))
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
    /// processes, bytes, ages, times and columns.
    private static func pattern(_ line: String) -> String {
        let wild = line.replacingOccurrences(of: "/home/me", with: "…")
        var text = NSRegularExpression.escapedPattern(for: wild).replacingOccurrences(of: "…", with: ".*")
        for (variable, form) in [
            ("[0-9a-f]{8}(\\\\?-[0-9a-f]{4}){3}\\\\?-[0-9a-f]{12}", "[0-9a-f-]{36}"),
            ("\\d{4}\\\\?-\\d\\d\\\\?-\\d\\dT[0-9:]+Z", "\\\\S+Z"), ("\"(max_rss_bytes|pid)\":\\d+", "\"$1\":\\\\d+"),
            ("^[0-9a-f]{8} ", "[0-9a-f]{8} "), ("(?<= )\\d+s(?= )", "\\\\d+s"), (" {2,}", " +"),
        ] {
            text = text.replacingOccurrences(of: variable, with: form, options: .regularExpression)
        }
        return "^\(text)$"
    }

    @Test(.timeLimit(.minutes(5)), arguments: ["README.md", "docs/getting-started.md"])
    func everyCommandWorksAsTyped(_ document: String) async throws {
        let steps = try Self.steps(document)
        try #require(steps.count >= 10)
        let dev = try await DevProcess()
        #expect(dev.output.contains("export PATH="))
        let directory = URL(fileURLWithPath: DaemonProcess.binary).deletingLastPathComponent().path
        var environment = dev.environment
        // Installed, as the document asks for; the README says how to find what was built.
        if document != "README.md" { environment["PATH"] = "\(directory):\(environment["PATH"] ?? "")" }

        let shell = try Shell(dev.home.path, environment)
        var seen = ""
        for step in steps {
            func here(_ text: String) -> String { text.replacingOccurrences(of: ":7717/", with: ":\(dev.port)/") }
            let command = here(step.command.replacingOccurrences(of: "$PWD/.build/release", with: directory))
            let patterns = step.expected.filter { $0 != "…" }.map { Self.pattern(here($0)) }
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
            #expect(!"\n\(shell.output())".contains("\nworkspace-agent: "), "\(shell.output())")
        }
        #expect(dev.stop() == 0)
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
        // What is typed is no input of the commands, as it is none at a terminal.
        let line = "exec bash \(fifo) < /dev/null > \(file) 2>&1"
        pid = try DaemonProcess.spawn(["/bin/sh", "-c", line], environment)
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
