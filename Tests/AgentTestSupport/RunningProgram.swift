import Foundation
import Glibc

/// A program that runs beside the test. Every call blocks.
///
/// Foundation's `Process` is not used: it reads past the end of what `readdir` gives, and crashes where memory ends there.
public final class RunningProgram: Sendable {
    public let pid: pid_t
    private let output: CInt
    private let errors: CInt

    /// - Parameter environment: all of it.
    public init(_ arguments: [String], environment: [String: String]) throws {
        var ends: [CInt] = [-1, -1]
        var name = Array("\(NSTemporaryDirectory())/wa-test-XXXXXX".utf8CString)
        guard pipe(&ends) == 0, case let file = mkstemp(&name), file >= 0 else {
            throw RawConnection.Failure(description: "a pipe or a file: errno \(errno)")
        }
        unlink(name)
        defer { close(ends[1]) }
        (output, errors) = (ends[0], file)
        pid = try DaemonProcess.spawn(arguments, environment, output: ends[1], errors: errors)
    }

    deinit {
        close(output)
        close(errors)
    }

    public func interrupt() { kill(pid, SIGINT) }

    /// Waits for some output and returns it; nothing when the program has ended without any.
    public func nextOutput() -> String { String(decoding: Self.read(output), as: UTF8.self) }

    /// Waits for the end. The output is what ``nextOutput()`` has not returned.
    public func end() -> CommandResult {
        var bytes: [UInt8] = []
        while case let more = Self.read(output), !more.isEmpty { bytes += more }
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0 && errno == EINTR {}
        let signal = status & 0x7f
        var problems: [UInt8] = []
        lseek(errors, 0, SEEK_SET)
        while case let more = Self.read(errors), !more.isEmpty { problems += more }
        return CommandResult(
            code: signal == 0 ? (status >> 8) & 0xff : 128 + signal, output: String(decoding: bytes, as: UTF8.self),
            errors: String(decoding: problems, as: UTF8.self))
    }

    private static func read(_ descriptor: CInt) -> ArraySlice<UInt8> {
        var area = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = Glibc.read(descriptor, &area, area.count)
            if count >= 0 { return area[..<count] }
            if errno != EINTR { return [] }
        }
    }
}
