import CPlatform
import Glibc

/// Listening TCP sockets, as /proc/PID/net/tcp and tcp6 show them. Everything here blocks.
public enum ListeningSockets {
    public struct Listener: Sendable, Equatable {
        /// An IPv6 address in brackets.
        public var address: String
        public var port: Int
        public var inode: UInt64
        /// Cannot be reached from other machines.
        public var isLoopback: Bool
    }

    /// Where the port, or any other that the process listens on, can be reached from other machines.
    /// - Throws: as ``all(of:in:)``: what cannot be read must not pass for "nowhere".
    public static func exposed(port: Int, of pid: Int32, in procfs: String = "/proc") throws(CoreError) -> [Listener] {
        let own = inodes(of: pid, in: procfs)
        return try all(of: pid, in: procfs).filter { !$0.isLoopback && ($0.port == port || own.contains($0.inode)) }
    }

    /// The listening TCP sockets in the network namespace of a process.
    /// - Parameters:
    ///   - process: a name below `procfs`: a pid or `self`. Where its tables cannot be read, those of this
    ///     process are taken.
    ///   - procfs: where proc is mounted.
    /// - Throws: ``CoreError`` when a table cannot be read; a kernel without IPv6 has no `tcp6`.
    public static func all(
        of process: some CustomStringConvertible, in procfs: String = "/proc"
    ) throws(CoreError) -> [Listener] {
        var result: [Listener] = []
        for name in ["tcp", "tcp6"] {
            let path = "\(procfs)/net/\(name)"
            if let text = readTextFile("\(procfs)/\(process)/net/\(name)") ?? readTextFile(path) {
                result += table(text)
            } else if name == "tcp" || access(path, F_OK) == 0 {
                throw unreadable(path)
            }
        }
        return result
    }

    private static func unreadable(_ path: String) -> CoreError {
        let what = "cannot read \(path), which lists the listening sockets"
        let descriptor = wa_open(path, O_RDONLY, 0)
        guard descriptor < 0 else {
            close(descriptor)
            return CoreError(.invalid, what)
        }
        let error = CoreError.system(descriptor, what)
        return descriptor == -ENOENT ? CoreError(error.code, "\(error.message); is /proc mounted?") : error
    }

    /// What listens in the text of such a table.
    public static func table(_ text: String) -> [Listener] {
        text.split(separator: "\n").dropFirst().compactMap { parse($0) }
    }

    /// The inodes of a process's sockets.
    /// - Parameters:
    ///   - process: a name below `procfs`: a pid or `self`.
    ///   - procfs: where proc is mounted.
    public static func inodes(of process: some CustomStringConvertible, in procfs: String = "/proc") -> Set<UInt64> {
        let directory = "\(procfs)/\(process)/fd"
        var result: Set<UInt64> = []
        var target = [CChar](repeating: 0, count: 64)
        for entry in directoryEntries(directory) {
            let count = readlink("\(directory)/\(entry)", &target, target.count)
            guard count > 0 else { continue }
            let text = String(decoding: target.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
            if text.hasPrefix("socket:["), let inode = UInt64(text.dropFirst(8).dropLast()) { result.insert(inode) }
        }
        return result
    }

    /// One line of proc_pid_net_tcp(5); nil unless it listens.
    static func parse(_ line: some StringProtocol) -> Listener? {
        let fields = line.split(separator: " ")
        guard fields.count > 9, fields[3] == "0A", let inode = UInt64(fields[9]) else { return nil }
        let parts = fields[1].split(separator: ":")
        guard parts.count == 2, let port = UInt16(parts[1], radix: 16) else { return nil }
        guard let bytes = bytes(Substring(parts[0])) else { return nil }
        return Listener(
            address: text(bytes), port: Int(port), inode: inode, isLoopback: isLoopback(bytes))
    }

    /// The address in network order: the kernel prints each 32-bit word of it in the machine's.
    private static func bytes(_ hex: Substring) -> [UInt8]? {
        guard hex.utf8.count == 8 || hex.utf8.count == 32 else { return nil }
        var result: [UInt8] = []
        var rest = hex
        while !rest.isEmpty {
            guard let word = UInt32(rest.prefix(8), radix: 16) else { return nil }
            withUnsafeBytes(of: word) { result += Array($0) }
            rest = rest.dropFirst(8)
        }
        return result
    }

    private static func isLoopback(_ bytes: [UInt8]) -> Bool {
        if bytes.count == 4 { return bytes[0] == 127 }
        if bytes.prefix(10).allSatisfy({ $0 == 0 }) && bytes[10] == 255 && bytes[11] == 255 { return bytes[12] == 127 }
        return bytes.dropLast().allSatisfy { $0 == 0 } && bytes.last == 1
    }

    private static func text(_ bytes: [UInt8]) -> String {
        if bytes.count == 4 { return bytes.map { "\($0)" }.joined(separator: ".") }
        let words = stride(from: 0, to: 16, by: 2).map {
            String(UInt16(bytes[$0]) << 8 | UInt16(bytes[$0 + 1]), radix: 16)
        }
        return bytes.allSatisfy { $0 == 0 } ? "[::]" : "[\(words.joined(separator: ":"))]"
    }
}
