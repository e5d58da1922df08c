/// libgit2 on this machine. The git watcher does without it, by running git more often.
package enum GitLibrary {
    /// Why it cannot be used; nil when it can. Loads it for the life of the process.
    package static var problem: String? {
        let (library, reason) = Libgit.load()
        return library == nil ? reason : nil
    }
}
