import AgentCore
import AgentSocket
import ArgumentParser

/// `exp`: what the `coder` command keeps under this name. Only `sync` is ours.
struct ExpCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "exp", abstract: "Commands that scripts know under \"exp\".",
        discussion: """
            Example:
              workspace-agent exp sync list
            """,
        subcommands: [SyncCommand.self])
}

/// `sync`: coordination of units between the scripts of a workspace.
struct SyncCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sync",
        abstract: "Let start-up scripts wait for each other.",
        discussion: """
            A unit is a name for something that a script does. A script says what it wants, starts, \
            and completes.

            Example:
              workspace-agent exp sync want claude git node
              workspace-agent exp sync start claude      # blocks until git and node are completed
              workspace-agent exp sync complete claude
            """,
        subcommands: [
            SyncPing.self, SyncWant.self, SyncStart.self, SyncComplete.self, SyncStatus.self, SyncList.self,
            SyncGraph.self, SyncTimeline.self,
        ])
}

struct SyncPing: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ping", abstract: "Check whether the agent responds.",
        discussion: """
            Example:
              workspace-agent exp sync ping
            """)
    @OptionGroup var agent: AgentOptions

    func run() async throws {
        try await agent.use { try await $0.ping() }
        SyncOutput.line("Success")
    }
}

struct SyncWant: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "want", abstract: "Declare the units that must be completed before a unit starts.",
        discussion: """
            Example:
              workspace-agent exp sync want claude git node
            """)
    @OptionGroup var agent: AgentOptions
    @Argument(help: "The unit that waits.") var unit: String
    @Argument(help: "The units that it waits for.") var dependencies: [String]

    func run() async throws {
        try await agent.use { [unit, dependencies] client in
            for dependency in dependencies { try await client.want(unit, dependsOn: dependency) }
        }
        SyncOutput.line("Unit \(goQuoted(unit)) declared dependencies: \(SyncOutput.names(dependencies))")
    }
}

struct SyncComplete: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "complete", abstract: "Mark a unit completed, which lets the units that want it start.",
        discussion: """
            Example:
              workspace-agent exp sync complete git
            """)
    @OptionGroup var agent: AgentOptions
    @Argument(help: "The unit.") var unit: String

    func run() async throws {
        try await agent.use { [unit] in try await $0.complete(unit) }
        SyncOutput.line("Success")
    }
}

struct SyncStatus: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show a unit and what it wants.",
        discussion: """
            Example:
              workspace-agent exp sync status claude --output json
            """)
    @OptionGroup var agent: AgentOptions
    @Option(name: .shortAndLong, help: "table or json. [WORKSPACE_AGENT_SYNC_OUTPUT]") var output: SyncFormat = .table
    @Argument(help: "The unit.") var unit: String

    func run() async throws {
        let report = try await agent.use { [unit] in try await $0.status(unit) }
        switch output {
        case .table: SyncOutput.lines(SyncOutput.table(of: report))
        case .json: SyncOutput.line(SyncOutput.json(of: report).text())
        }
    }
}

struct SyncList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Show all registered units.",
        discussion: """
            Example:
              workspace-agent exp sync list --output json
            """)
    @OptionGroup var agent: AgentOptions
    @Option(name: .shortAndLong, help: "table or json. [WORKSPACE_AGENT_SYNC_OUTPUT]") var output: SyncFormat = .table

    func run() async throws {
        let units = try await agent.use { try await $0.list() }
        switch output {
        case .table where units.isEmpty: SyncOutput.line("No units registered")
        case .table: SyncOutput.lines(SyncOutput.table(of: units))
        case .json:
            let list = SyncJSON.array(
                units.map {
                    .object([
                        ("unit_name", .string($0.unit)), ("status", .string($0.status)),
                        ("is_ready", .bool($0.isReady)),
                    ])
                })
            SyncOutput.line(list.text())
        }
    }
}

struct SyncGraph: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "graph", abstract: "Print all units and what they want as a graph in DOT.",
        discussion: """
            Example:
              workspace-agent exp sync graph | dot -Tsvg > units.svg
            """)
    @OptionGroup var agent: AgentOptions

    func run() async throws {
        let reports = try await agent.use { client in
            var reports: [UnitReport] = []
            for unit in try await client.list() { reports.append(try await client.status(unit.unit)) }
            return reports
        }
        SyncOutput.lines(SyncOutput.dot(of: reports))
    }
}

struct SyncTimeline: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "timeline", abstract: "Show when each unit waited, started and completed.",
        discussion: """
            Example:
              workspace-agent exp sync timeline --follow
            """)
    @OptionGroup var agent: AgentOptions
    @Option(name: .shortAndLong, help: "table or json. [WORKSPACE_AGENT_SYNC_OUTPUT]") var output: SyncFormat = .table
    @Flag(help: "Print each event as it happens, until interrupted. [WORKSPACE_AGENT_SYNC_FOLLOW]")
    var follow = false

    func run() async throws {
        if follow {
            SyncInterrupt.exitWith130()
            try await agent.use(within: nil, else: "") { [output] client in
                try await client.follow { event in
                    switch output {
                    case .table:
                        SyncOutput.line("\(SyncTime.text(event.at))  \(event.unit)  \(event.status)")
                    case .json:
                        let object = SyncJSON.object([
                            ("unit_name", .string(event.unit)), ("status", .string(event.status)),
                            ("at", .string(SyncTime.text(event.at))),
                        ])
                        SyncOutput.line(object.text(indented: false))
                    }
                }
            }
            return
        }
        let spans = SyncSpan.spans(of: try await agent.use { try await $0.history() })
        switch output {
        case .table where spans.isEmpty: SyncOutput.line("No units registered")
        case .table: SyncOutput.lines(SyncSpan.table(of: spans))
        case .json: SyncOutput.line(SyncJSON.array(spans.map(\.json)).text())
        }
    }
}
