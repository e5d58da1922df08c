import AgentCore
import CPlatform
import Glibc

/// Arguments as this process got them; they need not be UTF-8.
package struct RawArguments {
    fileprivate let pointers: [UnsafeMutablePointer<CChar>]

    /// The last ones of this process.
    package init(last count: Int) {
        let all = (0..<Int(CommandLine.argc)).compactMap { CommandLine.unsafeArgv[$0] }
        pointers = all.suffix(count)
    }

    /// None.
    init() { pointers = [] }
}

/// Programs that a command of ours runs, on the calling thread, in its environment.
enum ForegroundProgram {
    /// Bytes of what a program wrote last on stderr that are kept.
    static let tailBytes = 4_096
    /// Bytes of output that ``output(of:_:_:)`` takes; a program that writes more counts as failed.
    static let outputBytes = 1 << 20

    /// How a program ended.
    struct Outcome {
        /// Its exit code, or 128 and the number of the signal.
        var code: Int32
        /// The end of what it wrote on stderr.
        var errors: String
    }

    /// Runs a program in our place: terminal, stdin, stdout and signals are its own. What it writes on stderr goes to
    /// ours as it comes.
    /// - Parameters:
    ///   - own: arguments of ours, in front of the others.
    ///   - given: passed on as they came.
    static func run(_ path: String, _ own: [String], _ given: RawArguments) throws(CoreError) -> Outcome {
        let ends = try makePipe()
        let errors = OwnedDescriptor(ends.read)
        var pid: pid_t = -EINVAL
        withArguments([path] + own, given) { pid = wa_start_foreground(path, $0, wa_environ(), ends.write) }
        close(ends.write)
        guard pid > 0 else { throw CoreError.system(-pid, "cannot run \(path)") }
        // Not the pipe's end: a connection that ssh leaves in the background may hold it.
        let ended = OwnedDescriptor(wa_pidfd_open(pid))
        var tail: [UInt8] = []
        var isOpen = true
        while isOpen {
            var waits = [
                pollfd(fd: errors.number, events: Int16(POLLIN), revents: 0),
                pollfd(fd: ended.number, events: Int16(POLLIN), revents: 0),
            ]
            let count = poll(&waits, 2, -1)
            if count < 0, errno != EINTR { break }
            guard count > 0 else { continue }
            isOpen = pass(errors.number, &tail) && waits[1].revents == 0
        }
        _ = pass(errors.number, &tail)
        let code = wa_wait_foreground(pid)
        guard code >= 0 else { throw CoreError.system(code, "cannot wait for \(path)") }
        return Outcome(code: code, errors: String(decoding: tail, as: UTF8.self))
    }

    /// Passes what there is on to our stderr.
    /// - Returns: false when the writers are gone.
    private static func pass(_ descriptor: CInt, _ tail: inout [UInt8]) -> Bool {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = buffer.withUnsafeMutableBytes { wa_read(descriptor, $0.baseAddress, $0.count) }
            guard count > 0 else { return count != 0 }
            _ = buffer.withUnsafeBytes { writeAll(UnsafeRawBufferPointer(rebasing: $0[..<count]), to: STDERR_FILENO) }
            tail += buffer[..<count]
            if tail.count > tailBytes { tail.removeFirst(tail.count - tailBytes) }
        }
    }

    /// What a program prints; nil when it cannot be run or fails. It reads nothing, and its errors are not shown.
    static func output(of path: String, _ own: [String], _ given: RawArguments = RawArguments()) -> String? {
        guard let ends = try? makePipe() else { return nil }
        let output = OwnedDescriptor(ends.read)
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, ends.write, STDOUT_FILENO)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0)
        var pid: pid_t = 0
        var failure = EINVAL
        withArguments([path] + own, given) { failure = posix_spawn(&pid, path, &actions, nil, $0, wa_environ()) }
        close(ends.write)
        guard failure == 0 else { return nil }
        var text: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while text.count <= outputBytes {
            var wait = pollfd(fd: output.number, events: Int16(POLLIN), revents: 0)
            if poll(&wait, 1, -1) < 0, errno != EINTR { break }
            let count = buffer.withUnsafeMutableBytes { wa_read(output.number, $0.baseAddress, $0.count) }
            if count > 0 { text += buffer[..<count] }
            if count == 0 || (count < 0 && count != -ssize_t(EAGAIN)) { break }
        }
        let isTooLong = text.count > outputBytes
        if isTooLong { kill(pid, SIGKILL) }
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        return status == 0 && !isTooLong ? String(decoding: text, as: UTF8.self) : nil
    }

    private static func withArguments(
        _ own: [String], _ given: RawArguments, _ body: (UnsafePointer<UnsafeMutablePointer<CChar>?>) -> Void
    ) {
        let copies = own.map { strdup($0) }
        defer { for copy in copies { free(copy) } }
        let all = copies + given.pointers.map { Optional($0) } + [nil]
        all.withUnsafeBufferPointer { if let base = $0.baseAddress { body(base) } }
    }
}
