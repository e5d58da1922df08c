import ArgumentParser
import Glibc
import LocalAgent
import Tailnet

/// `workspace-agent tailnet`: the node of a running daemon.
struct TailnetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tailnet", abstract: "Look at the agent's tailnet node.",
        discussion: """
            Example:
              workspace-agent tailnet status
            """,
        subcommands: [TailnetStatusCommand.self, TailnetPingCommand.self])
}

/// `workspace-agent tailnet status`.
struct TailnetStatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show relays, peers and the paths to them.",
        discussion: """
            Exits with 1 when clients cannot reach the agent: its home relay is not connected, or the control plane \
            refuses its node. --output json prints the answer of GET /api/v0/tailnet.

            Example:
              workspace-agent tailnet status
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Option(name: .shortAndLong, help: "table or json. [WORKSPACE_AGENT_TAILNET_OUTPUT]")
    var output: ProcFormat = .table

    func run() throws {
        SyncInterrupt.exitWith130()
        let client = agent.client
        let answer = try client.request("GET", "/api/v0/tailnet")
        let report = try client.decode(TailnetReport.self, answer)
        if output == .json {
            try StandardOutput.write(String(decoding: answer.body, as: UTF8.self) + "\n")
        } else {
            let width = isatty(STDOUT_FILENO) != 0 ? Terminal.size(STDOUT_FILENO)?.cols : nil
            SyncOutput.lines(TailnetText.lines(report, width: width))
        }
        if report.problem != nil { throw ExitCode(1) }
    }
}

/// `workspace-agent tailnet ping`.
struct TailnetPingCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ping", abstract: "Measure the path to a peer.",
        discussion: """
            Each ping goes the way that packets take at that moment: by relay first and, once a direct path is found, \
            by UDP. Exits with 1 when no ping was answered.

            Example:
              workspace-agent tailnet ping fd7a:115c:a1e0:4222:8222:2222:2222:2222
            """)

    @Argument(help: "An id, an address or a key of a peer, as tailnet status shows them.")
    var peer: String

    @Option(name: .shortAndLong, help: "Send this many pings, 1 to 1000. [WORKSPACE_AGENT_TAILNET_COUNT]")
    var count = 4

    @OptionGroup var agent: HTTPAgentOptions

    private struct Pong: Decodable {
        var latency_ms: Double?
        var path: String
        var endpoint: String?
        var region_id: Int?
    }

    func validate() throws {
        guard (1...1000).contains(count) else { throw ValidationError("--count: must be from 1 to 1000") }
    }

    func run() throws {
        SyncInterrupt.exitWith130()
        var isAnswered = false
        for number in 1...count {
            let client = agent.client
            let pong = try client.decode(
                Pong.self, client.request("POST", "/api/v0/tailnet/ping?peer=\(LocalClient.escaped(peer))"))
            let way = pong.endpoint.map { "directly via \($0)" } ?? "by the relay of region \(pong.region_id ?? 0)"
            if let latency = pong.latency_ms {
                isAnswered = true
                SyncOutput.line("answer \(number) in \(TailnetText.milliseconds(latency)) \(TextTable.harmless(way))")
            } else {
                SyncOutput.line("no answer \(number) within 5 s \(TextTable.harmless(way))")
            }
            if number < count { sleep(1) }
        }
        if !isAnswered { throw ExitCode(1) }
    }
}
