import CPlatform
import Glibc

/// A repository that libgit2 reads right, with the text of each changed file, so that an edit costs its
/// own file only. Used on one thread.
final class PlainRepository {
    /// Of a file's diff; tracked files come first.
    private struct Key: Hashable, Comparable {
        var isUntracked: Bool
        var path: GitPath

        static func < (a: Self, b: Self) -> Bool {
            a.isUntracked == b.isUntracked ? a.path.lexicographicallyPrecedes(b.path) : b.isUntracked
        }
    }

    let tree: WorkTree
    private let git: LibgitHandle
    private let command: GitCommand
    private let layout: IndexLayout
    private let layoutDigest: UInt32
    private var pieces = DiffPieces<Key>()
    private var untrackedCount = 0
    private var untrackedLeftOut = 0
    /// Directories known to be real ones, and symbolic links, in this scan.
    private var looked: [GitPath: Bool] = [:]

    /// Opens and lists everything.
    init(_ library: Libgit, _ tree: WorkTree, command: GitCommand) throws {
        self.tree = tree
        self.command = command
        // Lists while libgit2 opens.
        let count = Self.indexCount(tree)
        let isBorn = count > Self.listedByCLI && Discovery.isBorn(tree)
        let pending = command.path == nil ? nil : try CLIListing.Pending(command, tree.root, tracked: isBorn)
        git = try LibgitHandle(library, tree)
        layout = git.layout()
        layoutDigest = layout.digest(GitDirectories.refs(tree))
        try scanAll(pending)
    }

    /// With more index entries two git processes list faster than libgit2.
    private static let listedByCLI = 2_000

    /// From the header of the index file.
    private static func indexCount(_ tree: WorkTree) -> Int {
        let path = "\(tree.gitDirectory)/index".utf8CString.map { $0 }
        guard let (fd, _) = WorkTreeFile.open(path, follow: true) else { return 0 }
        defer { close(fd) }
        var head = [UInt8](repeating: 0, count: 12)
        guard wa_read(fd, &head, 12) == 12 else { return 0 }
        return head[8...].reduce(0) { $0 << 8 | Int($1) }
    }

    private func scanAll(_ pending: CLIListing.Pending?) throws {
        var listing = LibgitHandle.Listing()
        if pending?.listsTracked != true { listing = try git.list([], untracked: pending == nil) }
        if let names = try pending?.finish() {
            listing.tracked.formUnion(names.tracked)
            // libgit2 gets negated rules of nested ignore files wrong.
            listing.untracked = Set(names.untracked)
        }
        for path in listing.tracked { try evaluate(path) }
        let names = listing.untracked.sorted { $0.lexicographicallyPrecedes($1) }
        untrackedLeftOut = max(0, names.count - GitWatchLimits.untrackedFiles)
        for path in names.prefix(GitWatchLimits.untrackedFiles) { try evaluateUntracked(path) }
    }

    /// Looks at the named files and directories again.
    /// - Returns: false when only a scan of everything can find out.
    func update(_ paths: [GitPath]) throws -> Bool {
        looked = [:]
        if untrackedLeftOut > 0 || untrackedCount + paths.count >= GitWatchLimits.untrackedFiles { return false }
        var trees: [GitPath] = []
        for path in paths {
            let name = path.name
            if name.elementsEqual(".gitignore".utf8) || name.elementsEqual(".gitattributes".utf8) { return false }
            if let outer = path.parents.first(where: { $0.name.elementsEqual(".git".utf8) })
                ?? (name.elementsEqual(".git".utf8) ? path : nil)
            {
                // A repository appeared or went away inside ours.
                trees.append(Array(outer.dropLast(5)))
                continue
            }
            var info = stat()
            let kind = lstat(path.below(tree.root), &info) == 0 ? info.st_mode & S_IFMT : 0
            if kind == S_IFREG || kind == S_IFLNK, git.inIndex(path) != nil {
                forget(path)
                try evaluate(path)
            } else if kind == S_IFREG || kind == S_IFLNK, isUntracked(path) {
                forget(path)
                try evaluateUntracked(path)
            } else {
                trees.append(path)
            }
        }
        if trees.contains(where: \.isEmpty) { return false }
        if !trees.isEmpty {
            for path in trees { forget(path) }
            var listing = try git.list(trees, untracked: command.path == nil)
            if command.path != nil { listing.untracked = Set(try CLIListing.untracked(command, tree.root, trees)) }
            for path in listing.tracked.union(trees) { try evaluate(path) }
            for path in listing.untracked { try evaluateUntracked(path) }
            if untrackedCount > GitWatchLimits.untrackedFiles { return false }
        }
        return !pieces.isIncomplete
    }

