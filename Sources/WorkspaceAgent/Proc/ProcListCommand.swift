import ArgumentParser
import Glibc

/// `workspace-agent proc ls`.
struct ProcListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ls", abstract: "List the agent's processes.",
        discussion: """
            Ended ones are kept for five minutes. --output json prints the answer of the process API.

            Example:
              workspace-agent proc ls --all
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Flag(name: .shortAndLong, help: "Include processes that have exited. [WORKSPACE_AGENT_PROC_ALL]")
    var all = false

    @Option(name: .shortAndLong, help: "List at most this many, 1 to 1000. [WORKSPACE_AGENT_PROC_LIMIT]")
    var limit = 1000

    @Option(name: .shortAndLong, help: "table or json. [WORKSPACE_AGENT_PROC_OUTPUT]")
    var output: ProcFormat = .table

    func validate() throws {
        guard (1...1000).contains(limit) else { throw ValidationError("--limit: must be from 1 to 1000") }
    }

    func run() throws {
        SyncInterrupt.exitWith130()
        let client = ProcClient(http: agent.client)
        if output == .json {
            let answer = try client.list("limit=\(limit)\(all ? "" : "&running=true")")
            return try StandardOutput.write(String(decoding: answer.body, as: UTF8.self) + "\n")
        }
        let known = try client.processes()
        let shown = known.filter { all || $0.running != false }.prefix(limit)
        if shown.isEmpty { return SyncOutput.line(all ? "No processes" : "No running processes") }
        let length = Self.shortID(known.compactMap(\.id))
        let now = Int(time(nil))
        let rows = shown.map {
            [
                String(($0.id ?? "").prefix(length)), $0.status, Self.age(now - ($0.started_at_unix ?? now)),
                TextTable.harmless($0.command ?? ""),
            ]
        }
        let width = isatty(STDOUT_FILENO) != 0 ? Terminal.size(STDOUT_FILENO)?.cols : nil
        SyncOutput.lines(TextTable.lines([["ID", "STATUS", "AGE", "COMMAND"]] + rows, width: width))
    }

    /// How many characters of the ids tell them apart, at least 8.
    static func shortID(_ ids: [String]) -> Int {
        var length = 8
        while length < 36, Set(ids.map { $0.prefix(length) }).count < ids.count { length += 1 }
        return length
    }

    /// `12s`, `3m`, `5h`, `2d`.
    static func age(_ seconds: Int) -> String {
        switch seconds {
        case ..<60: "\(max(0, seconds))s"
        case ..<3600: "\(seconds / 60)m"
        case ..<86400: "\(seconds / 3600)h"
        default: "\(seconds / 86400)d"
        }
    }
}
