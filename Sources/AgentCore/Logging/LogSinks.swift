import CPlatform
import Glibc
import NIOCore
import Synchronization

/// Where finished log lines are written. Called by one thread at a time.
public protocol LogSink: Sendable {
    var format: LogSinkFormat { get }
    func write(_ lines: ByteBuffer)
}

public enum LogSinkFormat: Sendable { case human, json }

/// Writes to a descriptor or to a file that grows without rotation.
public final class StreamLogSink: LogSink {
    public let format: LogSinkFormat
    private let descriptor: CInt

    /// - Parameter path: a file; `-` and `/dev/stderr` are stderr, `/dev/stdout` is stdout.
    public init(path: String, format: LogSinkFormat) throws {
        self.format = format
        switch path {
        case "-", "/dev/stderr": descriptor = 2
        case "/dev/stdout": descriptor = 1
        default:
            // A named pipe that nothing reads is an error, not a start that never ends.
            descriptor = wa_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY, 0o600)
            guard descriptor >= 0 else { throw CoreError.system(descriptor, "cannot open log file \(path)") }
        }
    }

    deinit { if descriptor > 2 { close(descriptor) } }

    public func write(_ lines: ByteBuffer) { _ = writeAll(descriptor, lines) }
}

/// The daemon's own log file: rotated by size, old ones numbered `.1` (newest) upwards.
public final class RotatingLogSink: LogSink {
    public static let fileBytes = 5 << 20
    /// Old files beside the current one.
    public static let keptFiles = 3

    public let format = LogSinkFormat.human
    public let path: String
    private let limit: Int
    private let kept: Int
    private let file: Mutex<(descriptor: CInt, bytes: Int)>

    public init(path: String, limit: Int = RotatingLogSink.fileBytes, kept: Int = RotatingLogSink.keptFiles) throws {
        self.path = path
        self.limit = limit
        self.kept = kept
        file = try Mutex(Self.open(path))
    }

    deinit { file.withLock { if $0.descriptor >= 0 { close($0.descriptor) } } }

    public func write(_ lines: ByteBuffer) {
        file.withLock { file in
            if file.bytes > 0, file.bytes + lines.readableBytes > limit { rotate(&file) }
            guard file.descriptor >= 0 else { return }
            if writeAll(file.descriptor, lines) { file.bytes += lines.readableBytes }
        }
    }

    /// Calls the body with the paths of the files, the current one first, while none is rotated.
    func withFiles<T>(_ body: ([String]) -> T) -> T {
        file.withLock { _ in body((0...kept).map { $0 == 0 ? path : "\(path).\($0)" }) }
    }

    /// Moves each file one number up. Numbers that something not ours occupies (another user may put a file
    /// there when the directory is /tmp) are left out; with none to move to the file starts again from empty.
    private func rotate(_ file: inout (descriptor: CInt, bytes: Int)) {
        let places = [path] + (0..<kept).map { "\(path).\($0 + 1)" }.filter(OwnFile.isFree)
        for (from, to) in zip(places, places.dropFirst()).reversed() { rename(from, to) }
        if places.count > 1, let next = try? Self.open(path) {
            if file.descriptor >= 0 { close(file.descriptor) }
            file = next
        }
        guard file.bytes > 0, file.descriptor >= 0 else { return }
        ftruncate(file.descriptor, 0)
        file.bytes = 0
    }

    private static func open(_ path: String) throws(CoreError) -> (CInt, Int) {
        let descriptor = try OwnFile.open(path, O_WRONLY | O_CREAT | O_APPEND)
        var info = stat()
        return (descriptor, fstat(descriptor, &info) == 0 ? Int(info.st_size) : 0)
    }
}

/// - Returns: false when the file takes nothing more (a full disk, a closed pipe).
private func writeAll(_ descriptor: CInt, _ buffer: ByteBuffer) -> Bool {
    buffer.withUnsafeReadableBytes { bytes in
        var rest = bytes[...]
        while !rest.isEmpty {
            let n = Glibc.write(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count)
            if n < 0 {
                if errno == EINTR { continue }
                if errno == EAGAIN {
                    var poll = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                    if Glibc.poll(&poll, 1, 1000) > 0 { continue }
                }
                return false
            }
            rest = rest.dropFirst(n)
        }
        return true
    }
}
