import BenchSupport
import Glibc

// The least that the same bytes can cost: blocking sockets and a thread that does nothing else.

func readAll(_ descriptor: CInt, _ count: Int, _ area: inout [UInt8]) -> Bool {
    var left = count
    while left > 0 {
        let n = read(descriptor, &area, min(left, area.count))
        guard n > 0 else { return false }
        left -= n
    }
    return true
}

func writeAll(_ descriptor: CInt, _ count: Int, _ area: [UInt8]) -> Bool {
    var left = count
    while left > 0 {
        let n = write(descriptor, area, min(left, area.count))
        guard n > 0 else { return false }
        left -= n
    }
    return true
}

private func loopback(_ port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    return address
}

private func withAddress<R>(_ address: inout sockaddr_in, _ body: (UnsafeMutablePointer<sockaddr>) -> R) -> R {
    withUnsafeMutablePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0) }
    }
}

/// Serves floors on a thread: a connection begins with the bytes of a request and of a response.
/// - Returns: the port.
func serveFloor() throws -> UInt16 {
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var address = loopback(0)
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    guard withAddress(&address, { bind(listener, $0, size) }) == 0, listen(listener, 8) == 0,
        withAddress(&address, { getsockname(listener, $0, &size) }) == 0
    else { throw BenchFailure("cannot listen") }
    var thread = pthread_t()
    pthread_create(
        &thread, nil,
        { argument in
            let listener = CInt(Int(bitPattern: argument))
            var area = [UInt8](repeating: 7, count: 65_536)
            while case let peer = accept(listener, nil, nil), peer >= 0 {
                FloorConnection.noDelay(peer)
                var sizes: (UInt64, UInt64) = (0, 0)
                guard withUnsafeMutableBytes(of: &sizes, { read(peer, $0.baseAddress, 16) }) == 16 else { continue }
                while readAll(peer, Int(sizes.0), &area), writeAll(peer, Int(sizes.1), area) {}
                close(peer)
            }
            return nil
        }, UnsafeMutableRawPointer(bitPattern: Int(listener)))
    return UInt16(bigEndian: address.sin_port)
}

/// The client of a floor.
final class FloorConnection {
    private let descriptor: CInt
    private let sizes: (request: Int, response: Int)
    private var area = [UInt8](repeating: 7, count: 65_536)

    static func noDelay(_ descriptor: CInt) {
        var on: CInt = 1
        setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<CInt>.size))
    }

    init(port: Int, request: Int, response: Int) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        sizes = (request, response)
        var address = loopback(UInt16(port))
        guard withAddress(&address, { connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) }) == 0 else {
            throw BenchFailure("cannot connect to the floor")
        }
        Self.noDelay(descriptor)
        var header: (UInt64, UInt64) = (UInt64(request), UInt64(response))
        _ = withUnsafeBytes(of: &header) { write(descriptor, $0.baseAddress, 16) }
    }

    deinit { close(descriptor) }

    /// Seconds from the request's first byte to the response's last.
    func exchange() throws -> Double {
        let begin = seconds()
        guard writeAll(descriptor, sizes.request, area), readAll(descriptor, sizes.response, &area) else {
            throw BenchFailure("the floor is gone")
        }
        return seconds() - begin
    }
}
