import AgentCore
import CPlatform
import Glibc

/// The files that ``KnownHosts`` come from.
struct KnownHostsFiles {
    /// Bytes of a file.
    private static let limit = 16 << 20

    /// The user's, the first of which new keys are added to.
    var user: [String]
    /// The machine's.
    var global: [String]

    init(_ arguments: SSHArguments, _ user: BuiltInSSHUser) throws(BuiltInSSHFailure) {
        self.user =
            try Self.paths(arguments.userKnownHosts, user)
            ?? [user.file("known_hosts"), user.file("known_hosts2")]
        global =
            try Self.paths(arguments.globalKnownHosts, user)
            ?? ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"]
    }

    /// `none` and /dev/null stand for no file.
    private static func paths(_ texts: [String]?, _ user: BuiltInSSHUser) throws(BuiltInSSHFailure) -> [String]? {
        guard let texts else { return nil }
        var paths: [String] = []
        for text in texts where text != "none" && text != "/dev/null" { paths.append(try user.path(text)) }
        return paths
    }

    /// Reads those that exist.
    /// - Throws: ``BuiltInSSHFailure`` for one that cannot be read: a key that it revokes must not be accepted.
    func read(_ matchesHash: @escaping KnownHosts.HashTest) throws(BuiltInSSHFailure) -> KnownHosts {
        var hosts = KnownHosts(matchesHash: matchesHash)
        for path in user + global {
            do {
                hosts.add(try OwnFile.readNamed(path, limit: Self.limit).bytes, file: path)
            } catch {
                guard [.system(ENOENT), .system(ENOTDIR)].contains(error.code) else {
                    throw BuiltInSSHFailure(
                        "cannot tell which host keys are known: \(error)",
                        "mend or remove that file, or name others with -o UserKnownHostsFile=FILE")
                }
            }
        }
        return hosts
    }

    /// Adds a line to the user's first file. Two clients may do so at once.
    /// - Throws: ``CoreError`` that says why it is not there.
    static func append(_ line: String, to path: String) throws(CoreError) {
        try makeDirectory(of: path)
        let descriptor = OwnedDescriptor(try OwnFile.open(target(of: path), O_RDWR | O_CREAT | O_APPEND))
        var last = UInt8(ascii: "\n")
        let end = lseek(descriptor.number, 0, SEEK_END)
        if end > 0 { pread(descriptor.number, &last, 1, end - 1) }
        let bytes = Array(((last == UInt8(ascii: "\n") ? "" : "\n") + line + "\n").utf8)
        let count = wa_write(descriptor.number, bytes, bytes.count)
        guard count == bytes.count else {
            throw CoreError.system(count < 0 ? Int32(count) : ENOSPC, "cannot write \(path)")
        }
    }

    private static func makeDirectory(of path: String) throws(CoreError) {
        guard let slash = path.lastIndex(of: "/"), slash != path.startIndex else { return }
        let directory = String(path[..<slash])
        guard mkdir(directory, 0o700) == 0 || errno == EEXIST else {
            throw CoreError.system(errno, "cannot create \(directory)")
        }
    }

    /// Where a link of the user's own leads to, as those who keep their dot files elsewhere have it.
    private static func target(of path: String) -> String {
        var info = stat()
        guard lstat(path, &info) == 0, info.st_mode & S_IFMT == S_IFLNK, info.st_uid == geteuid(),
            let target = realpath(path, nil)
        else { return path }
        defer { free(target) }
        return String(cString: target)
    }
}
