import BenchSupport
import Glibc

/// A keep-alive connection to the daemon's file API.
final class FilesClient {
    private let descriptor: CInt

    /// - Parameter path: of the daemon's unix socket.
    init(_ path: String) throws {
        descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var name = sockaddr_un()
        name.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: path.utf8.prefix(107)) }
        let rc = withUnsafeBytes(of: &name) { name in
            name.withMemoryRebound(to: sockaddr.self) {
                connect(descriptor, $0.baseAddress, socklen_t(name.count))
            }
        }
        guard rc == 0 else { throw BenchFailure("connect: errno \(errno)") }
    }

    deinit { close(descriptor) }

    /// Sends JSON; the body of the answer.
    func post(_ path: String, _ json: String) throws -> [UInt8] {
        let text =
            "POST /api/v0/\(path) HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            + "Content-Length: \(json.utf8.count)\r\n\r\n\(json)"
        guard text.utf8.count == write(descriptor, text, text.utf8.count) else { throw BenchFailure("write: \(errno)") }
        return try answer(to: path)
    }

    /// The body of an answer with a length.
    private func answer(to path: String) throws -> [UInt8] {
        var (bytes, length) = try head(path)
        var area = [UInt8](repeating: 0, count: 1 << 18)
        while bytes.count < length {
            let count = read(descriptor, &area, area.count)
            guard count > 0 else { throw BenchFailure("the daemon closed") }
            bytes += area[..<count]
        }
        return bytes
    }

    /// Reads the head of an answer: what came behind it, and the body's length.
    private func head(_ path: String) throws -> ([UInt8], Int) {
        var bytes: [UInt8] = []
        var area = [UInt8](repeating: 0, count: 1 << 18)
        while true {
            let count = read(descriptor, &area, area.count)
            guard count > 0 else { throw BenchFailure("the daemon closed") }
            bytes += area[..<count]
            guard let end = Self.end(of: "\r\n\r\n", in: bytes), let start = Self.end(of: "Content-Length: ", in: bytes)
            else { continue }
            let length = bytes[start...].prefix { $0 != 13 }.reduce(0) { $0 * 10 + Int($1 &- 48) }
            guard bytes.starts(with: "HTTP/1.1 200".utf8) else {
                throw BenchFailure("\(path): \(String(decoding: bytes, as: UTF8.self))")
            }
            return (Array(bytes[end...]), length)
        }
    }

    /// Reads a body and throws it away.
    /// - Parameter look: called now and then while it comes.
    func download(_ path: String, expect size: Int, look: () -> Void = {}) throws {
        let text = "GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n"
        guard text.utf8.count == write(descriptor, text, text.utf8.count) else { throw BenchFailure("write: \(errno)") }
        var (bytes, length) = try head(path)
        guard length == size else { throw BenchFailure("\(path): \(length) bytes") }
        length -= bytes.count
        bytes = [UInt8](repeating: 0, count: 1 << 18)
        var reads = 0
        while length > 0 {
            let count = read(descriptor, &bytes, min(bytes.count, length))
            guard count > 0 else { throw BenchFailure("the daemon closed") }
            length -= count
            reads += 1
            if reads % 1024 == 0 { look() }
        }
    }

    /// Sends a file as a body.
    func upload(_ path: String, from source: String, size: Int) throws {
        let text = "POST \(path) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(size)\r\n\r\n"
        guard text.utf8.count == write(descriptor, text, text.utf8.count) else { throw BenchFailure("write: \(errno)") }
        let file = open(source, O_RDONLY)
        defer { close(file) }
        var area = [UInt8](repeating: 0, count: 1 << 20)
        while case let count = read(file, &area, area.count), count > 0 {
            var sent = 0
            while sent < count {
                let n = area.withUnsafeBytes { write(descriptor, $0.baseAddress! + sent, count - sent) }
                guard n > 0 else { throw BenchFailure("write: errno \(errno)") }
                sent += n
            }
        }
        _ = try answer(to: path)
    }

    private static func end(of mark: String, in bytes: [UInt8]) -> Int? {
        let mark = Array(mark.utf8)
        return bytes.indices.first { bytes[$0...].starts(with: mark) }.map { $0 + mark.count }
    }
}
