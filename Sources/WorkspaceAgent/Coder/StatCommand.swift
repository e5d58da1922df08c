import AgentCore
import ArgumentParser
import ControlPlane
import Glibc
import LocalAgent

/// `stat`: what of processors, memory and disk is used.
struct StatCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stat", abstract: "Show the usage of CPU, memory and disk.",
        discussion: """
            Without a subcommand it shows all of it: of the machine, and of the container where it runs in one.

            Example:
              workspace-agent stat
            """,
        subcommands: [StatAllCommand.self, StatCPUCommand.self, StatMemoryCommand.self, StatDiskCommand.self],
        defaultSubcommand: StatAllCommand.self)
}

/// `stat` alone. A command of its own, since an option of `stat` would take the ones of its subcommands.
struct StatAllCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "all", abstract: "Show everything; the same as without a subcommand.",
        discussion: """
            Example:
              workspace-agent stat all --output json
            """)

    @Option(name: .shortAndLong, help: "table or json. [WORKSPACE_AGENT_STAT_TABLE_OUTPUT]")
    var output: SyncFormat = .table

    func run() throws {
        let stat = MachineStat()
        let home = AgentPaths.home(ProcessEnvironment.current)
        let (host, container) = try stat.processors(host: true, container: true)
        let isContained = stat.isContained
        let figures: [(name: String, figure: StatFigure?, prefix: BinaryPrefix?)] = [
            ("host_cpu", host, nil),
            ("host_memory", try stat.memory(host: true), .gibi),
            ("home_disk", try stat.disk(home), .gibi),
            ("container_cpu", container, nil),
            ("container_memory", isContained ? try stat.memory(host: false) : nil, .gibi),
        ]
        switch output {
        case .json:
            let object = SyncJSON.object(figures.map { ($0.name, $0.figure?.json ?? .null) })
            SyncOutput.line(SyncJSON.array([object]).text())
        case .table:
            let titles = figures.map {
                String($0.name.uppercased().map { character in character == "_" ? " " : character })
            }
            SyncOutput.lines(TextTable.lines([titles, figures.map { $0.figure?.text($0.prefix) ?? "-" }]))
        }
    }
}

/// How a single figure is printed.
enum StatFormat: String, ExpressibleByArgument, CaseIterable {
    case text
    case json
}

extension BinaryPrefix: ExpressibleByArgument {}

struct StatCPUCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cpu", abstract: "Show CPU usage.",
        discussion: """
            In a container it counts the container's use and limit, else the machine's. Measures for 0.1 s.

            Example:
              workspace-agent stat cpu
            """)

    @Flag(help: "Show the machine's values even in a container. [WORKSPACE_AGENT_STAT_HOST]")
    var host = false

    @Option(name: .shortAndLong, help: "text or json. [WORKSPACE_AGENT_STAT_OUTPUT]")
    var output: StatFormat = .text

    func run() throws {
        let stat = MachineStat()
        let isContainer = !host && stat.isContained
        let figures = try stat.processors(host: !isContainer, container: isContainer)
        MachineStat.show(figures.host ?? figures.container, output, nil)
    }
}

struct StatMemoryCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "mem", abstract: "Show memory usage.",
        discussion: """
            In a container it counts the container's use and limit, else the machine's. What the kernel can drop at once
            does not count as used.

            Example:
              workspace-agent stat mem --prefix Mi
            """)

    @Flag(help: "Show the machine's values even in a container. [WORKSPACE_AGENT_STAT_HOST]")
    var host = false

    @Option(help: "Ki, Mi, Gi or Ti, for text. [WORKSPACE_AGENT_STAT_PREFIX]")
    var prefix: BinaryPrefix = .gibi

    @Option(name: .shortAndLong, help: "text or json. [WORKSPACE_AGENT_STAT_OUTPUT]")
    var output: StatFormat = .text

    func run() throws {
        let stat = MachineStat()
        MachineStat.show(try stat.memory(host: host || !stat.isContained), output, prefix)
    }
}

struct StatDiskCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "disk", abstract: "Show disk usage.",
        discussion: """
            Example:
              workspace-agent stat disk --path $HOME --prefix Gi
            """)

    @Argument(help: "A path on the file system; overrides --path.")
    var place: String?

    @Option(help: "A path on the file system; default /. [WORKSPACE_AGENT_STAT_PATH]")
    var path: String?

    @Option(help: "Ki, Mi, Gi or Ti, for text. [WORKSPACE_AGENT_STAT_PREFIX]")
    var prefix: BinaryPrefix = .gibi

    @Option(name: .shortAndLong, help: "text or json. [WORKSPACE_AGENT_STAT_OUTPUT]")
    var output: StatFormat = .text

    func run() throws {
        let figure = try MachineStat().disk(place ?? path ?? "/")
        MachineStat.show(figure, output, prefix)
    }
}
