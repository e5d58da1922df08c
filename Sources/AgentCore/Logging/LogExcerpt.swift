import Glibc
import NIOCore
import Synchronization

/// A part of the daemon's log files as one text that is read piece by piece, so that no client has it all in memory.
/// The files are open from the start: what is rotated meanwhile is still read.
public final class LogExcerpt: Sendable {
    /// Of a piece.
    static let pieceBytes = 64 << 10

    /// A log file, open.
    struct File: ~Copyable {
        let descriptor: OwnedDescriptor
        let name: String
        let size: Int
        let modified: timespec

        /// nil when it is not there, or not ours.
        static func open(_ path: String) -> File? {
            guard let number = try? OwnFile.open(path, O_RDONLY) else { return nil }
            let descriptor = OwnedDescriptor(number)
            var info = stat()
            guard fstat(number, &info) == 0 else { return nil }
            return File(
                descriptor: descriptor, name: path.split(separator: "/").last.map(String.init) ?? path,
                size: Int(info.st_size), modified: info.st_mtim)
        }

        /// Where the last bytes of the file begin, at the start of a line.
        func start(ofLast bytes: Int) -> Int {
            guard bytes < size else { return 0 }
            // A line may begin exactly there.
            var offset = max(0, size - bytes - 1)
            var area = [UInt8](repeating: 0, count: LogExcerpt.pieceBytes)
            while offset < size {
                let count = pread(descriptor.number, &area, area.count, off_t(offset))
                guard count > 0 else { return size }
                if let newline = ByteScan.first(UInt8(ascii: "\n"), in: area, 0..<count) { return offset + newline + 1 }
                offset += count
            }
            return size
        }
    }

    private enum Part {
        case text(String)
        case bytes(CInt, from: Int, to: Int)
    }

    private struct State {
        var parts: [Part] = []
        var endsLine = true
    }

    private let state = Mutex(State())

    init() {}

    deinit {
        state.withLock { state in
            for case .bytes(let descriptor, _, _) in state.parts { close(descriptor) }
        }
    }

    /// - Parameter bytes: of its end; as many at most.
    /// - Returns: how many of the file are left out.
    func append(_ file: consuming File, last bytes: Int) -> Int {
        let (start, size) = (file.start(ofLast: bytes), file.size)
        let descriptor = file.descriptor.take()
        state.withLock { $0.parts.append(.bytes(descriptor, from: start, to: size)) }
        return start
    }

    /// Appends a line of ours.
    func append(line: String) { state.withLock { $0.parts.append(.text(line)) } }

    /// The next piece, nil at the end. Blocks.
    public func next() -> ByteBuffer? {
        state.withLock { state in
            while let part = state.parts.first {
                switch part {
                case .text(let line):
                    state.parts.removeFirst()
                    let text = state.endsLine ? "\(line)\n" : "\n\(line)\n"
                    state.endsLine = true
                    return ByteBuffer(string: text)
                case .bytes(let descriptor, let from, let to):
                    var piece = ByteBuffer()
                    piece.writeWithUnsafeMutableBytes(minimumWritableBytes: Self.pieceBytes) { area in
                        max(0, pread(descriptor, area.baseAddress, min(Self.pieceBytes, to - from), off_t(from)))
                    }
                    guard let last = piece.readableBytesView.last else {
                        state.parts.removeFirst()
                        close(descriptor)
                        continue
                    }
                    state.parts[0] = .bytes(descriptor, from: from + piece.readableBytes, to: to)
                    state.endsLine = last == UInt8(ascii: "\n")
                    return piece
                }
            }
            return nil
        }
    }
}

extension RotatingLogSink {
    /// The last bytes of the log, rotated files included, from the start of a line. Blocks.
    public func tail(_ maximum: Int) -> LogExcerpt {
        withFiles { paths in
            let excerpt = LogExcerpt()
            // The newest ones that are needed, which are then read from the oldest on.
            var (rest, count) = (maximum, 0)
            for path in paths where rest > 0 {
                var info = stat()
                if OwnFile.isFree(path), lstat(path, &info) == 0 { rest -= Int(info.st_size) }
                count += 1
            }
            for path in paths.prefix(count).reversed() {
                guard let file = LogExcerpt.File.open(path) else { continue }
                let wanted = max(0, file.size + min(0, rest))
                _ = excerpt.append(file, last: wanted)
                rest = max(0, rest)
            }
            return excerpt
        }
    }

    /// The last bytes of the current file, and after it the rotated files that were written later than a moment, the
    /// newest first, each after a line that names it. The last line says what was cut, if so. Blocks.
    /// - Parameters:
    ///   - current: bytes of the current file.
    ///   - total: bytes of all files.
    public func files(after moment: timespec, current: Int, total: Int) -> LogExcerpt {
        withFiles { paths in
            let excerpt = LogExcerpt()
            var (rest, cut) = (total, 0)
            for (number, path) in paths.enumerated() {
                guard let file = LogExcerpt.File.open(path) else { continue }
                let (modified, size, name) = (file.modified, file.size, file.name)
                if number > 0 {
                    guard (modified.tv_sec, modified.tv_nsec) > (moment.tv_sec, moment.tv_nsec) else { continue }
                    let time = timestampText(seconds: Int64(modified.tv_sec), nanoseconds: Int32(modified.tv_nsec))
                    excerpt.append(line: "--- \(name) (\(size) bytes, modified \(time)) ---")
                }
                let skipped = excerpt.append(file, last: min(rest, number == 0 ? current : rest))
                cut += skipped
                rest -= size - skipped
            }
            if cut > 0 { excerpt.append(line: "--- cut: \(cut) bytes are left out; \(total) are sent at most ---") }
            return excerpt
        }
    }
}
