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
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        for (index, file) in files.enumerated() {
            posix_spawn_file_actions_addopen(&actions, CInt(1 + index), file, O_WRONLY | O_CREAT, 0o600)
        }
        closeInChild(&actions, from: 3)
        let variables = ProcessInfo.processInfo.environment.merging(environment) { _, new in new }
        var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        var envp: [UnsafeMutablePointer<CChar>?] = variables.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for pointer in argv + envp { free(pointer) } }
        var pid = pid_t()
        let rc = posix_spawnp(&pid, arguments[0], &actions, nil, &argv, &envp)
        guard rc == 0 else { throw RawConnection.Failure(description: "\(arguments[0]): errno \(rc)") }
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
