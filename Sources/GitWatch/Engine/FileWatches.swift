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
    private let budget: WatchBudget
    /// Of the budget: those that are there, and those that the worker is adding.
    private var taken = 0
    private var watches: [CInt: Watch] = [:]
    /// Watch descriptors by repository and directory.
    private var trees: [String: [GitPath: CInt]] = [:]
    private var gits: [String: [String: CInt]] = [:]

    init(budget: WatchBudget) { self.budget = budget }

    var descriptor: CInt { fd }
    var count: Int { watches.count }

    /// Which directories have yet to be watched, now that these are to be. Those that are not wanted any more are
    /// let go. The worker adds the watches, since a file system may hold up the process that names a directory on it.
    /// - Parameters:
    ///   - adding: others stay watched.
    ///   - reserved: watches that the worker is adding now.
    /// - Returns: for ``WorkerRequest/Kind/watch``, or why the repository must be polled.
    mutating func plan(
        _ root: String, directories: [GitPath], git: [String], adding: Bool, reserved: Int
    ) -> (wanted: [GitPath], problem: String?) {
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
        var wanted: [GitPath] = []
        for path in directories where trees[root]?[path] == nil { wanted.append([Self.treeMark] + path) }
        for path in git where gits[root]?[path] == nil { wanted.append([Self.gitMark] + Array(path.utf8)) }
        let own = (trees[root]?.count ?? 0) + (gits[root]?.count ?? 0)
        if own + wanted.count > GitWatchLimits.watchesPerRepository {
            return ([], "more than \(GitWatchLimits.watchesPerRepository) directories")
        }
        guard take(watches.count + reserved), take(watches.count + reserved + wanted.count) else {
            return ([], "the budget of \(budget.limit) inotify watches is used up")
        }
        return (wanted, nil)
    }

    /// Has this much of the budget taken, all together.
    /// - Returns: whether it is; otherwise nothing has changed.
    private mutating func take(_ count: Int) -> Bool {
        if count > taken, !budget.take(count - taken) { return false }
        if count < taken { budget.give(taken - count) }
        taken = count
        return true
    }

    private mutating func give(_ count: Int) { _ = take(max(0, taken - count)) }

    private static let treeMark: UInt8 = 0
    private static let gitMark: UInt8 = 1

    /// Adds the watches that ``plan(_:directories:git:adding:reserved:)`` wanted. Blocks as long as the file system
    /// does, so only the worker calls it.
    static func add(_ wanted: [GitPath], _ root: String, inotify: CInt) -> [Int32] {
        wanted.map { path in
            let place = Array(path.dropFirst())
            return wa_inotify_watch(
                inotify, path.first == treeMark ? place.below(root) : place.map { CChar(bitPattern: $0) } + [0])
        }
    }

    /// Takes note of what the worker added.
    /// - Returns: the directories of the work tree that are new, and why the repository must be polled, if so.
    mutating func added(
        _ root: String, _ wanted: [GitPath], _ descriptors: [Int32]
    ) -> (added: [GitPath], problem: String?) {
        var added: [GitPath] = []
        var problem: String?
        let before = watches.count
        defer { give(wanted.count - (watches.count - before)) }
        for (path, descriptor) in zip(wanted, descriptors) {
            switch -descriptor {
            // The directory has gone, which is no problem.
            case ENOENT, ENOTDIR, ELOOP, EACCES: continue
            case ENOSPC: problem = "fs.inotify.max_user_watches is used up"
            case 1...: problem = "inotify: \(errnoText(-descriptor))"
            default:
                // The kernel has one watch for a directory under all its names: a repository that shares one
                // with another (a linked work tree's git directory) cannot tell whose it is.
                if let known = watches[descriptor], known.root != root { continue }
                let place = Array(path.dropFirst())
                if path.first == Self.treeMark {
                    watches[descriptor] = Watch(root: root, place: .tree(place))
                    trees[root, default: [:]][place] = descriptor
                    added.append(place)
                } else {
                    let name = String(decoding: place, as: UTF8.self)
                    watches[descriptor] = Watch(root: root, place: .git(name))
                    gits[root, default: [:]][name] = descriptor
                }
            }
        }
        return (added, problem)
    }

    /// Lets go of watches that the worker added for a repository that has been forgotten meanwhile.
    mutating func discard(_ descriptors: [Int32]) {
        for descriptor in descriptors where descriptor >= 0 && watches[descriptor] == nil {
            wa_inotify_unwatch(fd, descriptor)
        }
        give(descriptors.count)
    }

    mutating func unwatch(_ root: String) {
        for descriptor in (trees[root] ?? [:]).values { remove(descriptor) }
        for descriptor in (gits[root] ?? [:]).values { remove(descriptor) }
        trees[root] = nil
        gits[root] = nil
    }

    mutating func close() {
        if fd >= 0 { Glibc.close(fd) }
        (fd, watches, trees, gits) = (-1, [:], [:], [:])
        give(taken)
    }

    private mutating func remove(_ descriptor: CInt) {
        wa_inotify_unwatch(fd, descriptor)
        forget(descriptor)
    }

    private mutating func forget(_ descriptor: CInt) {
        guard let watch = watches.removeValue(forKey: descriptor) else { return }
        give(1)
        switch watch.place {
        case .tree(let path): trees[watch.root]?[path] = nil
        case .git(let path): gits[watch.root]?[path] = nil
        }
    }

    /// Reads what has happened, by repository.
    /// - Parameter expecting: whether the worker is adding watches; a watch that is not known is left over from a
    ///   worker that ended otherwise.
    mutating func read(expecting: Bool) -> [String: Changes] {
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
                    take(event, &changes, expecting)
                    rest = UnsafeRawBufferPointer(rebasing: rest[used...])
                    if rest.isEmpty { break }
                }
            }
        }
        return changes
    }

    private mutating func take(_ event: wa_file_event, _ changes: inout [String: Changes], _ expecting: Bool) {
        if event.overflow {
            for root in trees.keys {
                changes[root, default: Changes()].everything = true
                changes[root, default: Changes()].listAll = true
            }
            return
        }
        guard let watch = watches[event.watch] else {
            if !expecting, !event.gone { wa_inotify_unwatch(fd, event.watch) }
            return
        }
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
