import CPlatform
import Glibc

/// What other programs print, for commands of ours: on the calling thread, which waits. The daemon has its launcher.
package enum CapturedProgram {
    /// Bytes of output that are taken; a program that writes more counts as failed.
    static let outputBytes = 1 << 20

    /// What a program prints; nil when it cannot be run or fails. It reads nothing, and its errors are not shown.
    /// - Parameters:
    ///   - own: arguments, in front of those that were given to this process.
    ///   - environment: nil is this process's, to the byte.
    ///   - withErrors: what it writes on stderr counts as output, too.
    ///   - limit: a program that takes longer is killed and counts as failed; nil waits as long as it takes.
    package static func output(
        of path: String, _ own: [String], _ given: RawArguments = RawArguments(),
        environment: [String: String]? = nil, withErrors: Bool = false, atMost limit: Duration? = nil
    ) -> String? {
        guard let (pid, output) = start(path, own, given, environment, withErrors) else { return nil }
        let text = readToEnd(output, limit)
        if text == nil { kill(pid, SIGKILL) }
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        return status == 0 ? text.map { String(decoding: $0, as: UTF8.self) } : nil
    }

    /// As ``output(of:_:_:environment:withErrors:atMost:)``, but once its stdout is closed the program is not waited for:
    /// one with a thread that waits for a file system in the kernel may not end for a long time, killed or not.
    package static func outputLeavingBehind(
        of path: String, _ arguments: [String], environment: [String: String], atMost limit: Duration
    ) -> String? {
        guard let (pid, output) = start(path, arguments, RawArguments(), environment, false) else { return nil }
        let text = readToEnd(output, limit)
        if text == nil { kill(pid, SIGKILL) }
        return text.map { String(decoding: $0, as: UTF8.self) }
    }

    /// - Returns: the program, and the end of the pipe that it writes to, which the caller closes.
    private static func start(
        _ path: String, _ own: [String], _ given: RawArguments, _ environment: [String: String]?, _ withErrors: Bool
    ) -> (pid: pid_t, output: CInt)? {
        guard let ends = try? makePipe() else { return nil }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, ends.write, STDOUT_FILENO)
        if withErrors {
            posix_spawn_file_actions_adddup2(&actions, ends.write, STDERR_FILENO)
        } else {
            posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0)
        }
        var pid: pid_t = 0
        var failure = EINVAL
        given.lend(behind: [path] + own) { argv in
            guard let environment else {
                failure = posix_spawn(&pid, path, &actions, nil, argv, wa_environ())
                return
            }
            withCStrings(environment.map { "\($0.key)=\($0.value)" }) {
                failure = posix_spawn(&pid, path, &actions, nil, argv, $0)
            }
        }
        close(ends.write)
        guard failure == 0 else {
            close(ends.read)
            return nil
        }
        return (pid, ends.read)
    }

    /// Reads and closes. nil for more than ``outputBytes``, or when the end did not come in time.
    private static func readToEnd(_ descriptor: CInt, _ limit: Duration?) -> [UInt8]? {
        defer { close(descriptor) }
        let deadline = limit.map { ContinuousClock.now + $0 }
        var text: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while text.count <= outputBytes {
            let rest = deadline.map { $0 - .now }
            if let rest, rest <= .zero { return nil }
            var wait = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            if poll(&wait, 1, rest.map { CInt(clamping: Int($0 / .milliseconds(1)) + 1) } ?? -1) < 0, errno != EINTR {
                break
            }
            let count = buffer.withUnsafeMutableBytes { wa_read(descriptor, $0.baseAddress, $0.count) }
            if count > 0 { text += buffer[..<count] }
            if count == 0 || (count < 0 && count != -ssize_t(EAGAIN)) { break }
        }
        return text.count > outputBytes ? nil : text
    }
}
