import AgentCore
import ControlPlaneAPI
import FoundationEssentials
import Logging
import Synchronization

/// What everything that runs a line of shell for the workspace shares: scripts and metadata.
package struct ScriptContext: Sendable {
    package var runner: any CommandRunner
    package var environment: EnvironmentBuilder
    package var user: LoginUser
    /// Where blocking calls on files run.
    package var pool: BlockingPool
    /// Runs tasks that are not awaited.
    package var executor: any TaskExecutor
    package var clock: AgentClock
    package var wallTime: @Sendable () -> WallTime
    private let logger: Logger
    private let missing = MissingDirectory()

    package init(
        runner: any CommandRunner, environment: EnvironmentBuilder, user: LoginUser, pool: BlockingPool,
        executor: any TaskExecutor, clock: AgentClock, logger: Logger,
        wallTime: @escaping @Sendable () -> WallTime = WallTime.now
    ) {
        self.runner = runner
        self.environment = environment
        self.user = user
        self.pool = pool
        self.executor = executor
        self.clock = clock
        self.logger = logger
        self.wallTime = wallTime
    }

    /// The command for a text: the login shell's `-c`, or that of the interpreter that its first line names after `#!`.
    func command(
        _ text: Secret<String>, directory: String, variables: [String: String] = [:], gate: OutputGate? = nil
    ) throws -> Command {
        let text = text.reveal()
        // The kernel's strings end at it, so that half of the script would run.
        guard !text.utf8.contains(0) else {
            throw ManifestError("the script holds a NUL character; take it out")
        }
        return Command(
            arguments: Shebang.command(for: text, shell: user.shell),
            environment: environment.build(request: variables), workdir: directory, gate: gate)
    }

    /// The directory to start in: the manifest's, or home while there is no such directory.
    /// - Returns: also the missing one, the first time that it is: one warning is enough for all commands.
    func workdir(_ directory: String) async -> (path: String, missing: String?) {
        let home = user.home
        guard let usable = try? await pool.run({ usableDirectory(directory, home: home) }) else { return (home, nil) }
        guard missing.isNews(usable.missing) else { return (usable.path, nil) }
        logger.warning(
            "the workspace's directory does not exist; commands start in the home directory until it does",
            metadata: ["directory": "\(directory)", "home": "\(home)"])
        return usable
    }
}

/// The directory that was last found missing.
private final class MissingDirectory: Sendable {
    private let reported = Mutex<String?>(nil)

    func isNews(_ missing: String?) -> Bool {
        reported.withLock { reported in
            defer { reported = missing }
            return missing != nil && missing != reported
        }
    }
}
