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

    /// The work tree whose root this is.
    static func workTree(at root: String) -> WorkTree? {
        let dot = root == "/" ? "/.git" : "\(root)/.git"
        var info = stat()
        guard lstat(dot, &info) == 0 else { return nil }
        var git = dot
        if info.st_mode & S_IFMT == S_IFREG {
            guard let text = smallFile(dot), text.hasPrefix("gitdir:") else { return nil }
            let target = trimmed(text.dropFirst(7))
            git = target.hasPrefix("/") ? target : "\(root)/\(target)"
        }
        guard let resolved = realPath(git), isGitDirectory(resolved) else { return nil }
        var common = resolved
        if let text = smallFile("\(resolved)/commondir") {
            let target = trimmed(text[...])
            guard let path = realPath(target.hasPrefix("/") ? target : "\(resolved)/\(target)") else { return nil }
            common = path
        }
        var own = stat()
        guard stat(resolved, &own) == 0 else { return nil }
        return WorkTree(
            root: root, gitDirectory: resolved, commonDirectory: common,
            identity: [UInt64(info.st_dev), UInt64(info.st_ino), UInt64(own.st_dev), UInt64(own.st_ino)])
    }

    /// Whether everything that git asks about (work tree, `.git`, git directory) belongs to us.
    static func isOwn(_ tree: WorkTree) -> Bool {
        let dot = tree.root == "/" ? "/.git" : "\(tree.root)/.git"
        return [tree.root, dot, tree.gitDirectory].allSatisfy { path in
            var info = stat()
            return lstat(path, &info) == 0 && info.st_uid == geteuid()
        }
    }

    /// The branch of a git directory's HEAD, and whether HEAD is a branch at all.
    static func branch(_ tree: WorkTree) throws -> String {
        guard let head = smallFile("\(tree.gitDirectory)/HEAD") else { throw ScanError(.transient, "no HEAD") }
        guard head.hasPrefix("ref:") else { return "" }
        let name = trimmed(head.dropFirst(4))
        return name.hasPrefix("refs/heads/") ? String(name.dropFirst(11)) : name
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

    static func smallFile(_ path: String) -> String? {
        var info = stat()
        guard stat(path, &info) == 0, info.st_mode & S_IFMT == S_IFREG, info.st_size <= 65536,
            let file = fopen(path, "re")
        else { return nil }
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: Int(info.st_size) + 1)
        let count = fread(&bytes, 1, bytes.count, file)
        return String(decoding: bytes.prefix(count), as: UTF8.self)
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