    /// Whether the path is known as an untracked file and as nothing else.
    private func isUntracked(_ path: GitPath) -> Bool {
        pieces.contains(Key(isUntracked: true, path: path)) && !pieces.contains(Key(isUntracked: false, path: path))
    }

    func snapshot() throws -> RepositorySnapshot {
        let diff: [UInt8]
        switch pieces.text() {
        case .whole(let text): diff = text + (untrackedLeftOut > 0 ? DiffText.leftOut(untrackedLeftOut) : [])
        case .tooLong(let size): diff = DiffText.totalTooLong(size)
        case .incomplete: throw ScanError(.transient, "the diff of \(tree.root) has to be made again")
        }
        return RepositorySnapshot(
            branch: try Discovery.branch(tree), origin: Discovery.withoutCredentials(git.origin), diff: diff,
            layout: layoutDigest)
    }

    // MARK: Directories

    /// What to watch, at and below the given directories (all when empty).
    func targets(below requested: [GitPath], limit: Int) throws -> [WatchTarget] {
        let tops = WatchListing.existing(requested, tree.root)
        if tops.isEmpty, !requested.isEmpty { return [] }
        // libgit2 gets negated rules of nested ignore files wrong.
        let ignored =
            command.path == nil ? nil : try CLIListing.ignoredDirectories(command, tree.root, below: tops)
        let found = try WatchListing(tree: tree).targets(below: tops, layout, limit: limit) {
            try ignored?.contains($0) ?? git.isIgnored($0, directory: true)
        }
        return found + GitDirectories.of(tree).map(WatchTarget.git)
    }

    // MARK: One path

    /// Drops what is known of a path and of everything below it.
    private func forget(_ path: GitPath) {
        for key in pieces.keys.filter({ $0.path.isAtOrBelow(path) }) { drop(key) }
    }

    private func drop(_ key: Key) {
        if key.isUntracked, pieces.contains(key) { untrackedCount -= 1 }
        pieces.remove(key)
    }

    private func evaluate(_ path: GitPath) throws {
        let committed = try git.inHead(path)
        let indexed = git.inIndex(path)
        guard let indexed else {
            if let committed {
                let diff = try render(path, old: committed, new: nil, attributes: attributes(path, committed.mode))
                if let diff { pieces.insert(diff, at: Key(isUntracked: false, path: path)) }
            }
            return
        }
        let file = try workTreeFile(path)
        if file == nil, committed == nil { return }
        let attributes = try attributes(path, file.map { UInt32($0.st_mode) } ?? indexed.mode)
        var new: DiffText.Side?
        if let file {
            new = try read(path, file, attributes, indexed: indexed, committed: committed)
            if new == nil { return }
        }
        let diff = try render(path, old: committed, new: new, attributes: attributes)
        if let diff { pieces.insert(diff, at: Key(isUntracked: false, path: path)) }
    }

    private func evaluateUntracked(_ path: GitPath) throws {
        guard let file = try workTreeFile(path) else { return }
        let attributes = try attributes(path, UInt32(file.st_mode))
        guard let new = try read(path, file, attributes, indexed: nil, committed: nil) else { return }
        let key = Key(isUntracked: true, path: path)
        drop(key)
        guard let diff = try render(path, old: nil, new: new, attributes: attributes) else { return }
        pieces.insert(diff, at: key)
        untrackedCount += 1
    }

    /// Links have no attributes that count.
    private func attributes(_ path: GitPath, _ mode: UInt32) throws -> LibgitHandle.Attributes {
        mode & 0o170000 == 0o120000 ? LibgitHandle.Attributes() : try git.attributes(path)
    }

