import AgentCore
import FoundationEssentials
import Glibc

/// What everything that runs a line of shell for the workspace shares: scripts and metadata.
package struct ScriptContext: Sendable {
    package var runner: any CommandRunner
    package var environment: EnvironmentBuilder
    package var user: LoginUser
    /// Where blocking calls on files run.
    package var pool: BlockingPool
    /// Runs the tasks that nobody awaits.
    package var executor: any TaskExecutor
    package var clock: AgentClock
    package var wallTime: @Sendable () -> WallTime

    package init(
        runner: any CommandRunner, environment: EnvironmentBuilder, user: LoginUser, pool: BlockingPool,
        executor: any TaskExecutor, clock: AgentClock, wallTime: @escaping @Sendable () -> WallTime = WallTime.now
    ) {
        self.runner = runner
        self.environment = environment
        self.user = user
        self.pool = pool
        self.executor = executor
        self.clock = clock
        self.wallTime = wallTime
    }

    /// The command for a text: the login shell's `-c` (spec: control plane, Scripts).
    func command(
        _ text: Secret<String>, directory: String, variables: [String: String] = [:], gate: OutputGate? = nil
    ) throws -> Command {
        let text = text.reveal()
        // The kernel's strings end at it, so that half of the script would run.
        guard !text.utf8.contains(0) else {
            throw ControlPlaneError(.manifest, "the script holds a NUL character; take it out")
        }
        return Command(
            arguments: [user.shell, "-c", text], environment: environment.build(request: variables),
            workdir: directory, gate: gate)
    }

    /// The directory to start in: the manifest's, or home when there is no such directory.
    func workdir(_ directory: String) async -> (path: String, isFallback: Bool) {
        let isThere = try? await pool.run {
            var info = stat()
            return stat(directory, &info) == 0 && info.st_mode & S_IFMT == S_IFDIR
        }
        return isThere == true ? (directory, false) : (user.home, true)
    }
}
