import AgentCore
import AgentSocket
import ArgumentParser
import DRPC

struct SyncStart: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "start", abstract: "Wait until a unit is ready and mark it started.",
        discussion: """
            Example:
              workspace-agent exp sync start claude --timeout 10m
            """)
    @OptionGroup var agent: AgentOptions
    @Option(help: "How long to wait, such as 90s or 1h30m. [WORKSPACE_AGENT_SYNC_TIMEOUT]") var timeout = SyncDuration(
        .seconds(300))
    @Argument(help: "The unit.") var unit: String

    /// How often an older server, which can't wake us, is asked.
    private static let pollInterval = Duration.seconds(1)

    func run() async throws {
        SyncInterrupt.exitWith130()
        let unit = unit
        try await agent.use(
            within: timeout.value, else: "timeout waiting for dependencies of unit '\(unit)'"
        ) { client in
            let status = try await client.status(unit)
            let names = SyncOutput.names(status.dependencies.map(\.dependsOn))
            if status.isReady, try await Self.started(unit, client) {
                SyncOutput.line(
                    status.dependencies.isEmpty
                        ? "Unit \(goQuoted(unit)) started with no dependencies"
                        : "Unit \(goQuoted(unit)) started immediately, dependencies already satisfied: \(names)")
                return
            }
            SyncOutput.line("Unit \(goQuoted(unit)) is waiting for dependencies to be satisfied: \(names)")
            let clock = EventLoopClock(group: client.eventLoop)
            repeat {
                try await client.waitUntilReady(unit, pollInterval: Self.pollInterval, clock: clock)
            } while try await !Self.started(unit, client)
            SyncOutput.line("Unit \(goQuoted(unit)) finished waiting for dependencies: \(names)")
        }
    }

    /// Starts the unit, or returns false when it is not ready after all: a dependency may have been
    /// started again after we looked.
    private static func started(_ unit: String, _ client: AgentSocketClient) async throws -> Bool {
        do {
            try await client.start(unit)
            return true
        } catch let error as DRPCError
            where error.code == .remote(0) && error.message == "cannot start unit \(goQuoted(unit)): unit not ready"
        {
            return false
        }
    }
}