    private func render(
        _ path: GitPath, old: LibgitHandle.Entry?, new: DiffText.Side?, attributes: LibgitHandle.Attributes
    ) throws -> FileDiff? {
        var before: DiffText.Side?
        if let old {
            let id = Libgit.hex(old.id)
            let size = id == new?.id ? 0 : try git.size(old.id)
            let content: DiffText.Side.Content =
                size > GitWatchLimits.fileBytes
                ? .tooLarge(size) : .bytes(id == new?.id ? [] : try git.content(old.id))
            before = DiffText.Side(mode: old.mode, id: id, content: content)
        }
        return try DiffText.file(path, old: before, new: new, kind: attributes.kind) { old, new, out in
            try git.hunks(old, new, &out)
        }
    }

    /// The file or link at a path; nil when git takes it for missing.
    private func workTreeFile(_ path: GitPath) throws -> stat? {
        for parent in path.parents where try !isRealDirectory(parent) { return nil }
        var info = stat()
        guard lstat(path.below(tree.root), &info) == 0 else { return nil }
        let kind = info.st_mode & S_IFMT
        return kind == S_IFREG || kind == S_IFLNK ? info : nil
    }

    private func isRealDirectory(_ path: GitPath) throws -> Bool {
        if let known = looked[path] { return known }
        var info = stat()
        let real = lstat(path.below(tree.root), &info) == 0 && info.st_mode & S_IFMT == S_IFDIR
        if looked.count > 100_000 { looked = [:] }
        looked[path] = real
        return real
    }

    /// The new side; nil when the file went away, or is large and unchanged.
    private func read(
        _ path: GitPath, _ info: stat, _ attributes: LibgitHandle.Attributes, indexed: LibgitHandle.Entry?,
        committed: LibgitHandle.Entry?
    ) throws -> DiffText.Side? {
        let mode = git.mode(of: info, indexed: indexed)
        if info.st_mode & S_IFMT == S_IFLNK {
            guard let target = WorkTreeFile.link(path.below(tree.root)) else { return nil }
            return DiffText.Side(mode: mode, id: try git.hash(target), content: .bytes(target))
        }
        if info.st_size > GitWatchLimits.fileBytes {
            return try large(path, info, mode, attributes, indexed: indexed, committed: committed)
        }
        guard let raw = WorkTreeFile.content(path.below(tree.root), limit: GitWatchLimits.fileBytes) else { return nil }
        guard case .bytes(let bytes) = raw else {
            return DiffText.Side(mode: mode, id: nil, content: raw)
        }
        let stored = try LineEndings.normalized(bytes, attributes.endings) {
            guard let indexed, try git.size(indexed.id) <= GitWatchLimits.fileBytes * 2 else { return nil }
            return try git.content(indexed.id)
        }
        return DiffText.Side(mode: mode, id: try git.hash(stored), content: .bytes(stored))
    }

    /// A large file is not read. Whether it changed shows in its size or, where that is equal, in what the
    /// index knows of it: a file that was only touched is read in pieces.
    private func large(
        _ path: GitPath, _ info: stat, _ mode: UInt32, _ attributes: LibgitHandle.Attributes,
        indexed: LibgitHandle.Entry?, committed: LibgitHandle.Entry?
    ) throws -> DiffText.Side? {
        let size = Int(info.st_size)
        var id: String?
        if let committed, committed.mode & 0o170000 == 0o100000 {
            if let entry = git.indexEntry(path), let indexed, indexed.id.id == committed.id.id,
                Int64(entry.mtime.seconds) == Int64(info.st_mtim.tv_sec),
                Int(entry.mtime.nanoseconds) == info.st_mtim.tv_nsec,
                entry.file_size == UInt32(truncatingIfNeeded: size),
                Int64(entry.ctime.seconds) == Int64(info.st_ctim.tv_sec)
            {
                id = Libgit.hex(committed.id)
            } else {
                let stored = try git.size(committed.id)
                if attributes.endings != .binary || stored == size {
                    throw ScanError(.needsCLI, "a large file that may be unchanged")
                }
            }
        }
        return DiffText.Side(mode: mode, id: id, content: .tooLarge(size))
    }
}

private func == (
    a: (
        UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8,
        UInt8, UInt8, UInt8, UInt8
    ),
    b: (
        UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8, UInt8,
        UInt8, UInt8, UInt8, UInt8
    )
) -> Bool {
    withUnsafeBytes(of: a) { a in withUnsafeBytes(of: b) { a.elementsEqual($0) } }
}
