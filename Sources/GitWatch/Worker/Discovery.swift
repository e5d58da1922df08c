import AgentCore
import Glibc

/// Where a work tree and its git directories are.
struct WorkTree: Equatable {
    /// Symbolic links resolved, no trailing slash.
    var root: String
    /// Of this work tree: HEAD, index.
    var gitDirectory: String
    /// Shared by linked work trees: config, refs, objects.
    var commonDirectory: String
    /// Device and inode of `.git` and of the git directory: another pair is another repository.
    var identity: [UInt64]
}

enum Discovery {
    /// The root of the repository that a path, existing or not, lies in; nil in none and in a bare one.
    static func root(of path: String) -> String? {
        guard path.hasPrefix("/"), path.utf8.count <= GitWatchLimits.pathBytes else { return nil }
        var directory = path
        while true {
            if let real = realPath(directory) {
                directory = real
                break
            }
            guard let up = parent(of: directory) else { return nil }
            directory = up
        }
        if !isDirectory(directory) {
            guard let up = parent(of: directory) else { return nil }
            directory = up
        }
        while true {
            if workTree(at: directory) != nil { return directory }
            // Inside a bare repository, or in the .git of a work tree.
            if isGitDirectory(directory), !directory.hasSuffix("/.git") { return nil }
            guard let up = parent(of: directory) else { return nil }
            directory = up
        }
    }

    /// The work tree whose root this is; nil where there is none, or none that is whole.
    static func workTree(at root: String) -> WorkTree? {
        guard let git = gitDirectory(at: root), let resolved = realPath(git), isGitDirectory(resolved) else {
            return nil
        }
        var common = resolved
        var own = stat()
        if lstat("\(resolved)/commondir", &own) == 0 {
            guard let text = smallFile("\(resolved)/commondir") else { return nil }
            let target = trimmed(text[...])
            guard let path = realPath(target.hasPrefix("/") ? target : "\(resolved)/\(target)") else { return nil }
            common = path
        }
        var info = stat()
        guard lstat(dotGit(root), &info) == 0, stat(resolved, &own) == 0 else { return nil }
        return WorkTree(
            root: root, gitDirectory: resolved, commonDirectory: common,
            identity: [UInt64(info.st_dev), UInt64(info.st_ino), UInt64(own.st_dev), UInt64(own.st_ino)])
    }

    /// The work tree of a known root, fit to be scanned: git, which looks further up where it does not like
    /// what it finds, would take it for the same one, and nothing that it reads would hold it.
    /// - Throws: ``ScanError``: `.gone` when the root or its git directory is no more; `.transient` when what is
    ///   there is no whole repository, which the user may be repairing; `.failed` for a file of git's that is
    ///   something else.
    static func scannable(_ root: String) throws(ScanError) -> WorkTree {
        guard let git = gitDirectory(at: root) else {
            var info = stat()
            if lstat(dotGit(root), &info) == 0 { throw ScanError(.transient, "\(dotGit(root)) says nothing") }
            guard errno == ENOENT || errno == ENOTDIR else {
                throw ScanError(.transient, "\(dotGit(root)): \(errnoText(errno))")
            }
            throw ScanError(.gone, "\(root) is not a repository any more")
        }
        var info = stat()
        if stat(git, &info) != 0, errno == ENOENT || errno == ENOTDIR {
            throw ScanError(.gone, "the git directory \(git) of \(root) is gone")
        }
        try GitFiles.check(GitFiles.own.map { "\(git)/\($0)" })
        guard let tree = workTree(at: root) else {
            throw ScanError(.transient, "\(git) is not a whole git directory at the moment")
        }
        let branch = try branch(tree)
        try GitFiles.check(GitFiles.all(tree, branch: branch))
        return tree
    }

    private static func dotGit(_ root: String) -> String { root == "/" ? "/.git" : "\(root)/.git" }

    /// Where `.git` leads, whether or not that exists; nil when there is none, or a file that does not say.
    private static func gitDirectory(at root: String) -> String? {
        let dot = dotGit(root)
        var info = stat()
        guard lstat(dot, &info) == 0 else { return nil }
        guard info.st_mode & S_IFMT == S_IFREG else { return dot }
        guard let text = smallFile(dot), text.hasPrefix("gitdir:") else { return nil }
        let target = trimmed(text.dropFirst(7))
        return target.hasPrefix("/") ? target : "\(root)/\(target)"
    }

    /// Whether everything that git asks about (work tree, `.git`, git directory) belongs to us.
    static func isOwn(_ tree: WorkTree) -> Bool {
        [tree.root, dotGit(tree.root), tree.gitDirectory].allSatisfy { path in
            var info = stat()
            return lstat(path, &info) == 0 && info.st_uid == geteuid()
        }
    }

