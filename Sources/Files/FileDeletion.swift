import AgentCore
import CPlatform
import Glibc
import Synchronization

/// Removes a file, a link or a tree, without following links: directories are entered by their open descriptors, so
/// that one that is swapped for a link meanwhile leads nowhere. Blocks on the disk; one thread at a time.
final class FileDeletion: Sendable {
    /// Entries removed in one piece of work.
    private static let pieceEntries = 1_000
    /// Nesting of directories; each level is an open descriptor.
    static let maximumDepth = 256

    private struct Level {
        var stream: DirectoryStream
        var name: [UInt8]
    }

    private struct State {
        var levels: [Level] = []
        var isOver = false
    }

    private let path: String
    private let state: Mutex<State>

    /// - Parameters:
    ///   - path: absolute and clean.
    ///   - home: of the user; it, what it lies in and "/" are never removed.
    /// - Throws: ``FilesError``.
    init(_ path: String, home: String, isRecursive: Bool) throws(FilesError) {
        self.path = path
        state = Mutex(State())
        let real = try PathResolution.resolveEntry(path)
        let realHome = (try? PathResolution.resolve(home)) ?? home
        for kept in [home, realHome] where LexicalPath.isWithin(LexicalPath.clean(kept), real) {
            throw FilesError(.invalid, "remove \(path): it is, or contains, the home directory \(kept)")
        }
        guard real != "/" else { throw FilesError(.invalid, "remove /: the root cannot be removed") }
        var info = stat()
        var result = withPath(path) { lstat($0, &info) }
        guard result == 0 else { throw FilesError.system(result, "remove", path) }
        let isDirectory = info.st_mode & S_IFMT == S_IFDIR
        if !isDirectory || !isRecursive {
            result = withPath(path) { isDirectory ? rmdir($0) : unlink($0) }
            if result == -ENOTEMPTY || result == -EEXIST {
                throw FilesError(.conflict, "remove \(path): the directory is not empty; set recursive to remove it")
            }
            guard result == 0 else { throw FilesError.system(result, "remove", path) }
            state.withLock { $0.isOver = true }
        } else {
            let descriptor = withPath(path) { wa_open($0, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0) }
            guard descriptor >= 0 else { throw FilesError.system(descriptor, "open", path) }
            try enter(descriptor, [])
        }
    }

    /// Removes some more.
    /// - Returns: whether there is more to do.
    func advance() throws(FilesError) -> Bool {
        var steps = 0
        while steps < Self.pieceEntries, !state.withLock({ $0.isOver }) {
            try step()
            steps += 1
        }
        return !state.withLock { $0.isOver }
    }

    private func step() throws(FilesError) {
        guard let level = state.withLock({ $0.levels.last }) else { return state.withLock { $0.isOver = true } }
        guard let name = try level.stream.next(path) else { return try leave() }
        let result = withName(name) { unlinkat(level.stream.descriptor, $0, 0) == 0 ? 0 : -errno }
        if result == 0 || result == -ENOENT { return }
        // Linux says EISDIR, POSIX allows EPERM.
        guard result == -EISDIR || result == -EPERM else { throw failure(result, name) }
        let child = withName(name) {
            wa_openat(level.stream.descriptor, $0, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, 0)
        }
        guard child >= 0 else { throw failure(child == -ENOTDIR ? result : child, name) }
        try enter(child, name)
    }

    private func enter(_ descriptor: CInt, _ name: [UInt8]) throws(FilesError) {
        guard state.withLock({ $0.levels.count }) < Self.maximumDepth else {
            close(descriptor)
            throw FilesError(.tooLarge, "remove \(path): directories are nested more than \(Self.maximumDepth) deep")
        }
        let level = Level(stream: try DirectoryStream(descriptor, path), name: name)
        state.withLock { $0.levels.append(level) }
    }

    /// The innermost directory is empty now.
    private func leave() throws(FilesError) {
        guard let level = state.withLock({ $0.levels.popLast() }) else { return }
        let outer = state.withLock { $0.levels.last?.stream.descriptor }
        let result =
            if let outer {
                withName(level.name) { unlinkat(outer, $0, AT_REMOVEDIR) == 0 ? 0 : -errno }
            } else {
                withPath(path) { rmdir($0) }
            }
        if outer == nil { state.withLock { $0.isOver = true } }
        guard result == 0 || result == -ENOENT else { throw failure(result, level.name) }
    }

    private func failure(_ error: CInt, _ name: [UInt8]) -> FilesError {
        let names = state.withLock { $0.levels.map(\.name) }.dropFirst() + [name]
        let below = names.filter { !$0.isEmpty }.map(PathText.text).joined(separator: "/")
        return FilesError.system(error, "remove", below.isEmpty ? path : LexicalPath.join(path, below))
    }
}
