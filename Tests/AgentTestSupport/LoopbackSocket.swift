import Glibc

/// A TCP socket on a free port of 127.0.0.1, closed with the value.
public final class LoopbackSocket: Sendable {
    public let descriptor: CInt
    public let port: Int

    /// - Parameter backlog: with which it listens; nil for a socket that does not, and refuses connections.
    public init(backlog: Int32? = nil) throws {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        self.descriptor = descriptor
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, length) == 0 && getsockname(descriptor, $0, &length) == 0
            }
        }
        port = Int(UInt16(bigEndian: address.sin_port))
        guard isBound, backlog.map({ listen(descriptor, $0) == 0 }) ?? true else {
            throw DeadlineExceeded(what: "a port of 127.0.0.1")
        }
    }

    deinit { close(descriptor) }

    /// A port that was free a moment ago, for a program that cannot choose one itself.
    public static func freePort() throws -> Int { try LoopbackSocket().port }

    /// Waits for a connection. The caller closes it.
    public func accepted() -> CInt { accept(descriptor, nil, nil) }
}
