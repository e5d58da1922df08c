import AgentCore
import CPlatform
import Glibc

/// The inotify watches of one client: of a directory, of all below it, or of the directory of a file. Blocks on the
/// disk; used by one thread at a time.
final class WatchedTree {
    /// What a look has found.
    struct Look: Sendable {
        struct Event: Encodable, Sendable, Equatable {
            var op: String
            var path: String
            /// Of a move, where it was.
            var from: String?
        }

        var events: [Event] = []
        /// Events were lost.
        var overflows = false
        /// What was watched is gone.
        var isOver = false
        /// There is more to look at.
        var hasMore = false
        /// What tells when there is something to look at.
        var descriptor: CInt = -1
    }

    /// What the kernel tells.
    private struct Event {
        var watch: CInt
        var name: [UInt8]
        var change: UInt32
        var cookie: UInt32
        var isDirectory: Bool
        var isGone: Bool
        var isItself: Bool

        init(_ event: wa_file_event) {
            (watch, cookie, change) = (event.watch, event.cookie, UInt32(bitPattern: event.change))
            (isDirectory, isGone, isItself) = (event.directory, event.gone, event.itself)
            name = event.name.map { Array(UnsafeRawBufferPointer(start: $0, count: event.name_length)) } ?? []
        }
    }

    /// New directories that are looked at in one piece of work.
    private static let directoriesAtOnce = 200

    /// As the client named it.
    private let shown: String
    /// Where it really is.
    private var real: [UInt8] = []
    /// Of a file that is watched by its directory.
    private var file: [UInt8]?
    private let isRecursive: Bool
    private let budget: WatchBudget
    private let limit: Int
    private var descriptor: CInt = -1
    /// Directories by watch, relative to the root, which is the empty path; and the other way.
    private var watches: [CInt: [UInt8]] = [:]
    private var numbers: [[UInt8]: CInt] = [:]
    /// Directories to be watched; with whether what lies in them is news.
    private var unseen: [(path: [UInt8], isNews: Bool)] = []
    private var changes = WatchChanges()
    /// The first half of a rename, by the number that both halves have.
    private var leaving: [UInt32: [UInt8]] = [:]
    /// Events were lost; the client has yet to be told.
    private var overflows = false
    private var owesOverflow = false
    private var isOver = false

    /// - Parameters:
    ///   - path: absolute. A link is followed; below it, none is.
    ///   - limit: changed paths that are told at once; with more, the client is told to look anew.
    init(_ path: String, isRecursive: Bool, budget: WatchBudget, limit: Int = FilesLimits.watchEvents) {
        shown = LexicalPath.clean(path)
        self.isRecursive = isRecursive
        self.budget = budget
        self.limit = limit
    }

    deinit { end() }

    /// Watches the first directories; the rest has ``watchSome()``.
    /// - Throws: ``FilesError``.
    func begin() throws(FilesError) {
        let resolved = try PathResolution.resolve(shown)
        var info = stat()
        let result = withPath(resolved) { lstat($0, &info) }
        guard result == 0 else { throw FilesError.system(result, "watch", shown) }
        let isFile = info.st_mode & S_IFMT != S_IFDIR
        real = PathText.bytes(isFile ? LexicalPath.parent(resolved) : resolved)
        file = isFile ? PathText.bytes(LexicalPath.name(resolved)) : nil
        descriptor = wa_inotify()
        guard descriptor >= 0 else {
            throw FilesError(.unavailable, "watch \(shown): inotify: \(FilesError.reason(descriptor))")
        }
        unseen = [([], false)]
        _ = try watchSome()
    }

    func end() {
        if descriptor >= 0 { close(descriptor) }
        budget.give(watches.count)
        (descriptor, watches, numbers, leaving, unseen) = (-1, [:], [:], [:], [])
    }

    // MARK: - Watches

    /// Adds watches of some directories that have yet to be watched.
    /// - Returns: whether there are more.
    /// - Throws: ``FilesError`` `.unavailable` when there may be no more watches.
    func watchSome() throws(FilesError) -> Bool {
        for _ in 0..<Self.directoriesAtOnce {
            guard let (path, isNews) = unseen.popLast() else { return false }
            try watch(path, isNews: isNews)
        }
        return !unseen.isEmpty
    }

