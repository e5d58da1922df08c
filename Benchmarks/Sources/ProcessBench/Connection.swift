import BenchSupport
import Glibc

/// Where the daemon is reached.
enum Address {
    case unix(String)
    /// On 127.0.0.1.
    case tcp(UInt16)
}

/// A blocking connection, as thin as can be.
final class Connection {
    private let descriptor: CInt
    private var buffer = [UInt8](repeating: 0, count: 1 << 18)
    /// The bytes of the buffer that arrived and are not taken yet.
    private var waiting = 0..<0

    /// Takes over a connected socket.
    init(_ descriptor: CInt) { self.descriptor = descriptor }

    convenience init(_ address: Address) throws {
        switch address {
        case .unix(let path):
            self.init(socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0))
            var name = sockaddr_un()
            name.sun_family = sa_family_t(AF_UNIX)
            withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: path.utf8.prefix(107)) }
            try connect(&name)
        case .tcp(let port):
            self.init(socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0))
            var name = loopback(port)
            try connect(&name)
            var on: CInt = 1
            setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<CInt>.size))
        }
    }

    private func connect<Name>(_ name: inout Name) throws {
        let rc = withUnsafeBytes(of: &name) { name in
            name.withMemoryRebound(to: sockaddr.self) {
                Glibc.connect(descriptor, $0.baseAddress, socklen_t(name.count))
            }
        }
        guard rc == 0 else { throw BenchFailure("connect: errno \(errno)") }
    }

    deinit { close(descriptor) }

    func send(_ bytes: [UInt8]) throws {
        var sent = 0
        while sent < bytes.count {
            let n = bytes.withUnsafeBytes { write(descriptor, $0.baseAddress! + sent, bytes.count - sent) }
            guard n > 0 else { throw BenchFailure("write: errno \(errno)") }
            sent += n
        }
    }

    /// Waits for bytes behind those that wait.
    /// - Returns: false at the end.
    private func fill() -> Bool {
        if waiting.isEmpty { waiting = 0..<0 }
        if waiting.upperBound == buffer.count {
            buffer.replaceSubrange(0..<waiting.count, with: Array(buffer[waiting]))
            waiting = 0..<waiting.count
            if waiting.count == buffer.count { buffer += [UInt8](repeating: 0, count: buffer.count) }
        }
        let end = waiting.upperBound
        let n = buffer.withUnsafeMutableBytes { read(descriptor, $0.baseAddress! + end, $0.count - end) }
        guard n > 0 else { return false }
        waiting = waiting.lowerBound..<(end + n)
        return true
    }

    /// Takes the bytes up to and with the mark.
    func take(through mark: StaticString) throws -> [UInt8] {
        while true {
            if let end = buffer[waiting].end(of: mark) { return try take(end) }
            guard fill() else { throw BenchFailure("the daemon closed") }
        }
    }

    func take(_ count: Int) throws -> [UInt8] {
        try discard(count)
        return Array(buffer[(waiting.lowerBound - count)..<waiting.lowerBound])
    }

    func discard(_ count: Int) throws {
        while waiting.count < count { guard fill() else { throw BenchFailure("the daemon closed") } }
        waiting = (waiting.lowerBound + count)..<waiting.upperBound
    }

    /// Reads to the end.
    /// - Returns: how many bytes there were, and the last of them.
    func drain() -> (count: Int, tail: [UInt8]) {
        var count = waiting.count
        var tail = Array(buffer[waiting].suffix(4096))
        waiting = 0..<0
        while case let n = read(descriptor, &buffer, buffer.count), n > 0 {
            count += n
            tail = Array((tail + buffer[..<n].suffix(4096)).suffix(4096))
        }
        return (count, tail)
    }
}

extension Collection where Self: ContiguousBytesOfUInt8 {
    /// How many bytes there are up to and with the mark; nil where it is not.
    func end(of mark: StaticString) -> Int? {
        contiguous { bytes in
            let count = mark.utf8CodeUnitCount
            guard let base = bytes.baseAddress, bytes.count >= count else { return nil }
            var start = base
            let last = base + bytes.count - count
            while start <= last, let found = memchr(start, CInt(mark.utf8Start.pointee), last - start + 1) {
                if memcmp(found, mark.utf8Start, count) == 0 { return UnsafeRawPointer(found) - base + count }
                start = UnsafeRawPointer(found) + 1
            }
            return nil
        }
    }

    func contains(_ mark: StaticString) -> Bool { end(of: mark) != nil }
}

/// Arrays of bytes and their slices.
protocol ContiguousBytesOfUInt8 {
    func contiguous<T>(_ body: (UnsafeRawBufferPointer) -> T) -> T
}
extension [UInt8]: ContiguousBytesOfUInt8 {
    func contiguous<T>(_ body: (UnsafeRawBufferPointer) -> T) -> T { withUnsafeBytes(body) }
}
extension ArraySlice<UInt8>: ContiguousBytesOfUInt8 {
    func contiguous<T>(_ body: (UnsafeRawBufferPointer) -> T) -> T { withUnsafeBytes(body) }
}

/// 127.0.0.1 with a port.
func loopback(_ port: UInt16) -> sockaddr_in {
    var name = sockaddr_in()
    name.sin_family = sa_family_t(AF_INET)
    name.sin_port = port.bigEndian
    name.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    return name
}
