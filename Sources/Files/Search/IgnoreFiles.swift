import AgentCore
import CPlatform
import Glibc

/// Finds the rule files of a tree: `.gitignore`, the repository's `info/exclude`, the user's own.
struct IgnoreFiles: Sendable {
    /// The user's file for all repositories (gitignore(5): the default of core.excludesFile).
    let userFile: String?

    /// O_PATH, which Swift does not know: a directory as the base of other calls, which needs no permission to read it.
    private static let asBase: CInt = 0o10_000_000

    /// - Parameter environment: looks a variable up.
    init(environment: (String) -> String?) {
        if let base = environment("XDG_CONFIG_HOME"), !base.isEmpty {
            userFile = LexicalPath.join(base, "git/ignore")
        } else {
            userFile = environment("HOME").map { LexicalPath.join($0, ".config/git/ignore") }
        }
    }

    init() {
        self.init { name in getenv(name).map { String(cString: $0) } }
    }

    /// The rules that hold in an open directory.
    /// - Parameters:
    ///   - path: of the directory, from where the outer rules count, with a slash at its end.
    ///   - outer: those of the directories above. They end where a repository begins.
    func rules(in number: CInt, path: [UInt8], outer: IgnoreRules?) -> IgnoreRules? {
        var rules = outer
        var info = stat()
        if fstatat(number, ".git", &info, AT_SYMLINK_NOFOLLOW) == 0 {
            rules = repositoryRules(number, isDirectory: info.st_mode & S_IFMT == S_IFDIR, base: path.count)
        }
        guard let text = Self.read(number, ".gitignore", followsLinks: false) else { return rules }
        return IgnoreRules(text, base: path.count, outer: rules)
    }

    /// The rules of the directories above a root, up to the one of its repository.
    /// - Parameter real: the root's path without links.
    /// - Returns: the rules, and the root's path from the repository on, with a slash at its end.
    func rules(above real: [UInt8]) -> (rules: IgnoreRules?, prefix: [UInt8]) {
        let elements = real.split(separator: UInt8(ascii: "/"))
        var info = stat()
        func open(_ count: Int) -> CInt {
            let path = [UInt8(ascii: "/")] + elements[..<count].joined(separator: [UInt8(ascii: "/")]) + [0]
            return path.withUnsafeBytes { path in
                path.baseAddress.map { wa_open($0.assumingMemoryBound(to: CChar.self), Self.asBase | O_DIRECTORY, 0) }
                    ?? -EINVAL
            }
        }
        func isRepository(_ count: Int) -> Bool {
            let directory = OwnedDescriptor(open(count))
            return directory.number >= 0 && fstatat(directory.number, ".git", &info, AT_SYMLINK_NOFOLLOW) == 0
        }
        // A repository's own root finds its rules when it is entered.
        guard !isRepository(elements.count),
            let top = (0..<elements.count).last(where: isRepository)
        else { return (nil, []) }
        var (rules, prefix): (IgnoreRules?, [UInt8]) = (nil, [])
        for count in top..<elements.count {
            let directory = OwnedDescriptor(open(count))
            if directory.number >= 0 { rules = self.rules(in: directory.number, path: prefix, outer: rules) }
            prefix += elements[count] + [UInt8(ascii: "/")]
        }
        return (rules, prefix)
    }

    private func repositoryRules(_ number: CInt, isDirectory: Bool, base: Int) -> IgnoreRules? {
        var rules: IgnoreRules?
        if let userFile, let text = Self.read(AT_FDCWD, userFile, followsLinks: true) {
            rules = IgnoreRules(text, base: base, outer: nil)
        }
        let text: [UInt8]?
        if isDirectory {
            text = Self.read(number, ".git/info/exclude", followsLinks: true)
        } else {
            text = exclude(ofWorktree: number)
        }
        return text.map { IgnoreRules($0, base: base, outer: rules) } ?? rules
    }

    /// In a linked working tree `.git` is a file that names a directory, which names the repository in another file.
    private func exclude(ofWorktree number: CInt) -> [UInt8]? {
        guard let file = Self.read(number, ".git", followsLinks: false), file.starts(with: "gitdir: ".utf8),
            let directory = Self.line(file.dropFirst(8))
        else { return nil }
        let commons = OwnedDescriptor(directory.withUnsafeBufferPointer { Self.open(number, $0) })
        guard commons.number >= 0 else { return nil }
        guard let file = Self.read(commons.number, "commondir", followsLinks: false), let name = Self.line(file[...])
        else { return Self.read(commons.number, "info/exclude", followsLinks: true) }
        let common = OwnedDescriptor(name.withUnsafeBufferPointer { Self.open(commons.number, $0) })
        return common.number < 0 ? nil : Self.read(common.number, "info/exclude", followsLinks: true)
    }

    /// The path in a file of one line, for a system call.
    private static func line(_ text: ArraySlice<UInt8>) -> [CChar]? {
        let line = text.prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") }
        return line.isEmpty || line.contains(0) ? nil : line.map { CChar(bitPattern: $0) } + [0]
    }

    private static func open(_ number: CInt, _ path: UnsafeBufferPointer<CChar>) -> CInt {
        path.baseAddress.map { wa_openat(number, $0, Self.asBase | O_DIRECTORY, 0) } ?? -EINVAL
    }

    /// The content of a regular file that is not too large; nothing else is opened.
    private static func read(_ number: CInt, _ name: UnsafePointer<CChar>, followsLinks: Bool) -> [UInt8]? {
        var info = stat()
        guard fstatat(number, name, &info, followsLinks ? 0 : AT_SYMLINK_NOFOLLOW) == 0,
            info.st_mode & S_IFMT == S_IFREG, info.st_size <= FilesLimits.ignoreFileBytes
        else { return nil }
        let flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | (followsLinks ? 0 : O_NOFOLLOW)
        let file = OwnedDescriptor(wa_openat(number, name, flags, 0))
        guard file.number >= 0 else { return nil }
        let limit = FilesLimits.ignoreFileBytes
        let text = [UInt8](unsafeUninitializedCapacity: Int(info.st_size) + 1) { area, count in
            while count < area.count {
                let got = wa_read(file.number, area.baseAddress.map { $0 + count }, area.count - count)
                guard got > 0 else { break }
                count += got
            }
        }
        return text.count > limit ? nil : text
    }
}