    /// The branch that HEAD names, "" when it names a commit.
    /// - Throws: `.transient` when there is no HEAD at the moment, or one that git would not take.
    static func branch(_ tree: WorkTree) throws(ScanError) -> String {
        guard let head = smallFile("\(tree.gitDirectory)/HEAD") else {
            throw ScanError(.transient, "\(tree.gitDirectory) has no HEAD at the moment")
        }
        let malformed = ScanError(.transient, "\(tree.gitDirectory)/HEAD names neither a branch nor a commit")
        guard head.hasPrefix("ref:") else {
            // The shorter of git's hashes; what follows is no matter to git either.
            guard head.utf8.prefix(40).count(where: { Character(Unicode.Scalar($0)).isHexDigit }) == 40 else {
                throw malformed
            }
            return ""
        }
        let name = trimmed(head.dropFirst(4))
        guard name.hasPrefix("refs/"), !name.hasSuffix("/"), !name.contains(".."),
            name.unicodeScalars.allSatisfy({
                $0.value > 32 && $0.value != 127 && !"~^:?*[\\".unicodeScalars.contains($0)
            })
        else { throw malformed }
        return name.hasPrefix("refs/heads/") ? String(name.dropFirst(11)) : name
    }

    /// The ref that a file of git's, such as HEAD, names; nil when it names none below refs/.
    static func symbolicRef(_ file: String) -> String? {
        guard let text = smallFile(file), text.hasPrefix("ref:") else { return nil }
        let name = trimmed(text.dropFirst(4))
        return name.hasPrefix("refs/") && !name.contains("..") ? name : nil
    }

    /// Whether HEAD surely names a commit; packed and other refs are not looked for.
    static func isBorn(_ tree: WorkTree) -> Bool {
        guard let branch = try? branch(tree) else { return false }
        return branch.isEmpty || access("\(tree.commonDirectory)/refs/heads/\(branch)", F_OK) == 0
            || access("\(tree.commonDirectory)/packed-refs", F_OK) == 0
    }

    /// Cuts user and password out of a remote's URL.
    static func withoutCredentials(_ url: String) -> String {
        guard let scheme = url.range(of: "://") else { return url }
        let rest = url[scheme.upperBound...]
        let authority = rest.prefix { $0 != "/" && $0 != "?" && $0 != "#" }
        guard let at = authority.lastIndex(of: "@") else { return url }
        // A user alone is the address of an ssh remote rather than a secret.
        let user = authority[..<at]
        let kept = ["ssh", "git+ssh", "ssh+git"].contains(url[..<scheme.lowerBound].lowercased())
        let name = kept ? String(user.prefix { $0 != ":" }) + "@" : ""
        return url[..<scheme.upperBound] + name + rest[rest.index(after: at)...]
    }

    static func isDirectory(_ path: String) -> Bool {
        var info = stat()
        return stat(path, &info) == 0 && info.st_mode & S_IFMT == S_IFDIR
    }

    private static func isGitDirectory(_ path: String) -> Bool {
        var info = stat()
        guard lstat("\(path)/HEAD", &info) == 0 else { return false }
        if stat("\(path)/commondir", &info) == 0 { return true }
        return isDirectory("\(path)/objects") && isDirectory("\(path)/refs")
    }

    private static func parent(of path: String) -> String? {
        guard path != "/", let slash = path.lastIndex(of: "/") else { return nil }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// nil for what does not exist, and for what is no UTF-8 (JSON could not name it).
    static func realPath(_ path: String) -> String? {
        guard let resolved = realpath(path, nil) else { return nil }
        defer { free(resolved) }
        return String(validatingCString: resolved)
    }

    /// The text of a regular file, or a link to one, of at most 64 KiB. What another user may have put in its place
    /// is neither followed by a read nor waited for.
    static func smallFile(_ path: String) -> String? {
        guard case .bytes(let bytes)? = WorkTreeFile.content(path.utf8CString.map { $0 }, limit: 65_536, follow: true)
        else { return nil }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func trimmed(_ text: Substring) -> String {
        var text = text
        while let last = text.unicodeScalars.last, last.value <= 32 { text = text.dropLast() }
        return String(text.drop { $0 == " " || $0 == "\t" })
    }
}

extension String {
    fileprivate func range(of needle: String) -> Range<String.Index>? {
        var start = startIndex
        while start < endIndex {
            if self[start...].hasPrefix(needle) {
                return start..<index(start, offsetBy: needle.count)
            }
            start = index(after: start)
        }
        return nil
    }
}
