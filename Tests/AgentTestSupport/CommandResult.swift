import Foundation
import Glibc

/// What a program that ran to its end left behind.
public struct CommandResult: Sendable {
    /// 128 and the number for death by signal, as shells count.
    public var code: Int32
    public var output: String
    public var errors: String

    /// Runs a program and waits for it.
    public static func of(_ arguments: [String], environment: [String: String] = [:]) throws -> CommandResult {
        let directory = try TemporaryDirectory()
        let files = ["\(directory.path)/out", "\(directory.path)/err"]
        let open =
            [Glibc.open("/dev/null", O_RDONLY | O_CLOEXEC)]
            + files.map { Glibc.open($0, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600) }
        defer { for descriptor in open { close(descriptor) } }
        let pid = try DaemonProcess.spawn(
            arguments, ProcessInfo.processInfo.environment.merging(environment) { _, new in new }, input: open[0],
            output: open[1], errors: open[2])
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0 && errno == EINTR {}
        let signal = status & 0x7f
        let texts = try files.map { try String(contentsOfFile: $0, encoding: .utf8) }
        return CommandResult(
            code: signal == 0 ? (status >> 8) & 0xff : 128 + signal, output: texts[0], errors: texts[1])
    }

    /// Runs the binary under test.
    public static func ofAgent(_ arguments: String..., environment: [String: String] = [:]) throws -> CommandResult {
        try of([DaemonProcess.binary] + arguments, environment: environment)
    }
}