    private func watch(_ path: [UInt8], isNews: Bool) throws(FilesError) {
        guard numbers[path] == nil || isNews else { return }
        guard budget.take() else {
            throw FilesError(
                .unavailable,
                "watch \(shown): the budget of \(budget.limit) inotify watches is used up; watch fewer directories, or "
                    + "raise WORKSPACE_AGENT_GIT_WATCH_BUDGET")
        }
        let number = withName(place(path)) { wa_inotify_watch_changes(descriptor, $0) }
        if number < 0 || watches[number] != nil { budget.give() }
        switch number {
        case -ENOSPC:
            throw FilesError(.unavailable, "watch \(shown): fs.inotify.max_user_watches is used up")
        // It has gone, may not be read, or is none.
        case ..<0:
            guard path.isEmpty else { return }
            throw FilesError.system(number, "watch", shown)
        default: break
        }
        if let other = watches[number], other != path { numbers[other] = nil }
        watches[number] = path
        numbers[path] = number
        // After the watch is there, so that nothing falls between.
        if isRecursive, file == nil { enter(path, isNews: isNews) }
    }

    /// Notes the directories below this one, and tells what lies in it if that is news.
    private func enter(_ path: [UInt8], isNews: Bool) {
        let opened = withName(place(path)) { wa_open($0, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0) }
        guard opened >= 0, let stream = try? DirectoryStream(opened, shown) else { return }
        while let name = try? stream.next(shown) {
            var info = stat()
            guard withName(name, { fstatat(opened, $0, &info, AT_SYMLINK_NOFOLLOW) }) == 0 else { continue }
            let below = Self.join(path, name)
            if isNews { note(.create, below) }
            if info.st_mode & S_IFMT == S_IFDIR { unseen.append((below, isNews)) }
        }
    }

    private func forget(_ number: CInt) {
        guard let path = watches.removeValue(forKey: number) else { return }
        if numbers[path] == number { numbers[path] = nil }
        budget.give()
    }

    /// A directory is no longer there, with all below it.
    private func leave(_ directory: [UInt8]) {
        for (number, path) in watches where Self.isWithin(path, directory) {
            wa_inotify_unwatch(descriptor, number)
            forget(number)
        }
        unseen.removeAll { Self.isWithin($0.path, directory) }
    }

    private func rename(_ old: [UInt8], to new: [UInt8]) {
        for (number, path) in watches where Self.isWithin(path, old) {
            numbers[path] = nil
            watches[number] = new + path.dropFirst(old.count)
        }
        for (number, path) in watches where Self.isWithin(path, new) { numbers[path] = number }
        for index in unseen.indices where Self.isWithin(unseen[index].path, old) {
            unseen[index].path = new + unseen[index].path.dropFirst(old.count)
        }
    }

    // MARK: - Events

    /// Reads what has happened, and watches new directories.
    /// - Throws: ``FilesError`` when they cannot be watched.
    func look() throws(FilesError) -> Look {
        let events = readEvents()
        let arrived = Set(events.filter { isChange($0, WA_FILE_CAME) }.map(\.cookie))
        for event in events { take(event, isRename: arrived.contains(event.cookie)) }
        leaving = [:]
        if overflows { try beginAnew() }
        let hasMore = try watchSome()
        if overflows { try beginAnew() }
        if owesOverflow {
            // What the client looks at anew must be watched by then, so it is told last.
            _ = changes.take()
            owesOverflow = hasMore
            return Look(overflows: !hasMore, isOver: isOver, hasMore: hasMore, descriptor: descriptor)
        }
        if changes[[]] == .delete { isOver = true }
        return Look(events: changes.take().map(event), isOver: isOver, hasMore: hasMore, descriptor: descriptor)
    }

    /// What is watched, and where, may have changed in ways that are not known.
    private func beginAnew() throws(FilesError) {
        (overflows, owesOverflow) = (false, true)
        end()
        do { try begin() } catch {
            guard error.code != .unavailable else { throw error }
            isOver = true
        }
    }

