import AgentCore
import ArgumentParser
import Glibc
import LocalAgent

/// Standard output for bytes.
struct StandardOutput {
    /// What shells say of a program that SIGPIPE ended.
    static let closed = ExitCode(128 + SIGPIPE)

    private var pending: [UInt8] = []
    private var written = 0
    /// As much as a pipe that poll() finds writable takes without waiting.
    private let piece: Int

    init() {
        var info = stat()
        let isFile = fstat(STDOUT_FILENO, &info) == 0 && info.st_mode & S_IFMT == S_IFREG
        piece = isFile ? 1 << 20 : 4096
    }

    var isEmpty: Bool { written == pending.count }

    mutating func add(_ bytes: [UInt8]) {
        if isEmpty {
            (pending, written) = (bytes, 0)
        } else {
            pending += bytes
        }
    }

    /// Writes one piece, which does not wait once poll() has found it writable.
    /// - Throws: ``closed`` when its reader has gone.
    mutating func writeSome() throws {
        let count = pending.withUnsafeBytes { area in
            guard let base = area.baseAddress else { return 0 }
            return Glibc.write(STDOUT_FILENO, base + written, min(piece, area.count - written))
        }
        if count >= 0 {
            written += count
        } else if errno == EPIPE {
            throw Self.closed
        } else if errno != EINTR && errno != EAGAIN {
            throw CommandFailure(message: "cannot write to standard output: \(errnoText(errno))")
        }
    }

    /// Writes all of it, however long that takes.
    mutating func write(all bytes: [UInt8]) throws {
        add(bytes)
        while !isEmpty {
            var wanted = pollfd(fd: STDOUT_FILENO, events: Int16(POLLOUT), revents: 0)
            poll(&wanted, 1, -1)
            try writeSome()
        }
    }

    static func write(_ text: String) throws {
        var output = StandardOutput()
        try output.write(all: Array(text.utf8))
    }
}

/// A line on stderr beside what the command prints.
func note(_ text: String) {
    let line = Array("workspace-agent: \(text)\n".utf8)
    _ = Glibc.write(STDERR_FILENO, line, line.count)
}

/// What of a process's output the agent no longer had when it was read: it never holds the process up, and keeps the
/// first 64 MiB and a little of the last.
struct MissingOutput {
    private var bytes = 0

    mutating func add(_ count: Int, at offset: Int) {
        if bytes == 0 {
            note(
                "output is missing from byte \(offset) on: it comes faster than it is taken here; have the command write "
                    + "it to a file")
        }
        bytes += count
    }

    /// Says how much it was.
    func sayTotal() { if bytes > 0 { note("\(bytes) bytes of output are missing") } }
}
