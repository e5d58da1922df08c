import AgentCore
import Synchronization

/// The TCP ports on which processes of this machine listen, from /proc, read at most once a second.
public final class ListeningPorts: Sendable {
    public struct Port: Codable, Sendable, Equatable {
        /// The name of the process, or "" where we may not read it.
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
    /// - Throws: ``CoreError`` when the kernel's tables cannot be read.
    public func current() async throws -> [Port] {
        if let fresh = cached.withLock({ $0 }), fresh.at.duration(to: .now) < .seconds(1) { return fresh.ports }
        let ports = try await pool.run { [procfs] in try Self.scan(procfs) }
        cached.withLock { $0 = (.now, ports) }
        return ports
    }

    static func scan(_ procfs: String) throws(CoreError) -> [Port] {
        var inodes: [UInt64: UInt16] = [:]
        for listener in try ListeningSockets.all(of: "self", in: procfs) {
            inodes[listener.inode] = UInt16(clamping: listener.port)
        }
        guard !inodes.isEmpty else { return [] }
        let own = ListeningSockets.inodes(of: "self", in: procfs)
        let ownPorts = Set(inodes.filter { own.contains($0.key) }.values)
        var names: [UInt16: String] = [:]
        for port in inodes.values where !ownPorts.contains(port) && port >= lowestPort { names[port] = "" }
        var wanted = Set(inodes.keys).subtracting(own)
        for entry in directoryEntries(procfs) where !wanted.isEmpty && Int32(entry) != nil {
            let held = ListeningSockets.inodes(of: entry, in: procfs).intersection(wanted)
            guard !held.isEmpty else { continue }
            let name = (readTextFile("\(procfs)/\(entry)/comm") ?? "").split(separator: "\n").first.map(String.init)
            for inode in held {
                if let port = inodes[inode], names[port] == "" { names[port] = name ?? "" }
            }
            wanted.subtract(held)
        }
        return names.map { Port(process_name: $0.value, network: "tcp", port: $0.key) }.sorted { $0.port < $1.port }
    }
}
