import AgentCore
import CPlatform
import Glibc
import Synchronization

/// What a search does with the entries that a walk comes upon. Called from several threads at once.
protocol TreeVisitor: Sendable {
    /// - Parameters:
    ///   - buffer: memory that lasts from entry to entry.
    ///   - end: when others are to have their turn; what takes longer is given back as unfinished.
    func visit(_ entry: TreeEntry, _ buffer: inout ScratchBuffer, until end: ContinuousClock.Instant) -> TreeVisit
}

/// What became of an entry.
enum TreeVisit {
    case done
    /// The walk may end.
    case enough
    case unfinished(any UnfinishedVisit)
}

/// The rest of a visit that takes long. One thread at a time goes on with it.
protocol UnfinishedVisit: AnyObject, Sendable {
    func proceed(until end: ContinuousClock.Instant) -> TreeVisit
}

/// Walks a tree, in pieces and from several threads at once. Links below the root are not followed, even if a
/// directory becomes one meanwhile; ignored directories, `.git` and those that can't be opened are left out.
///
/// What is to be done lies on a stack, so that no more directories are open than the tree is deep, for each thread.
final class TreeWalk: Sendable {
    private enum Item {
        /// A directory in another one.
        case directory([CChar], of: TreeDirectory, GlobPattern.Place?)
        /// The next entries of a directory.
        case next(TreeDirectory)
        /// Entries that are read already.
        case entries([UInt8], of: TreeDirectory)
        case rest(any UnfinishedVisit)
    }

    private struct State {
        var items: [Item] = []
        /// Done before all others, so that there are no more of them than threads.
        var unfinished: [any UnfinishedVisit] = []
        /// Threads that may yet add to them.
        var busy = 0
        var idle: [Wakeup] = []
        var isIncomplete = false
        var hasItems: Bool { !items.isEmpty || !unfinished.isEmpty }
    }

    enum Turn { case more, idle, end }

    private let pattern: GlobPattern?
    private let ignoreFiles: IgnoreFiles?
    private let visitor: any TreeVisitor
    private let state = Mutex(State())
    private let stopped = Atomic(false)
    private let kernelFileSystems = KernelFileSystems()
    private let device: dev_t

    /// - Parameters:
    ///   - pattern: for the paths of files below the root, that of the root's place; nil is all.
    ///   - ignoreFiles: nil leaves nothing out but `.git`.
    init(_ root: TreeRoot, pattern: GlobPattern?, ignoreFiles: IgnoreFiles?, visitor: any TreeVisitor) {
        (self.pattern, self.ignoreFiles, self.visitor) = (pattern, ignoreFiles, visitor)
        device = root.device
        state.withLock { $0.items = [.next(root.directory)] }
    }

    /// Does a single visit, to its end.
    init(_ visit: any UnfinishedVisit, visitor: any TreeVisitor) {
        (pattern, ignoreFiles, device, self.visitor) = (nil, nil, 0, visitor)
        state.withLock { $0.unfinished = [visit] }
    }

    /// Whether something was left out for want of time or descriptors, or because it lies too deep.
    var isIncomplete: Bool { state.withLock { $0.isIncomplete } }

    /// Ends the walk soon; what is left of it is missing.
    func stop() {
        let isNew = state.withLock { state in
            if stopped.load(ordering: .relaxed) { return false }
            if state.busy > 0 || state.hasItems { state.isIncomplete = true }
            return true
        }
        if isNew { end() }
    }

    // MARK: - Working

    /// Does a part of the walk.
    /// - Parameter idle: signalled when there is something to do again, after `.idle`.
    func work(_ milliseconds: Int, _ idle: Wakeup) -> Turn {
        var buffer = ScratchBuffer()
        let end = ContinuousClock.now + .milliseconds(milliseconds)
        while true {
            switch take(idle) {
            case .item(let item):
                handle(item, until: end, &buffer)
                finish()
            case .nothing(let turn): return turn
            }
            if ContinuousClock.now >= end { return .more }
        }
    }

    private enum Next {
        case item(Item)
        case nothing(Turn)
    }

    private func take(_ idle: Wakeup) -> Next {
        state.withLock { state in
            if let item = state.unfinished.popLast().map({ Item.rest($0) }) ?? state.items.popLast() {
                state.busy += 1
                return .item(item)
            }
            guard state.busy > 0 else { return .nothing(.end) }
            state.idle.append(idle)
            return .nothing(.idle)
        }
    }

    private func finish() {
        let idle = state.withLock { state -> [Wakeup] in
            state.busy -= 1
            guard state.busy == 0, !state.hasItems else { return [] }
            defer { state.idle = [] }
            return state.idle
        }
        for wakeup in idle { wakeup.signal() }
    }

