import AgentCore
import CPlatform
import Glibc

/// Identifies a process, and distinguishes it from a later one with the same number.
struct ProcessIdentity: Sendable, Equatable, Codable {
    var pid: Int32
    /// In clock ticks since boot (proc(5), stat, field 22).
    var startTime: UInt64
}

/// A process, held by a pidfd, so that a signal never reaches a later process with its number.
final class ProcessHandle: Sendable {
    let identity: ProcessIdentity
    /// The program's name as the kernel keeps it, at most 15 bytes.
    let name: String
    private let descriptor: CInt

    var pid: Int32 { identity.pid }

    /// nil when there is no such process, it has ended, or it belongs to another user.
    convenience init?(pid: Int32) { self.init(pid: pid, expected: nil) }

    /// As above, and nil when the number now belongs to another process.
    convenience init?(_ identity: ProcessIdentity) { self.init(pid: identity.pid, expected: identity) }

    private init?(pid: Int32, expected: ProcessIdentity?) {
        guard pid > 1, pid != getpid() else { return nil }
        let descriptor = wa_pidfd_open(pid)
        guard descriptor >= 0 else { return nil }
        // Read after opening the pidfd, so that it is the process that the pidfd holds, or its zombie.
        guard let seen = Self.read(pid), expected.map({ $0.startTime == seen.startTime }) ?? true,
            Self.isOurs(pid)
        else {
            close(descriptor)
            return nil
        }
        identity = ProcessIdentity(pid: pid, startTime: seen.startTime)
        name = seen.name
        self.descriptor = descriptor
        guard isAlive else { return nil }
    }

    deinit { close(descriptor) }

    /// Whether it still runs; a zombie does not.
    var isAlive: Bool {
        var wait = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&wait, 1, 0) == 0
    }

    func signal(_ number: CInt) { _ = wa_pidfd_send_signal(descriptor, number) }

    private static func isOurs(_ pid: Int32) -> Bool {
        var info = stat()
        return stat("/proc/\(pid)", &info) == 0 && info.st_uid == geteuid()
    }

    private static func read(_ pid: Int32) -> (name: String, startTime: UInt64)? {
        readFile("/proc/\(pid)/stat").flatMap(parse)
    }

    /// Reads proc(5)'s stat line. The name in parentheses may hold anything, `)` included.
    static func parse(_ line: [UInt8]) -> (name: String, startTime: UInt64)? {
        guard let open = line.firstIndex(of: UInt8(ascii: "(")), let close = line.lastIndex(of: UInt8(ascii: ")")),
            open < close
        else { return nil }
        // The first field after the name is the third.
        let fields = line[(close + 1)...].split(separator: UInt8(ascii: " "))
        guard fields.count > 19, let start = UInt64(String(decoding: fields[19], as: UTF8.self)) else { return nil }
        return (String(decoding: line[(open + 1)..<close], as: UTF8.self), start)
    }

    /// Whether any process has the number.
    static func isRunning(_ pid: Int32) -> Bool {
        guard let line = readFile("/proc/\(pid)/stat"), let close = line.lastIndex(of: UInt8(ascii: ")")),
            close + 2 < line.count
        else { return false }
        return line[close + 2] != UInt8(ascii: "Z") && line[close + 2] != UInt8(ascii: "X")
    }

    /// The process's arguments; empty when it has ended.
    static func arguments(_ pid: Int32) -> [String] {
        (readFile("/proc/\(pid)/cmdline") ?? []).split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
    }

    /// The environment that the process was started with; empty when it has ended.
    static func environment(_ pid: Int32) -> [String: String] {
        var environment: [String: String] = [:]
        for entry in (readFile("/proc/\(pid)/environ") ?? []).split(separator: 0) {
            let parts = entry.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            if parts.count == 2 {
                environment[String(decoding: parts[0], as: UTF8.self)] = String(decoding: parts[1], as: UTF8.self)
            }
        }
        return environment
    }

    /// The processes of our user whose arguments match. Blocks: reads all of /proc.
    static func all(where matches: ([String]) -> Bool) -> [ProcessHandle] {
        directoryEntries("/proc").compactMap { Int32($0) }.compactMap { pid in
            matches(arguments(pid)) ? ProcessHandle(pid: pid) : nil
        }
    }
}
