import AgentCore
import Glibc

/// What all file routes work with.
public struct FilesContext: Sendable {
    let work: DiskWork
    let locks = FileLocks()
    let temporaries: TemporaryFiles
    let paths: any PathStore
    /// The umask that the daemon was started with; its own is stricter.
    let fileMask: mode_t
    /// The user's home directory.
    let home: String
    /// The daemon's environment, for variables in paths.
    let environment: [String: String]
    /// For those who watch files.
    let watchBudget: WatchBudget

    /// - Parameters:
    ///   - work: where the disk is touched.
    ///   - temporaries: what is left of temporary files after a kill.
    ///   - paths: told what chats have written.
    ///   - watchBudget: shared with all that watch files.
    public init(
        work: DiskWork, temporaries: TemporaryFiles, paths: any PathStore, fileMask: mode_t, home: String,
        environment: [String: String], watchBudget: WatchBudget = WatchBudget(limit: nil)
    ) {
        (self.work, self.temporaries, self.paths) = (work, temporaries, paths)
        (self.fileMask, self.home, self.environment) = (fileMask, home, environment)
        self.watchBudget = watchBudget
    }
}