    private func put(_ item: Item) {
        let idle = state.withLock { state -> Wakeup? in
            guard !stopped.load(ordering: .relaxed) else { return nil }
            if case .rest(let visit) = item { state.unfinished.append(visit) } else { state.items.append(item) }
            return state.idle.popLast()
        }
        idle?.signal()
    }

    private func end() {
        stopped.store(true, ordering: .relaxed)
        let items = state.withLock { state in
            defer { (state.items, state.unfinished) = ([], []) }
            return state.items
        }
        // Their directories are closed without the lock.
        _ = items
    }

    private func handle(_ item: Item, until end: ContinuousClock.Instant, _ buffer: inout ScratchBuffer) {
        switch item {
        case .directory(let name, let parent, let place): open(name, parent, place)
        case .rest(let visit): visited(visit.proceed(until: end))
        case .entries(let bytes, let directory): look(bytes, directory, until: end, &buffer)
        case .next(let directory):
            let bytes = [UInt8](unsafeUninitializedCapacity: FilesLimits.entryBytes) { area, count in
                count = max(0, wa_read_entries(directory.number, area.baseAddress, area.count))
            }
            guard !bytes.isEmpty else { return }
            // Another thread may go on with it while this one looks at what there is.
            put(.next(directory))
            look(bytes, directory, until: end, &buffer)
        }
    }

    private func open(_ name: [CChar], _ parent: TreeDirectory, _ place: GlobPattern.Place?) {
        guard parent.depth < FilesLimits.searchDepth else { return miss() }
        let number = name.withUnsafeBufferPointer { name in
            name.baseAddress.map { TreeDirectory.open(parent.number, $0) } ?? -EINVAL
        }
        guard number >= 0 else {
            if number == -EMFILE || number == -ENFILE || number == -ENOMEM { miss() }
            return
        }
        let device = TreeRoot.device(number)
        guard device == self.device || !kernelFileSystems.contain(device) else {
            close(number)
            return
        }
        let path = parent.path + name.dropLast().map { UInt8(bitPattern: $0) } + [UInt8(ascii: "/")]
        let rules = ignoreFiles?.rules(in: number, path: path, outer: parent.rules)
        let directory = TreeDirectory(number, path: path, depth: parent.depth + 1, rules: rules, place: place)
        put(.next(directory))
    }

    private func miss() { state.withLock { $0.isIncomplete = true } }

    private func look(
        _ bytes: [UInt8], _ directory: TreeDirectory, until end: ContinuousClock.Instant, _ buffer: inout ScratchBuffer
    ) {
        var path = directory.path
        path.reserveCapacity(path.count + Int(NAME_MAX))
        var (count, isDue) = (0, false)
        let done = bytes.withUnsafeBytes { area in
            TreeEntry.each(in: area, of: directory) { entry in
                // The clock costs as much as a look at a name.
                count += 1
                guard !stopped.load(ordering: .relaxed),
                    !isDue && count % 16 != 0 || ContinuousClock.now < end
                else { return false }
                isDue = look(entry, &path, &buffer, until: end)
                return true
            }
        }
        if done < bytes.count { put(.entries(Array(bytes[done...]), of: directory)) }
    }

    /// - Returns: whether the visitor had work with it.
    private func look(
        _ entry: TreeEntry, _ path: inout [UInt8], _ buffer: inout ScratchBuffer, until end: ContinuousClock.Instant
    ) -> Bool {
        let directory = entry.directory
        if entry.kind == .directory {
            var place: GlobPattern.Place?
            if let pattern, let outer = directory.place {
                place = pattern.entering(entry.name, in: outer)
                guard place != nil else { return false }
            }
            guard !isIgnored(entry, &path) else { return false }
            put(.directory(entry.name.map { CChar(bitPattern: $0) } + [0], of: directory, place))
            return false
        }
        if let pattern, let place = directory.place, !pattern.matches(entry.name, in: place) { return false }
        guard entry.kind != .other, !isIgnored(entry, &path) else { return false }
        visited(visitor.visit(entry, &buffer, until: end))
        return true
    }

    private func visited(_ visit: TreeVisit) {
        switch visit {
        case .done: break
        case .enough: stop()
        case .unfinished(let rest): put(.rest(rest))
        }
    }

    private func isIgnored(_ entry: TreeEntry, _ path: inout [UInt8]) -> Bool {
        guard let rules = entry.directory.rules else { return false }
        let start = entry.directory.path.count
        path.replaceSubrange(start..<path.count, with: entry.name)
        return path.withUnsafeBytes { path in
            rules.ignores(path, nameStart: start, isDirectory: entry.kind == .directory)
        }
    }
}
