import AgentCore
import CPlatform
import Glibc

/// Writes the secrets that are to be files (docs/contracts/control-plane.md#manifest).
///
/// A file is written beside its place under a name of our own (`O_EXCL | O_NOFOLLOW`, 0600 from the
/// first moment), flushed to disk and renamed. So a reader sees the old or the new secret and never
/// half of one; and a symbolic link at the place is replaced, not followed: neither a link that another user
/// planted nor one into a repository of dotfiles takes the secret elsewhere. Links among the parents are
/// followed, since a home often is behind one; a user who may plant those may also read the file.
package struct SecretFiles: Sendable {
    private let home: String

    /// - Parameter home: absolute; what `~` means and relative paths are under.
    package init(home: String) { self.home = home }

    /// Writes all that have a path; blocks. One that fails does not keep the others from being written.
    /// - Returns: a warning for each failure, naming the path and never the value.
    package func write(_ secrets: [WorkspaceSecretValue]) -> [String] {
        secrets.filter { !$0.filePath.isEmpty }.compactMap { secret in
            let path = WorkspacePath.expandHome(secret.filePath, home: home, base: home)
            do {
                try write(secret.value, to: path)
                return nil
            } catch {
                return "cannot write the secret file \(path): \(error)"
            }
        }
    }

    private func write(_ value: Secret<[UInt8]>, to path: String) throws {
        guard !path.utf8.contains(0), let slash = path.lastIndex(of: "/"), path.index(after: slash) < path.endIndex
        else { throw CoreError(.invalid, "it names no file") }
        let directory = slash == path.startIndex ? "/" : String(path[..<slash])
        do {
            try createDirectories(directory, mode: 0o700)
        } catch {
            throw CoreError(.invalid, "no directory for it", cause: error)
        }
        var existing = stat()
        if stat(path, &existing) == 0, existing.st_mode & S_IFMT == S_IFDIR {
            throw CoreError(.pathOccupied, "it is a directory")
        }
        // The mode is that of a file of ours: a link's would be its target's, and another user's file may be
        // readable by all.
        let isOurs =
            lstat(path, &existing) == 0 && existing.st_mode & S_IFMT == S_IFREG && existing.st_uid == geteuid()
        let mode = isOurs ? existing.st_mode & 0o777 : 0o600

        let temporary = "\(directory)/.workspace-agent-\(UInt64.random(in: 0 ... .max)).tmp"
        let descriptor = wa_open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw CoreError.system(descriptor, "cannot create a file beside it") }
        do {
            defer { close(descriptor) }
            let failure = value.reveal().withUnsafeBytes { writeAll($0, to: descriptor) }
            guard failure == 0 else { throw CoreError.system(failure, "cannot write it") }
            guard fchmod(descriptor, mode) == 0 else { throw CoreError.system(errno, "cannot set its mode") }
            guard fsync(descriptor) == 0 else { throw CoreError.system(errno, "cannot flush it to disk") }
        } catch {
            unlink(temporary)
            throw error
        }
        guard rename(temporary, path) == 0 else {
            let error = CoreError.system(errno, "cannot move it into place")
            unlink(temporary)
            throw error
        }
    }
}
