import AgentCore
import Glibc
import IPAddresses
import NIOCore

/// What a node asks the machine for, which may take long.
package struct Machine: Sendable {
    /// Addresses of interfaces that are up.
    var interfaces: @Sendable () async -> [IPAddress]
    /// Addresses of a name.
    /// - Throws: when it has none.
    var resolve: @Sendable (_ name: String, _ port: UInt16) async throws -> [Endpoint]

    package init(
        interfaces: @escaping @Sendable () async -> [IPAddress],
        resolve: @escaping @Sendable (_ name: String, _ port: UInt16) async throws -> [Endpoint]
    ) { (self.interfaces, self.resolve) = (interfaces, resolve) }

    /// This one; asks on the pool.
    package init(pool: BlockingPool) {
        self.init(
            interfaces: { (try? await pool.run { Self.ownAddresses() }) ?? [] },
            resolve: { name, port in
                try await pool.run {
                    let found = Self.addresses(of: name).map { Endpoint($0, port) }
                    guard !found.isEmpty else { throw CoreError(.invalid, "\(name) has no address") }
                    return found
                }
            })
    }

    /// One of each family: a server is asked by both. Blocks.
    private static func addresses(of name: String) -> [IPAddress] {
        [AF_INET, AF_INET6].compactMap { family in
            var hints = addrinfo()
            hints.ai_family = family
            hints.ai_socktype = Int32(SOCK_DGRAM.rawValue)
            var list: UnsafeMutablePointer<addrinfo>?
            guard getaddrinfo(name, nil, &hints, &list) == 0 else { return nil }
            defer { freeaddrinfo(list) }
            guard let raw = list?.pointee.ai_addr else { return nil }
            switch family {
            case AF_INET:
                return raw.withMemoryRebound(to: sockaddr_in.self, capacity: 1) { SocketAddress($0.pointee) }.endpoint?
                    .address
            default:
                return raw.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) { SocketAddress($0.pointee) }.endpoint?
                    .address
            }
        }
    }

    /// Of all interfaces. Blocks.
    package static func ownAddresses() -> [IPAddress] {
        ((try? System.enumerateDevices()) ?? []).compactMap { $0.address?.endpoint?.address }
    }
}
