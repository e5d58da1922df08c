/// The directories of git whose files tell that HEAD, index, rules or settings changed.
enum GitDirectories {
    /// Symbolic refs that are followed from HEAD; git stops there, too.
    private static let symbolicRefs = 5
    /// Of the directories that lead to the branch.
    private static let maximum = 64

    /// Those that are there now. Of the refs only HEAD's counts.
    static func of(_ tree: WorkTree) -> [String] {
        var found: [String] = []
        func add(_ directory: String) {
            if !found.contains(directory), Discovery.isDirectory(directory) { found.append(directory) }
        }
        for directory in [tree.gitDirectory, tree.commonDirectory] {
            add(directory)
            for name in ["info", "reftable"] { add("\(directory)/\(name)") }
        }
        add("\(tree.commonDirectory)/refs")
        for ref in refs(tree) {
            let path = Array(ref.utf8)
            // A directory that is not there appears in the one above.
            for parent in path.parents.prefix(maximum) {
                add("\(tree.commonDirectory)/\(String(decoding: parent, as: UTF8.self))")
            }
        }
        return found
    }

    /// The ref that HEAD names, and those that it names in turn; none when HEAD is detached or damaged.
    static func refs(_ tree: WorkTree) -> [String] {
        var refs: [String] = []
        var file = "\(tree.gitDirectory)/HEAD"
        while refs.count < symbolicRefs, let ref = Discovery.symbolicRef(file), !refs.contains(ref) {
            refs.append(ref)
            file = "\(tree.commonDirectory)/\(ref)"
        }
        return refs
    }

    /// Whether a change of this name says anything: locks and messages come and go.
    static func matters(_ name: String) -> Bool {
        !name.hasSuffix(".lock")
            && ![
                "COMMIT_EDITMSG", "FETCH_HEAD", "ORIG_HEAD", "MERGE_MSG", "objects", "logs", "gc.pid", "hooks",
                "description", "branches", "worktrees", "modules", "fsmonitor--daemon.ipc", "REBASE_HEAD",
            ].contains(name)
    }

    /// Whether a change of this name may make other directories worth watching: settings name ignore rules.
    static func decidesDirectories(_ name: String, in directory: String) -> Bool {
        name == "config" || name == "config.worktree" || directory.hasSuffix("/info")
    }
}
