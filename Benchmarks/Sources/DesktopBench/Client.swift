import BenchSupport
import Glibc

/// Buffered reading of one descriptor.
final class Reader {
    let descriptor: CInt
    private var buffer = [UInt8](repeating: 0, count: 1 << 20)
    private var start = 0
    private var end = 0

    init(_ descriptor: CInt) { self.descriptor = descriptor }

    deinit { close(descriptor) }

    private func fill() throws {
        start = 0
        end = buffer.withUnsafeMutableBytes { read(descriptor, $0.baseAddress, $0.count) }
        guard end > 0 else {
            end = 0
            throw BenchFailure("the connection ended")
        }
    }

    func byte() throws -> UInt8 {
        if start == end { try fill() }
        defer { start += 1 }
        return buffer[start]
    }

    func bytes(_ count: Int) throws -> [UInt8] { try (0..<count).map { _ in try byte() } }

    /// Takes so many bytes, or what is there.
    func some(atMost count: Int) throws -> ArraySlice<UInt8> {
        if start == end { try fill() }
        let taken = min(count, end - start)
        defer { start += taken }
        return buffer[start..<start + taken]
    }

    func skip(_ count: Int) throws {
        var left = count
        while left > 0 {
            if start == end { try fill() }
            let taken = min(left, end - start)
            start += taken
            left -= taken
        }
    }

    func line() throws -> String {
        var text: [UInt8] = []
        while case let byte = try byte(), byte != 10 { if byte != 13 { text.append(byte) } }
        return String(decoding: text, as: UTF8.self)
    }

    func send(_ bytes: [UInt8]) throws {
        var sent = 0
        while sent < bytes.count {
            let n = bytes.withUnsafeBytes { write(descriptor, $0.baseAddress! + sent, $0.count - sent) }
            guard n > 0 else { throw BenchFailure("write: errno \(errno)") }
            sent += n
        }
    }

    /// The head of an HTTP answer: its status line and length.
    func head() throws -> (status: String, length: Int) {
        let status = try line()
        var length = 0
        while case let field = try line(), !field.isEmpty {
            if field.lowercased().hasPrefix("content-length: ") { length = Int(field.dropFirst(16)) ?? 0 }
        }
        return (status, length)
    }
}

/// A blocking keep-alive connection to the daemon.
struct Client {
    private let reader: Reader

    init(_ path: String) throws { reader = Reader(try connectUnix(path)) }

    /// Performs an action; the bytes of its answer.
    @discardableResult
    func action(_ fields: String) throws -> Int {
        try request("POST", "/api/v0/desktop/action", "{\(fields)}").bytes
    }

    func request(_ method: String, _ path: String, _ body: String? = nil) throws -> (text: String, bytes: Int) {
        var text = "\(method) \(path) HTTP/1.1\r\nHost: localhost\r\n"
        if let body { text += "Content-Type: application/json\r\nContent-Length: \(body.utf8.count)\r\n" }
        try reader.send(Array((text + "\r\n" + (body ?? "")).utf8))
        let (status, length) = try reader.head()
        let kept = try reader.bytes(min(length, 2000))
        try reader.skip(length - kept.count)
        let answer = String(decoding: kept, as: UTF8.self)
        guard status.contains(" 200 ") else { throw BenchFailure("\(body ?? path): \(status) \(answer)") }
        return (answer, length)
    }
}

/// Where RFB's bytes come from.
protocol Stream: AnyObject {
    func bytes(_ count: Int) throws -> [UInt8]
    func skip(_ count: Int) throws
    func send(_ bytes: [UInt8]) throws
}

extension Reader: Stream {}

/// The same through the daemon's WebSocket (RFC 6455), as plain as can be.
final class WebSocketStream: Stream {
    private let reader: Reader
    /// Bytes of the present message that are still to come.
    private var left = 0

