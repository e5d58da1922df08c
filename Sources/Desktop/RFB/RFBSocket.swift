import AgentCore
import CPlatform
import Glibc

/// Connects to VNC servers.
enum RFBSocket {
    /// A connected, non-blocking descriptor below FD_SETSIZE: libvncclient waits with select().
    /// Blocks for at most the budget for each address.
    /// - Throws: ``DesktopError`` `.connectionLost` that names the address; `.failed` when no usable descriptor
    ///   is left.
    static func connect(to endpoint: RFBEndpoint, within budget: Duration) throws(DesktopError) -> CInt {
        switch endpoint {
        case .unix(let path): return try connectUnix(path, budget)
        case .tcp(let host, let port): return try connectTCP(host, port, budget)
        }
    }

    private static func connectUnix(_ path: String, _ budget: Duration) throws(DesktopError) -> CInt {
        guard path.utf8.count <= wa_unix_path_max() else {
            throw DesktopError(.failed, "The path of the VNC server's socket is too long: \(path)")
        }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let descriptor = try open(AF_UNIX, budget)
        let rc = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard rc == 0 else { throw refused(path, descriptor) }
        wa_set_nonblocking(descriptor)
        return descriptor
    }

    private static func connectTCP(_ host: String, _ port: Int, _ budget: Duration) throws(DesktopError) -> CInt {
        var hints = addrinfo()
        hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
        hints.ai_flags = AI_NUMERICSERV
        var list: UnsafeMutablePointer<addrinfo>?
        let rc = getaddrinfo(host, String(port), &hints, &list)
        guard rc == 0 else {
            throw DesktopError(
                .connectionLost, "The VNC server at \(host) was not found: \(String(cString: gai_strerror(rc)))")
        }
        defer { freeaddrinfo(list) }
        var failure = DesktopError(.connectionLost, "The VNC server at \(host) has no address.")
        var next = list
        while let info = next {
            next = info.pointee.ai_next
            let descriptor = try open(info.pointee.ai_family, budget)
            guard Glibc.connect(descriptor, info.pointee.ai_addr, info.pointee.ai_addrlen) == 0 else {
                failure = refused("\(host):\(port)", descriptor)
                continue
            }
            // Messages are small, and we wait for their answers.
            var on: CInt = 1
            setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<CInt>.size))
            wa_set_nonblocking(descriptor)
            return descriptor
        }
        throw failure
    }

    private static func open(_ family: CInt, _ budget: Duration) throws(DesktopError) -> CInt {
        let descriptor = socket(family, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else {
            throw DesktopError(.failed, "cannot create a socket for the desktop: \(errnoText(errno))")
        }
        guard descriptor < 1_024 else {
            close(descriptor)
            throw DesktopError(
                .failed, "The desktop's connection needs a file descriptor below 1024, and all of those are in use.")
        }
        // Bounds connect() as well.
        let (seconds, fraction) = budget.components
        var time = timeval(tv_sec: Int(seconds), tv_usec: Int(fraction / 1_000_000_000_000))
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
        return descriptor
    }

    /// Closes the descriptor, too.
    private static func refused(_ address: String, _ descriptor: CInt) -> DesktopError {
        let why = errnoText(errno)
        close(descriptor)
        return DesktopError(.connectionLost, "The VNC server at \(address) does not accept connections.", detail: why)
    }
}
