import AgentCore
import CPlatform
import Glibc
import Synchronization

/// The TCP ports on which processes of this machine listen, from /proc, read at most once a second.
public final class ListeningPorts: Sendable {
    public struct Port: Codable, Sendable, Equatable {
        /// The name of the process, or "" where it may not be seen.
        public var process_name: String
        public var network: String
        public var port: UInt16
    }

    /// Ports below this are left out.
    public static let lowestPort: UInt16 = 9

    private let pool: BlockingPool
    private let procfs: String
    private let cached = Mutex<(at: ContinuousClock.Instant, ports: [Port])?>(nil)

    /// - Parameter procfs: where proc is mounted.
    public init(pool: BlockingPool, procfs: String = "/proc") {
        self.pool = pool
        self.procfs = procfs
    }

    /// The ports, lowest first, the daemon's own left out.
    public func current() async throws -> [Port] {
        if let fresh = cached.withLock({ $0 }), fresh.at.duration(to: .now) < .seconds(1) { return fresh.ports }
        let ports = try await pool.run { [procfs] in Self.scan(procfs) }
        cached.withLock { $0 = (.now, ports) }
        return ports
    }

    static func scan(_ procfs: String) -> [Port] {
        var inodes: [UInt64: UInt16] = [:]
        for table in ["tcp", "tcp6"] {
            for (inode, port) in parse(readTextFile("\(procfs)/net/\(table)") ?? "") { inodes[inode] = port }
        }
        guard !inodes.isEmpty else { return [] }
        let own = socketInodes("\(procfs)/self/fd")
        let ownPorts = Set(inodes.filter { own.contains($0.key) }.values)
        var names: [UInt16: String] = [:]
        for port in inodes.values where !ownPorts.contains(port) && port >= lowestPort { names[port] = "" }
        var wanted = Set(inodes.keys).subtracting(own)
        for entry in directoryEntries(procfs) where !wanted.isEmpty && Int32(entry) != nil {
            let held = socketInodes("\(procfs)/\(entry)/fd").intersection(wanted)
            guard !held.isEmpty else { continue }
            let name = (readTextFile("\(procfs)/\(entry)/comm") ?? "").split(separator: "\n").first.map(String.init)
            for inode in held {
                if let port = inodes[inode], names[port] == "" { names[port] = name ?? "" }
            }
            wanted.subtract(held)
        }
        return names.map { Port(process_name: $0.value, network: "tcp", port: $0.key) }.sorted { $0.port < $1.port }
    }

    /// Inode and port of each listening socket in a `/proc/net/tcp` table.
    static func parse(_ table: String) -> [(inode: UInt64, port: UInt16)] {
        table.split(separator: "\n").dropFirst().compactMap { line in
            let fields = line.split(separator: " ", omittingEmptySubsequences: true)
            // 0A is TCP_LISTEN; field 1 is address:port in hexadecimal, field 9 the inode.
            guard fields.count > 9, fields[3] == "0A", let colon = fields[1].lastIndex(of: ":"),
                let port = UInt16(fields[1][fields[1].index(after: colon)...], radix: 16),
                let inode = UInt64(fields[9])
            else { return nil }
            return (inode, port)
        }
    }

    private static func socketInodes(_ directory: String) -> Set<UInt64> {
        var result: Set<UInt64> = []
        var target = [CChar](repeating: 0, count: 64)
        for entry in directoryEntries(directory) {
            let length = readlink("\(directory)/\(entry)", &target, target.count)
            guard length > 9 else { continue }
            let text = String(decoding: target[..<length].map { UInt8(bitPattern: $0) }, as: UTF8.self)
            guard text.hasPrefix("socket:["), let inode = UInt64(text.dropFirst(8).dropLast()) else { continue }
            result.insert(inode)
        }
        return result
    }
}
