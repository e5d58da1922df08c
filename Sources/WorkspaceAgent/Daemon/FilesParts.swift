import AgentCore
import Files
import LocalAgent

extension DaemonContext {
    /// What the file service works with.
    /// - Parameters:
    ///   - paths: told what chats have written.
    ///   - watches: what watching may take, shared with the git watcher.
    func files(
        _ inherited: Daemon.Inherited, _ state: StateDirectory, paths: any PathStore, watches: WatchBudget
    ) async -> FilesContext {
        let directory = state.problem == nil ? configuration.stateDirectory : nil
        let logger = logger
        let work = DiskWork(clock: clock, executor: executor, health: health)
        work.report(to: metrics)
        // Should the disk hang, so does the start: the state directory has been opened before.
        let temporaries = try? await pool.run { TemporaryFiles(directory: directory, logger: logger) }
        return FilesContext(
            work: work, temporaries: temporaries ?? TemporaryFiles(directory: nil, logger: logger), paths: paths,
            fileMask: inherited.fileMask, home: AgentPaths.home(configuration.environment),
            environment: configuration.environment, watchBudget: watches)
    }
}
