import AgentCore
import CPlatform
import Glibc

/// The inotify watches of all repositories, within the budget. On the engine's thread alone.
struct FileWatches {
    /// What the events of one read say of a repository.
    struct Changes {
        var paths: Set<GitPath> = []
        var directories: Set<GitPath> = []
        /// HEAD, index, rules or settings.
        var everything = false
        /// Watches were lost with their directories, or git's directories changed.
        var listAll = false
    }

    private enum Place {
        case tree(GitPath)
        case git(String)
    }

    private struct Watch {
        var root: String
        var place: Place
    }

    private var fd: CInt = -1
    private let budget: Int
    private var watches: [CInt: Watch] = [:]
    /// Watch descriptors by repository and directory.
    private var trees: [String: [GitPath: CInt]] = [:]
    private var gits: [String: [String: CInt]] = [:]

    /// - Parameter budget: watches in all; nil is half of what the kernel gives a user.
    init(budget: Int?) {
        let kernel = readTextFile("/proc/sys/fs/inotify/max_user_watches").flatMap { text in
            Int(text.prefix { $0.isNumber })
        }
        self.budget = budget ?? (kernel ?? 8_192) / 2
    }

    var descriptor: CInt { fd }
    var count: Int { watches.count }

    /// Sets or adds the watches of a repository.
    /// - Returns: the directories of the work tree that are new, and why the repository must be polled, if so.
    mutating func watch(
        _ root: String, directories: [GitPath], git: [String], adding: Bool
    ) -> (added: [GitPath], problem: String?) {
        if fd < 0 {
            fd = wa_inotify()
            if fd < 0 {
                let text = errnoText(-fd)
                fd = -1
                return ([], "inotify: \(text)")
            }
        }
        if !adding {
            let wanted = Set(directories)
            for (path, descriptor) in trees[root] ?? [:] where !wanted.contains(path) { remove(descriptor) }
            let wantedGit = Set(git)
            for (path, descriptor) in gits[root] ?? [:] where !wantedGit.contains(path) { remove(descriptor) }
        }
        var added: [GitPath] = []
        for path in directories where trees[root]?[path] == nil {
            switch add(path.below(root), root, .tree(path)) {
            case .success(let descriptor):
                trees[root, default: [:]][path] = descriptor
                added.append(path)
            case .failure(let problem):
                if let text = problem.text { return ([], text) }
            }
        }
        for path in git where gits[root]?[path] == nil {
            switch add(path.utf8CString.map { $0 }, root, .git(path)) {
            case .success(let descriptor): gits[root, default: [:]][path] = descriptor
            case .failure(let problem): if let text = problem.text { return ([], text) }
            }
        }
        return (added, nil)
    }

    private struct Refusal: Error {
        /// nil: the directory has gone, which is no problem.
        var text: String?
    }

    private mutating func add(_ path: [CChar], _ root: String, _ place: Place) -> Result<CInt, Refusal> {
        let own = (trees[root]?.count ?? 0) + (gits[root]?.count ?? 0)
        guard own < GitWatchLimits.watchesPerRepository else {
            return .failure(Refusal(text: "more than \(GitWatchLimits.watchesPerRepository) directories"))
        }
        guard watches.count < budget else {
            return .failure(Refusal(text: "the budget of \(budget) inotify watches is used up"))
        }
        let descriptor = wa_inotify_watch(fd, path)
        switch -descriptor {
        case ENOENT, ENOTDIR, ELOOP, EACCES: return .failure(Refusal(text: nil))
        case ENOSPC: return .failure(Refusal(text: "fs.inotify.max_user_watches is used up"))
        case 1...: return .failure(Refusal(text: "inotify: \(errnoText(-descriptor))"))
        default: break
        }
        // The kernel has one watch for a directory under all its names: a repository that shares one
        // with another (a linked work tree's git directory) cannot tell whose it is.
        if let known = watches[descriptor], known.root != root {
            return .failure(Refusal(text: nil))
        }
        watches[descriptor] = Watch(root: root, place: place)
        return .success(descriptor)
    }

    mutating func unwatch(_ root: String) {
        for descriptor in (trees[root] ?? [:]).values { remove(descriptor) }
        for descriptor in (gits[root] ?? [:]).values { remove(descriptor) }
        trees[root] = nil
        gits[root] = nil
        if watches.isEmpty { close() }
    }

    mutating func close() {
        if fd >= 0 { Glibc.close(fd) }
        (fd, watches, trees, gits) = (-1, [:], [:], [:])
    }

    private mutating func remove(_ descriptor: CInt) {
        wa_inotify_unwatch(fd, descriptor)
        forget(descriptor)
    }

    private mutating func forget(_ descriptor: CInt) {
        guard let watch = watches.removeValue(forKey: descriptor) else { return }
        switch watch.place {
        case .tree(let path): trees[watch.root]?[path] = nil
        case .git(let path): gits[watch.root]?[path] = nil
        }
    }

    /// Reads what has happened, by repository.
    mutating func read() -> [String: Changes] {
        var changes: [String: Changes] = [:]
        guard fd >= 0 else { return changes }
        var area = [UInt8](repeating: 0, count: 64 << 10)
        // A busy build must not keep us here; the rest is read in the next turn.
        for _ in 0..<16 {
            let count = wa_read(fd, &area, area.count)
            guard count > 0 else { break }
            area.withUnsafeBytes { bytes in
                var rest = UnsafeRawBufferPointer(rebasing: bytes[..<count])
                var event = wa_file_event()
                while case let used = wa_inotify_parse(rest.baseAddress, rest.count, &event), used > 0 {
                    take(event, &changes)
                    rest = UnsafeRawBufferPointer(rebasing: rest[used...])
                    if rest.isEmpty { break }
                }
            }
        }
        return changes
    }

    private mutating func take(_ event: wa_file_event, _ changes: inout [String: Changes]) {
        if event.overflow {
            for root in trees.keys {
                changes[root, default: Changes()].everything = true
                changes[root, default: Changes()].listAll = true
            }
            return
        }
        guard let watch = watches[event.watch] else { return }
        var change = changes[watch.root] ?? Changes()
        defer { changes[watch.root] = change }
        if event.gone { forget(event.watch) }
        let name =
            event.name.map { UnsafeRawBufferPointer(start: $0, count: event.name_length) }.map { Array($0) } ?? []
        switch watch.place {
        case .tree(let directory):
            if event.gone || event.itself || name.isEmpty {
                if directory.isEmpty, event.gone || event.itself {
                    change.everything = true
                    change.listAll = true
                } else if event.itself {
                    // The one above names it, too; a moved one must not be followed.
                    change.listAll = true
                    change.paths.insert(directory)
                }
                return
            }
            if directory.isEmpty, name == Array(".git".utf8) {
                if event.entries {
                    change.everything = true
                    change.listAll = true
                }
                return
            }
            let path = directory.isEmpty ? name : directory + [UInt8(ascii: "/")] + name
            // An entry came or went in a directory: its own modification says nothing more.
            if event.directory, !event.entries { return }
            change.paths.insert(path)
            if event.directory { change.directories.insert(path) }
        case .git(let directory):
            if event.gone || event.itself {
                change.listAll = true
                change.everything = true
                return
            }
            guard GitDirectories.matters(String(decoding: name, as: UTF8.self)) else { return }
            change.everything = true
            if event.directory, event.entries { change.listAll = true }
            if directory.hasSuffix("/info") { change.listAll = true }
        }
    }
}