    /// What the kernel has, as far as it is not too much at once.
    private func readEvents() -> [Event] {
        var events: [Event] = []
        var area = [UInt8](repeating: 0, count: 64 << 10)
        for _ in 0..<32 {
            let count = wa_read(descriptor, &area, area.count)
            guard count > 0 else { break }
            area.withUnsafeBytes { bytes in
                var rest = UnsafeRawBufferPointer(rebasing: bytes[..<count])
                var event = wa_file_event()
                while !rest.isEmpty, case let used = wa_inotify_parse(rest.baseAddress, rest.count, &event), used > 0 {
                    if event.overflow { overflows = true } else { events.append(Event(event)) }
                    rest = UnsafeRawBufferPointer(rebasing: rest[used...])
                }
            }
        }
        return events
    }

    /// - Parameter isRename: both halves are known.
    private func take(_ event: Event, isRename: Bool) {
        guard let directory = watches[event.watch] else { return }
        if event.isGone { forget(event.watch) }
        if event.isGone || event.isItself {
            if directory.isEmpty { note(.delete, []) }
            return
        }
        let name = event.name
        if let file {
            guard name == file else { return }
            // What takes the file's place by a rename is new content.
            let isGone = isChange(event, WA_FILE_DELETED) || isChange(event, WA_FILE_LEFT)
            return note(isGone ? .delete : .modify, [])
        }
        // Of the directory itself, such as its mode; the one above names it as well.
        guard !name.isEmpty else {
            if directory.isEmpty { note(.modify, []) }
            return
        }
        let path = Self.join(directory, name)
        if isChange(event, WA_FILE_CREATED) {
            arrive(path, event.isDirectory)
        } else if isChange(event, WA_FILE_DELETED) {
            note(.delete, path)
        } else if isChange(event, WA_FILE_LEFT) {
            if isRename { leaving[event.cookie] = path } else { goAway(path, event.isDirectory) }
        } else if isChange(event, WA_FILE_CAME) {
            guard let old = leaving.removeValue(forKey: event.cookie) else { return arrive(path, event.isDirectory) }
            note(.move(from: old), path)
            if event.isDirectory { rename(old, to: path) }
        } else {
            note(.modify, path)
        }
    }

    private func isChange(_ event: Event, _ change: wa_file_change) -> Bool {
        event.change == change.rawValue
    }

    private func arrive(_ path: [UInt8], _ isDirectory: Bool) {
        note(.create, path)
        if isDirectory, isRecursive { unseen.append((path, true)) }
    }

    private func goAway(_ path: [UInt8], _ isDirectory: Bool) {
        if isDirectory {
            leave(path)
            changes.remove(below: path)
        }
        note(.delete, path)
    }

    private func note(_ change: WatchChanges.Change, _ path: [UInt8]) {
        changes.add(change, path)
        if changes.count > limit { overflows = true }
    }

    private func event(_ path: [UInt8], _ change: WatchChanges.Change) -> Look.Event {
        switch change {
        case .create: Look.Event(op: "create", path: name(path))
        case .modify: Look.Event(op: "modify", path: name(path))
        case .delete: Look.Event(op: "delete", path: name(path))
        case .move(let from): Look.Event(op: "move", path: name(path), from: name(from))
        }
    }

    // MARK: - Paths

    private func name(_ path: [UInt8]) -> String {
        path.isEmpty ? shown : LexicalPath.join(shown, PathText.text(path))
    }

    private func place(_ path: [UInt8]) -> [UInt8] { path.isEmpty ? real : Self.join(real, path) }

    private static func join(_ directory: [UInt8], _ name: [UInt8]) -> [UInt8] {
        let slash = directory.isEmpty || directory.last == UInt8(ascii: "/") ? [] : [UInt8(ascii: "/")]
        return directory + slash + name
    }

    private static func isWithin(_ path: [UInt8], _ directory: [UInt8]) -> Bool {
        path.starts(with: directory)
            && (path.count == directory.count || path[directory.count] == UInt8(ascii: "/"))
    }
}