    init(_ path: String) throws {
        reader = Reader(try connectUnix(path))
        let request =
            "GET /api/v0/desktop/vnc HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            + "Sec-WebSocket-Protocol: binary\r\n\r\n"
        try reader.send(Array(request.utf8))
        let (status, length) = try reader.head()
        guard status.contains(" 101 ") else {
            throw BenchFailure("\(status) \(String(decoding: try reader.bytes(length), as: UTF8.self))")
        }
    }

    private func nextMessage() throws {
        while left == 0 {
            let opcode = try reader.byte() & 0x0f
            var length = Int(try reader.byte() & 0x7f)
            if length >= 126 { length = try reader.bytes(length == 126 ? 2 : 8).reduce(0) { $0 << 8 | Int($1) } }
            switch opcode {
            case 0, 1, 2: left = length
            case 9: try frame(10, try reader.bytes(length))
            case 10: try reader.skip(length)
            default: throw BenchFailure("the daemon closed the WebSocket")
            }
        }
    }

    func bytes(_ count: Int) throws -> [UInt8] {
        var all: [UInt8] = []
        while all.count < count {
            try nextMessage()
            let more = try reader.some(atMost: min(left, count - all.count))
            left -= more.count
            all += more
        }
        return all
    }

    func skip(_ count: Int) throws {
        var skipped = 0
        while skipped < count {
            try nextMessage()
            let more = min(left, count - skipped)
            try reader.skip(more)
            left -= more
            skipped += more
        }
    }

    func send(_ bytes: [UInt8]) throws { try frame(2, bytes) }

    private func frame(_ opcode: UInt8, _ bytes: [UInt8]) throws {
        // All that is sent is short; a mask of zeros changes nothing.
        guard bytes.count < 126 else { throw BenchFailure("a long message") }
        try reader.send([0x80 | opcode, 0x80 | UInt8(bytes.count), 0, 0, 0, 0] + bytes)
    }
}

/// A client of RFC 6143 that asks for raw pictures and throws them away.
final class RFBClient {
    private let stream: any Stream
    let width: Int
    let height: Int
    private let pixelBytes: Int

    init(_ stream: any Stream) throws {
        self.stream = stream
        _ = try stream.bytes(12)
        try stream.send(Array("RFB 003.008\n".utf8))
        _ = try stream.bytes(Int(try stream.bytes(1)[0]))
        try stream.send([1])
        guard try stream.bytes(4) == [0, 0, 0, 0] else { throw BenchFailure("refused by the VNC server") }
        try stream.send([1])
        let initial = try stream.bytes(24)
        width = Int(initial[0]) << 8 | Int(initial[1])
        height = Int(initial[2]) << 8 | Int(initial[3])
        pixelBytes = Int(initial[4]) / 8
        _ = try stream.bytes(initial[20..<24].reduce(0) { $0 << 8 | Int($1) })
        // SetEncodings: raw alone.
        try stream.send([2, 0, 0, 1, 0, 0, 0, 0])
    }

    /// Asks for the whole picture and reads it; its bytes.
    func frame() throws -> Int {
        let (w, h) = (UInt16(width), UInt16(height))
        try stream.send([3, 0, 0, 0, 0, 0, UInt8(w >> 8), UInt8(w & 255), UInt8(h >> 8), UInt8(h & 255)])
        var area = 0
        while area < width * height {
            switch try stream.bytes(1)[0] {
            case 0:
                let head = try stream.bytes(3)
                for _ in 0..<(Int(head[1]) << 8 | Int(head[2])) {
                    let rectangle = try stream.bytes(12)
                    let size =
                        (Int(rectangle[4]) << 8 | Int(rectangle[5])) * (Int(rectangle[6]) << 8 | Int(rectangle[7]))
                    try stream.skip(size * pixelBytes)
                    area += size
                }
            case 2: break
            case 3:
                let head = try stream.bytes(7)
                try stream.skip(head[3..<7].reduce(0) { $0 << 8 | Int($1) })
            case let other: throw BenchFailure("an RFB message of type \(other)")
            }
        }
        return area * pixelBytes
    }
}
