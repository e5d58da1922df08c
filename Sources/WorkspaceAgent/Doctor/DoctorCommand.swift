import AgentCore
import ArgumentParser
import FoundationEssentials
import Glibc
import LocalAgent

/// `workspace-agent doctor`: what is wrong on this machine, and how to mend it.
struct DoctorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor", abstract: "Diagnose this machine and say how to fix what is wrong.",
        discussion: """
            Run it as the daemon's user, with the daemon's flags and variables. A warning is something that does less \
            than it could; with an error something does not work, and the exit code is 1.

            Example:
              workspace-agent doctor
              workspace-agent doctor --agent-url https://coder.example.com --agent-token-file /run/agent-token
            """)

    @Option(name: .shortAndLong, help: "table or json. [WORKSPACE_AGENT_DOCTOR_OUTPUT]")
    var output: ProcFormat = .table

    @OptionGroup(title: "Daemon options")
    var agent: DaemonOptions

    func run() throws {
        SyncInterrupt.exitWith130()
        let environment = ProcessEnvironment.current
        var settings: AgentConfiguration
        do {
            settings = try AgentConfiguration(agent, environment: environment)
        } catch {
            throw ValidationError(error.message)
        }
        if environment[DoctorWorker.variable] != nil {
            settings.httpSocket = settings.httpSocket.map { _ in LocalSocket.http(agent.httpSocket, environment) }
            settings.agentSocket = settings.agentSocket.map { _ in LocalSocket.agent(agent.socketPath, environment) }
            return try DoctorWorker.answer(DoctorChecks(settings).run())
        }
        let checks = try DoctorWorker.checks(environment)
        switch output {
        case .json:
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
            let json = try encoder.encode(DoctorReport(checks: checks))
            try StandardOutput.write(String(decoding: json, as: UTF8.self) + "\n")
        case .table:
            let colours = isatty(STDOUT_FILENO) != 0 && environment["NO_COLOR"] == nil
            try StandardOutput.write(Self.lines(checks, colours: colours).map { "\($0)\n" }.joined())
        }
        if checks.contains(where: { $0.status == .error }) { throw ExitCode(1) }
    }

    /// One for each check, and one for how to mend it.
    static func lines(_ checks: [DoctorCheck], colours: Bool) -> [String] {
        let width = checks.map(\.name.count).max() ?? 0
        func padded(_ text: String, _ width: Int) -> String {
            text + String(repeating: " ", count: max(0, width - text.count))
        }
        return checks.flatMap { check in
            let colour = [.ok: "32", .warning: "33", .error: "31"][check.status, default: "0"]
            let status = padded(check.status.rawValue, DoctorCheck.Status.warning.rawValue.count)
            let shown = colours ? "\u{1B}[\(colour)m\(status)\u{1B}[0m" : status
            let line = "\(shown)  \(padded(check.name, width))  \(TextTable.harmless(check.detail))"
            return [line] + (check.fix.map { ["    fix: \(TextTable.harmless($0))"] } ?? [])
        }
    }
}
