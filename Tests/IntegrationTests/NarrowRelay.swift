import AgentTestSupport
import Glibc

/// Passes one TCP connection on to a port of 127.0.0.1, with buffers that take little at once, as slow networks do.
final class NarrowRelay: Sendable {
    let port: Int
    private let listener: CInt

    init(to target: Int) throws {
        let listener = Self.socket()
        self.listener = listener
        var address = Self.address(0)
        let bound = Self.with(&address) { bind(listener, $0, $1) }
        guard bound == 0, listen(listener, 1) == 0 else { throw DeadlineExceeded(what: "a port to listen on") }
        _ = Self.with(&address) { pointer, length in
            var length = length
            return getsockname(listener, pointer, &length)
        }
        port = Int(UInt16(bigEndian: address.sin_port))
        Task(executorPreference: BlockingExecutor.shared) {
            let (client, server) = (accept(listener, nil, nil), Self.socket())
            var address = Self.address(UInt16(target))
            _ = Self.with(&address) { connect(server, $0, $1) }
            async let back: Void = Self.copy(from: server, to: client)
            async let forth: Void = Self.copy(from: client, to: server)
            _ = await (back, forth)
            close(client)
            close(server)
        }
    }

    deinit {
        // Wakes one that still waits.
        shutdown(listener, Int32(SHUT_RDWR))
        close(listener)
    }

    private static func copy(from: CInt, to: CInt) async {
        var area = [UInt8](repeating: 0, count: 4096)
        while case let count = read(from, &area, area.count), count > 0 {
            guard send(to, area, count, Int32(MSG_NOSIGNAL)) == count else { break }
        }
        shutdown(to, Int32(SHUT_WR))
        // Or the other direction would wait for a reader that is gone.
        shutdown(from, Int32(SHUT_RD))
    }

    private static func socket() -> CInt {
        let descriptor = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        for option in [SO_RCVBUF, SO_SNDBUF] {
            var size: CInt = 8192
            setsockopt(descriptor, SOL_SOCKET, option, &size, socklen_t(MemoryLayout<CInt>.size))
        }
        return descriptor
    }

    private static func address(_ port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        return address
    }

    private static func with(
        _ address: inout sockaddr_in, _ body: (UnsafeMutablePointer<sockaddr>, socklen_t) -> CInt
    ) -> CInt {
        withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
        }
    }
}
