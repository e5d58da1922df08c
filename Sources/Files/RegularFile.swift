import AgentCore
import CPlatform
import Glibc

/// An open regular file and what it was like when it was opened. Closed when nothing uses it any more.
final class RegularFile: Sendable {
    private let file: OwnedDescriptor
    let info: stat

    /// Opens a file without waiting for what only looks like one: a FIFO without a writer, a terminal, a device.
    /// - Parameters:
    ///   - path: as the client wrote it; links are followed.
    ///   - flags: access mode; nothing is created or truncated.
    /// - Throws: ``FilesError``: `open P: not a file` for a directory, `open P: not a regular file` for the rest.
    init(_ path: String, _ flags: CInt = O_RDONLY) throws(FilesError) {
        var info = stat()
        var result = withPath(path) { stat($0, &info) }
        guard result == 0 else { throw FilesError.system(result, "open", path) }
        // A device may act when it is opened, so it is not.
        try Self.require(info, path)
        result = withPath(path) { wa_open($0, flags | O_NONBLOCK | O_NOCTTY, 0) }
        guard result >= 0 else { throw FilesError.system(result, "open", path) }
        file = OwnedDescriptor(result)
        guard fstat(result, &info) == 0 else { throw FilesError.system(errno, "open", path) }
        try Self.require(info, path)
        self.info = info
    }

    var number: CInt { file.number }

    private static func require(_ info: stat, _ path: String) throws(FilesError) {
        switch info.st_mode & S_IFMT {
        case S_IFREG: break
        case S_IFDIR: throw FilesError(.invalid, "open \(path): not a file")
        default: throw FilesError(.invalid, "open \(path): not a regular file")
        }
    }
}
