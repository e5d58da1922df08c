import AgentCore
import CPlatform
import Glibc

/// A program that a command of ours runs in its place, on the calling thread and in its environment.
enum ForegroundProgram {
    /// Bytes of what a program wrote last on stderr that are kept.
    static let tailBytes = 4_096

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
        given.lend(behind: [path] + own) { pid = wa_start_foreground(path, $0, wa_environ(), ends.write) }
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
}
