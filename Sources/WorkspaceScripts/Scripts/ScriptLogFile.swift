import AgentCore
import Glibc

/// A script's log file (docs/contracts/control-plane.md#scripts). All calls block; one thread at a time.
///
/// A file that is large when a run begins is moved to `.1`, and one run writes no more than
/// ``ScriptLimits/scriptLogFileBytes``: a script on a schedule would fill the disk in the end.
final class ScriptLogFile {
    private let descriptor: CInt
    private let path: String
    private var room: Int
    private var failed = false

    /// - Parameter limit: bytes of one run, and of the file when it is moved away.
    init(path: String, limit: Int = ScriptLimits.scriptLogFileBytes) throws {
        self.path = path
        room = limit
        if let slash = path.lastIndex(of: "/"), slash != path.startIndex {
            try createDirectories(String(path[..<slash]), mode: 0o700)
        }
        try Self.rotate(path, limit)
        descriptor = try OwnFile.open(path, O_WRONLY | O_APPEND | O_CREAT)
    }

    /// Moves a large file away, over an older one of ours.
    private static func rotate(_ path: String, _ limit: Int) throws(CoreError) {
        var info = stat()
        guard OwnFile.isFree(path), lstat(path, &info) == 0, info.st_size >= limit else { return }
        let old = "\(path).1"
        guard OwnFile.isFree(old) else {
            throw CoreError(
                .pathOccupied,
                "\(path) is full and cannot be moved away: \(old) is not a file of this daemon; remove it")
        }
        guard rename(path, old) == 0 else { throw CoreError.system(errno, "cannot move the full \(path) to \(old)") }
    }

    deinit { close(descriptor) }

    /// Appends.
    /// - Returns: why nothing more is written from here on, the first time that is so.
    func write(_ bytes: [UInt8]) -> String? {
        if failed { return nil }
        let count = min(bytes.count, room)
        var written = 0
        while written < count {
            let step = bytes.withUnsafeBytes { area in
                Glibc.write(descriptor, area.baseAddress.map { $0 + written }, count - written)
            }
            if step < 0, errno == EINTR { continue }
            guard step > 0 else {
                failed = true
                return "\(CoreError.system(errno, "cannot write the log file \(path)"))"
            }
            written += step
        }
        room -= count
        guard count < bytes.count else { return nil }
        failed = true
        return "the log file \(path) has reached its limit for one run; the rest of the output is not in it"
    }
}
