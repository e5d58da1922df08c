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
        var bytes: [UInt8] = []
        var area = [UInt8](repeating: 0, count: 1 << 18)
        while true {
            let count = read(descriptor, &area, area.count)
            guard count > 0 else { throw BenchFailure("the daemon closed") }
            bytes += area[..<count]
            guard let end = Self.end(of: "\r\n\r\n", in: bytes), let start = Self.end(of: "Content-Length: ", in: bytes)
            else { continue }
            let length = bytes[start...].prefix { $0 != 13 }.reduce(0) { $0 * 10 + Int($1 &- 48) }
            guard bytes.count >= end + length else { continue }
            let body = Array(bytes[end...])
            guard bytes.starts(with: "HTTP/1.1 200".utf8) else {
                throw BenchFailure("\(path): \(String(decoding: body, as: UTF8.self))")
            }
            return body
        }
    }

    private static func end(of mark: String, in bytes: [UInt8]) -> Int? {
        let mark = Array(mark.utf8)
        return bytes.indices.first { bytes[$0...].starts(with: mark) }.map { $0 + mark.count }
    }
}
