import Glibc

/// The directories that tracked files lie in, and the submodules, of an index whose paths are added in its order.
struct IndexLayout {
    private(set) var directories: Set<GitPath> = [[]]
    /// Submodules, whether or not they are checked out.
    private(set) var links: Set<GitPath> = []
    private var last: GitPath = []

    mutating func add(_ path: some RandomAccessCollection<UInt8>, isLink: Bool) {
        if isLink {
            links.insert(Array(path))
            return add(Array(path) + [UInt8(ascii: "/")], isLink: false)
        }
        let directory = path.lastIndex(of: UInt8(ascii: "/")).map { path[..<$0] } ?? path.prefix(0)
        if directory.elementsEqual(last) { return }
        last = Array(directory)
        var next = last
        // Those above one that is known are known.
        while directories.insert(next).inserted {
            guard let slash = next.lastIndex(of: UInt8(ascii: "/")) else { return }
            next.removeSubrange(slash...)
        }
    }

    /// Equal for equal layouts with the same refs of HEAD, as long as the process runs.
    func digest(_ refs: [String]) -> UInt32 {
        var hasher = Hasher()
        hasher.combine(directories)
        hasher.combine(links)
        hasher.combine(refs)
        return UInt32(truncatingIfNeeded: hasher.finalize())
    }
}

/// Finds what to watch of a work tree: every directory in which git would report a change. Those are the ones that
/// are not ignored and, ignored or not, the ones that hold tracked files.
struct WatchListing {
    let tree: WorkTree
    /// Where the tree lies in the work tree of the repository that is watched; empty unless it is a submodule's.
    var prefix: GitPath = []

    /// All directories below the given ones (all of the work tree when empty), themselves included, without those
    /// in submodules. Stops one past the limit.
    func targets(
        below tops: [GitPath], _ layout: IndexLayout, limit: Int, isIgnored: (GitPath) throws -> Bool
    ) throws -> [WatchTarget] {
        var found: [WatchTarget] = []
        var waiting: [GitPath] = tops.isEmpty ? [[]] : tops
        while let directory = waiting.popLast(), found.count <= limit {
            let isTracked = layout.directories.contains(directory)
            if !directory.isEmpty {
                guard Self.isDirectory(directory, tree.root), !Self.isGits(directory),
                    try isTracked || !isIgnored(directory)
                else { continue }
                let isLink = layout.links.contains(directory)
                if isLink || !isTracked, isRepository(directory) {
                    // git does not look for untracked files in another repository.
                    if !isLink { found.append(.inner(outer(directory))) }
                    continue
                }
            }
            guard let stream = opendir(directory.below(tree.root)) else { continue }
            defer { closedir(stream) }
            found.append(.tree(outer(directory)))
            while let entry = readdir(stream) {
                let type = entry.pointee.d_type
                guard type == UInt8(DT_DIR) || type == UInt8(DT_UNKNOWN) else { continue }
                let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
                if name == [46] || name == [46, 46] { continue }
                waiting.append(directory.isEmpty ? name : directory + [UInt8(ascii: "/")] + name)
            }
        }
        return found
    }

    /// Those of the paths that are directories of the work tree, and not of a git directory in it.
    static func existing(_ paths: [GitPath], _ root: String) -> [GitPath] {
        paths.filter { path in
            !isGits(path) && (path.parents + [path]).allSatisfy { isDirectory($0, root) }
        }
    }

    /// As the repository that is watched names it.
    private func outer(_ directory: GitPath) -> GitPath {
        prefix.isEmpty || directory.isEmpty ? prefix + directory : prefix + [UInt8(ascii: "/")] + directory
    }

    private static func isDirectory(_ path: GitPath, _ root: String) -> Bool {
        var info = stat()
        return lstat(path.below(root), &info) == 0 && info.st_mode & S_IFMT == S_IFDIR
    }

    private static func isGits(_ path: GitPath) -> Bool {
        path.split(separator: UInt8(ascii: "/")).contains { $0.elementsEqual(".git".utf8) }
    }

    /// Whether git takes the directory for a repository; a `.git` alone does not make it one.
    private func isRepository(_ path: GitPath) -> Bool {
        var info = stat()
        guard lstat((path + Array("/.git".utf8)).below(tree.root), &info) == 0 else { return false }
        // What has a name that is not UTF-8 is taken for one: it is not looked into.
        guard let name = String(validating: path, as: UTF8.self) else { return true }
        guard let inner = Discovery.workTree(at: "\(tree.root)/\(name)") else { return false }
        return (try? Discovery.branch(inner)) != nil
    }
}
