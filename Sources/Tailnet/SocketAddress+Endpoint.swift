import Glibc
import IPAddresses
import NIOCore

extension SocketAddress {
    /// IPv4 endpoints become IPv4 addresses.
    package init(_ endpoint: Endpoint) {
        if let v4 = endpoint.address.v4 {
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = endpoint.port.bigEndian
            address.sin_addr.s_addr = v4.bigEndian
            self.init(address)
        } else {
            var address = sockaddr_in6()
            address.sin6_family = sa_family_t(AF_INET6)
            address.sin6_port = endpoint.port.bigEndian
            address.sin6_scope_id = endpoint.scope
            let (high, low) = (endpoint.address.high.bigEndian, endpoint.address.low.bigEndian)
            withUnsafeMutableBytes(of: &address.sin6_addr) { bytes in
                bytes.storeBytes(of: high, as: UInt64.self)
                bytes.storeBytes(of: low, toByteOffset: 8, as: UInt64.self)
            }
            self.init(address)
        }
    }

    /// nil for a unix socket.
    package var endpoint: Endpoint? {
        switch self {
        case .v4(let v4):
            return Endpoint(
                IPAddress(v4: UInt32(bigEndian: v4.address.sin_addr.s_addr)), UInt16(bigEndian: v4.address.sin_port))
        case .v6(let v6):
            let (high, low) = withUnsafeBytes(of: v6.address.sin6_addr) { bytes in
                (bytes.loadUnaligned(as: UInt64.self), bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
            }
            let address = IPAddress(high: UInt64(bigEndian: high), low: UInt64(bigEndian: low))
            return Endpoint(
                address, UInt16(bigEndian: v6.address.sin6_port),
                scope: address.isLinkLocal ? v6.address.sin6_scope_id : 0)
        case .unixDomainSocket: return nil
        }
    }
}
