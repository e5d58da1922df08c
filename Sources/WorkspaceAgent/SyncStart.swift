import AgentCore
import AgentSocket
import ArgumentParser
import DRPC
import LocalAgent

struct SyncStart: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "start", abstract: "Wait until a unit is ready and mark it started.",
        discussion: """
            Example:
              workspace-agent exp sync start claude --timeout 10m
            """)
    @OptionGroup var agent: AgentOptions
    @Option(help: "Wait at most this long, such as 90s or 1h30m. [WORKSPACE_AGENT_SYNC_TIMEOUT]") var timeout =
        SyncDuration(
            .seconds(300))
    @Argument(help: "The unit.") var unit: String

    /// How often an older server, which can't wake us, is asked.
    private static let pollInterval = Duration.seconds(1)

    func run() async throws {
        SyncInterrupt.exitWith130()
        let (unit, socket, progress) = (unit, agent.socket, Watched(Progress()))
        try await agent.use(
            within: timeout.value, else: "timeout waiting for dependencies of unit '\(unit)'"
        ) { client in
            try await socket.throughRestarts(client) { try await Self.start(unit, $0, socket.path, progress) }
        }
    }

    /// What is known of the unit when the agent is lost.
    private struct Progress: Sendable {
        /// What it waits for; nil until an agent has said so.
        var wants: [String]?
        var hasWaited = false
        /// The agent was asked to start it, and may have done so.
        var mayBeStarted = false
    }

    private static func start(
        _ unit: String, _ client: AgentSocketClient, _ path: String, _ progress: Watched<Progress>
    ) async throws {
        let status = try await client.status(unit)
        let wants = status.dependencies.map(\.dependsOn)
        let earlier = progress.update { progress in
            defer { progress.wants = wants }
            return progress
        }
        if let known = earlier.wants, !Set(known).isSubset(of: wants) {
            throw CommandFailure(
                message:
                    "the agent at \(path) was restarted and has forgotten what unit '\(unit)' waits for; declare it again "
                    + "(sync want) and run this command again")
        }
        let names = SyncOutput.names(wants)
        var isStarted = earlier.mayBeStarted && status.status == UnitState.started.rawValue
        if !isStarted, status.isReady { isStarted = try await started(unit, client, progress) }
        if isStarted, !earlier.hasWaited {
            SyncOutput.line(
                wants.isEmpty
                    ? "Unit \(goQuoted(unit)) started with no dependencies"
                    : "Unit \(goQuoted(unit)) started immediately, dependencies already satisfied: \(names)")
            return
        }
        if !earlier.hasWaited {
            SyncOutput.line("Unit \(goQuoted(unit)) is waiting for dependencies to be satisfied: \(names)")
            progress.update { $0.hasWaited = true }
        }
        let clock = EventLoopClock(group: client.eventLoop)
        while !isStarted {
            try await client.waitUntilReady(unit, pollInterval: pollInterval, clock: clock)
            isStarted = try await started(unit, client, progress)
        }
        SyncOutput.line("Unit \(goQuoted(unit)) finished waiting for dependencies: \(names)")
    }

    /// Starts the unit, or returns false when it is not ready after all: a dependency may have been
    /// started again after we looked.
    private static func started(
        _ unit: String, _ client: AgentSocketClient, _ progress: Watched<Progress>
    ) async throws -> Bool {
        do {
            progress.update { $0.mayBeStarted = true }
            try await client.start(unit)
            return true
        } catch let error as DRPCError
            where error.code == .remote(0) && error.message == "cannot start unit \(goQuoted(unit)): unit not ready"
        {
            progress.update { $0.mayBeStarted = false }
            return false
        }
    }
}
