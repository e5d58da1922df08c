import AgentCore
import Glibc
import Logging
import Synchronization

/// The names of the temporary files that exist at this moment, on disk, so that the next start of the daemon removes
/// those that a killed one left behind.
///
/// A file of slots: a path ended by NUL, or nothing. The kernel has the bytes as soon as they are written, so they
/// outlive this process; after a crash of the machine what was written last may be missing.
public final class TemporaryFiles: Sendable {
    /// Bytes of a slot: the longest path and its end.
    static let slotBytes = Int(PATH_MAX) + 256
    /// What every name of a temporary file has between dots.
    static let mark = ".tmp."

    private struct State {
        var used: Set<Int> = []
        var firstFree = 0
    }

    private let descriptor: CInt
    private let state = Mutex(State())

    /// Removes what an earlier daemon left, and begins anew. Blocks on the disk.
    /// - Parameter directory: the state directory; nil, or one that cannot be written, keeps no record.
    public init(directory: String?, logger: Logger) {
        guard let directory else {
            descriptor = -1
            return
        }
        let path = "\(directory)/temporary-files"
        do {
            let left = OwnFile.isFree(path) ? Self.recorded((try? OwnFile.read(path, limit: 64 << 20)) ?? []) : []
            for file in left where Self.remove(file) {
                logger.notice("removed a temporary file of an earlier run", metadata: ["path": "\(file)"])
            }
            descriptor = try OwnFile.open(path, O_RDWR | O_CREAT)
            ftruncate(descriptor, 0)
        } catch {
            logger.warning(
                "temporary files are not recorded; a kill may leave some behind", metadata: ["error": "\(error)"])
            descriptor = -1
        }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Records a path before its file is made.
    /// - Returns: what ``forget(_:)`` takes.
    func record(_ path: String) -> Int {
        let slot = state.withLock { state in
            while state.used.contains(state.firstFree) { state.firstFree += 1 }
            state.used.insert(state.firstFree)
            return state.firstFree
        }
        write(PathText.bytes(path).prefix(Self.slotBytes - 1) + [0], slot)
        return slot
    }

    /// The file is gone, or has its name.
    func forget(_ slot: Int) {
        write([0], slot)
        state.withLock { state in
            state.used.remove(slot)
            state.firstFree = min(state.firstFree, slot)
        }
    }

    private func write(_ bytes: some Collection<UInt8>, _ slot: Int) {
        guard descriptor >= 0 else { return }
        let bytes = Array(bytes)
        // Should it fail, a kill leaves a file behind; the write itself need not.
        _ = pwrite(descriptor, bytes, bytes.count, slot * Self.slotBytes)
    }

    static func recorded(_ bytes: [UInt8]) -> [String] {
        stride(from: 0, to: bytes.count, by: slotBytes).compactMap { start in
            let path = bytes[start...].prefix(slotBytes).prefix { $0 != 0 }
            return path.first == UInt8(ascii: "/") ? PathText.text(path) : nil
        }
    }

    /// Removes a file of ours that has a temporary name; anything else stays.
    private static func remove(_ path: String) -> Bool {
        let name = LexicalPath.name(path)
        guard name.utf8.first == UInt8(ascii: "."), name.contains(mark) else { return false }
        var info = stat()
        guard withPath(path, { lstat($0, &info) }) == 0, info.st_mode & S_IFMT == S_IFREG, info.st_nlink == 1 else {
            return false
        }
        return withPath(path) { unlink($0) } == 0
    }
}
