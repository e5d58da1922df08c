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

    /// Whose a watch is.
    private struct Owner: Equatable {
        var root: String
        var target: WatchTarget
    }

    /// What became of the watches that the worker added.
    struct Added {
        /// Directories of the work tree that are watched now.
        var directories: [GitPath] = []
        /// Directories of git are watched now.
        var hasGit = false
        /// The kernel took back a watch before it was known whose it is, so that it must be added again.
        var isLost = false
        /// Why the repository must be polled.
        var problem: String?
    }

    private var fd: CInt = -1
    private let budget: WatchBudget
    /// Of the budget: those that are there, and those that the worker is adding.
    private var taken = 0
    /// The kernel has one watch for a directory, which several repositories may need: the git directory of linked
    /// work trees, a submodule that is watched for itself as well.
    private var watches: [CInt: [Owner]] = [:]
    private var places: [String: [WatchTarget: CInt]] = [:]
    /// Watches that were removed while the worker was adding some, perhaps the same ones.
    private var removed: Set<CInt> = []

    init(budget: WatchBudget) { self.budget = budget }

    var descriptor: CInt { fd }
    var count: Int { watches.count }

    /// What has yet to be watched, now that this is to be. What is not wanted any more is let go. The worker adds the
    /// watches, since a file system may hold up the process that names a directory on it.
    /// - Parameters:
    ///   - adding: others stay watched.
    ///   - reserved: watches that the worker is adding now.
    /// - Returns: for ``WorkerRequest/Kind/watch``, or why the repository must be polled.
    mutating func plan(
        _ root: String, _ targets: [WatchTarget], adding: Bool, reserved: Int
    ) -> (wanted: [WatchTarget], problem: String?) {
        if fd < 0 {
            fd = wa_inotify()
            if fd < 0 {
                let text = errnoText(-fd)
                fd = -1
                return ([], "inotify: \(text)")
            }
        }
        if reserved == 0 { removed = [] }
        if !adding {
            let wanted = Set(targets)
            for (target, descriptor) in places[root] ?? [:] where !wanted.contains(target) {
                remove(descriptor, Owner(root: root, target: target))
            }
        }
        let wanted = targets.filter { places[root]?[$0] == nil }
        if (places[root]?.count ?? 0) + wanted.count > GitWatchLimits.watchesPerRepository {
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

    /// Adds the watches that ``plan(_:_:adding:reserved:)`` wanted, encoded. Blocks as long as the file system does, so
    /// only the worker calls it.
    static func add(_ wanted: [GitPath], _ root: String, inotify: CInt) -> [Int32] {
        wanted.map { encoded in
            guard let target = WatchTarget(encoded: encoded) else { return -EINVAL }
            return wa_inotify_watch(inotify, target.cString(root))
        }
    }

    /// Takes note of what the worker added.
    mutating func added(_ root: String, _ wanted: [GitPath], _ descriptors: [Int32]) -> Added {
        var result = Added()
        let before = watches.count
        defer { give(wanted.count - (watches.count - before)) }
        for (encoded, descriptor) in zip(wanted, descriptors) {
            switch -descriptor {
            // The directory has gone, which is no problem.
            case ENOENT, ENOTDIR, ELOOP, EACCES: continue
            case ENOSPC: result.problem = "fs.inotify.max_user_watches is used up"
            case 1...: result.problem = "inotify: \(errnoText(-descriptor))"
            case _ where removed.contains(descriptor) && watches[descriptor] == nil: result.isLost = true
            default:
                guard let target = WatchTarget(encoded: encoded) else { continue }
                let owner = Owner(root: root, target: target)
                if watches[descriptor]?.contains(owner) != true { watches[descriptor, default: []].append(owner) }
                places[root, default: [:]][target] = descriptor
                switch target {
                case .tree(let path), .inner(let path): result.directories.append(path)
                case .git: result.hasGit = true
                }
            }
        }
        return result
    }

    /// Lets go of watches that the worker added for a repository that has been forgotten meanwhile.
    mutating func discard(_ descriptors: [Int32]) {
        for descriptor in descriptors where descriptor >= 0 && watches[descriptor] == nil {
            wa_inotify_unwatch(fd, descriptor)
            removed.insert(descriptor)
        }
        give(descriptors.count)
    }

    mutating func unwatch(_ root: String) {
        for (target, descriptor) in places[root] ?? [:] { remove(descriptor, Owner(root: root, target: target)) }
        places[root] = nil
    }

    mutating func close() {
        if fd >= 0 { Glibc.close(fd) }
        (fd, watches, places, removed) = (-1, [:], [:], [])
        give(taken)
    }

    private mutating func remove(_ descriptor: CInt, _ owner: Owner) {
        places[owner.root]?[owner.target] = nil
        watches[descriptor]?.removeAll { $0 == owner }
        guard watches[descriptor]?.isEmpty == true else { return }
        wa_inotify_unwatch(fd, descriptor)
        removed.insert(descriptor)
        watches[descriptor] = nil
        give(1)
    }

    /// The kernel has removed the watch.
    private mutating func forget(_ descriptor: CInt) {
        guard let owners = watches.removeValue(forKey: descriptor) else { return }
        give(1)
        for owner in owners where places[owner.root]?[owner.target] == descriptor {
            places[owner.root]?[owner.target] = nil
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
            for root in places.keys {
                changes[root, default: Changes()].everything = true
                changes[root, default: Changes()].listAll = true
            }
            return
        }
        guard let owners = watches[event.watch] else {
            if !expecting, !event.gone { wa_inotify_unwatch(fd, event.watch) }
            return
        }
        if event.gone { forget(event.watch) }
        let name =
            event.name.map { UnsafeRawBufferPointer(start: $0, count: event.name_length) }.map { Array($0) } ?? []
        for owner in owners {
            changes[owner.root, default: Changes()].note(event, name: name, in: owner.target)
        }
    }
}

extension FileWatches.Changes {
    /// What one event says.
    /// - Parameter name: of the entry of the watched directory; empty when the event is about that itself.
    fileprivate mutating func note(_ event: wa_file_event, name: [UInt8], in target: WatchTarget) {
        let isItself = event.gone || event.itself || name.isEmpty
        let isDotGit = !isItself && name.elementsEqual(".git".utf8)
        // Of a directory it says nothing that what is in it changed its attributes.
        let isNews = event.entries || !event.directory
        switch target {
        case .tree(let directory), .inner(let directory):
            if isItself {
                if directory.isEmpty, event.gone || event.itself {
                    everything = true
                    listAll = true
                } else if event.itself {
                    // The one above names it, too; a moved one must not be followed.
                    listAll = true
                    paths.insert(directory)
                }
                return
            }
            let path = directory.isEmpty ? name : directory + [UInt8(ascii: "/")] + name
            if isDotGit {
                guard isNews else { return }
                // The repository itself, or one inside it, came, went or moved.
                if directory.isEmpty { everything = true } else { paths.insert(path) }
                listAll = true
                return
            }
            if case .inner = target { return }
            paths.insert(path)
            // One whose attributes changed may be readable only now.
            if event.directory { directories.insert(path) }
        case .git(let directory):
            if event.gone || event.itself {
                listAll = true
                everything = true
                return
            }
            let name = String(decoding: name, as: UTF8.self)
            guard GitDirectories.matters(name) else { return }
            everything = true
            if event.directory && event.entries || GitDirectories.decidesDirectories(name, in: directory) {
                listAll = true
            }
        }
    }
}
