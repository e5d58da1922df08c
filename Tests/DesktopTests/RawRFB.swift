import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Synchronization

@testable import Desktop

/// A small driver over real RFB: enough to see that a server answers, and to move its pointer.
final class PlainDriver: DesktopDriver {
    let size: DesktopSize
    private let connection: RawRFB
    // Apart from the threads on which test bodies block.
    private static let threads = BlockingExecutor(threads: 16)

    init(_ connection: RawRFB) {
        self.connection = connection
        size = connection.size
    }

    static func connect(to endpoint: RFBEndpoint) async throws -> any DesktopDriver {
        let task = Task(executorPreference: Self.threads) {
            let connection =
                switch endpoint {
                case .unix(let path): try RawConnection(unix: path, timeout: 30)
                case .tcp(_, let port): try RawConnection(port: port, timeout: 30)
                }
            return PlainDriver(try RawRFB(connection))
        }
        return try await task.value
    }

    var isAlive: Bool { connection.isOpen }

    func perform(_ action: DriverAction, in space: CoordinateSpace) async throws -> ActionResult {
        try await ask(seconds: 30) { rfb in
            switch action {
            case .move(let point), .click(_, _, let point, _), .scroll(_, _, let point, _):
                try rfb.pointer(0, point.x, point.y)
            default: break
            }
            try rfb.roundTrip()
        }
        return ActionResult()
    }

    func probe(within budget: Duration) async throws {
        try await ask(seconds: max(1, Int(budget.components.seconds))) { try $0.roundTrip() }
    }

    private func ask(seconds: Int, _ body: @escaping @Sendable (RawRFB) throws -> Void) async throws {
        let connection = connection
        let task = Task(executorPreference: Self.threads) {
            do {
                connection.setTimeout(seconds)
                try body(connection)
            } catch {
                throw DesktopError(.connectionLost, "\(error)")
            }
        }
        try await task.value
    }

    func viewerCame() {}
    func viewerSentInput() {}
    func viewerHolds(_ holds: Bool) {}
    func viewerLeft(heldButtons: Bool) async {}
    func releaseAll() async {}
    func close() async { connection.end() }
}

/// A connection that carries RFB.
protocol RFBTransport {
    var descriptor: CInt { get }
    func send(_ data: Data) throws
    func receive(exactly count: Int) throws -> Data
}

extension RawConnection: RFBTransport {}

/// A blocking RFB client over a connection. One thread at a time, which its users see to.
// @unchecked: the lock is held for each exchange.
final class RawRFB: @unchecked Sendable {
    let connection: any RFBTransport
    private let lock = NSLock()
    let size: DesktopSize

    init(_ connection: any RFBTransport) throws {
        self.connection = connection
        _ = try connection.receive(exactly: 12)
        try connection.send(Data("RFB 003.008\n".utf8))
        let types = try connection.receive(exactly: Int(try connection.receive(exactly: 1)[0]))
        guard types.contains(1) else { throw DeadlineExceeded(what: "no security type None") }
        try connection.send(Data([1]))
        _ = try connection.receive(exactly: 4)
        try connection.send(Data([1]))
        let initial = [UInt8](try connection.receive(exactly: 24))
        size = DesktopSize(
            width: Int(initial[0]) << 8 | Int(initial[1]), height: Int(initial[2]) << 8 | Int(initial[3]))
        _ = try connection.receive(exactly: Int(initial[23]))
        // Raw alone.
        try connection.send(Data([2, 0, 0, 1, 0, 0, 0, 0]))
    }

    var isOpen: Bool {
        var byte: UInt8 = 0
        let count = recv(connection.descriptor, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT))
        return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR))
    }

    func setTimeout(_ seconds: Int) {
        var time = timeval(tv_sec: seconds, tv_usec: 0)
        setsockopt(connection.descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
    }

    func pointer(_ mask: UInt8, _ x: Int, _ y: Int) throws {
        try connection.send(Data(RFBClientInspectorTests.pointer(mask, UInt16(x), UInt16(y))))
    }

    /// Asks for one pixel and waits for it.
    func roundTrip() throws {
        try lock.withLock {
            try connection.send(Data([3, 0, 0, 0, 0, 0, 0, 1, 0, 1]))
            try readUpdate()
        }
    }

    /// Asks for the whole picture, so often.
    func requestFrames(_ count: Int) throws {
        let sides = [size.width, size.height].flatMap { [UInt8($0 >> 8), UInt8($0 & 255)] }
        for _ in 0..<count { try connection.send(Data([3, 0, 0, 0, 0, 0] + sides)) }
    }

    /// Reads one whole picture.
    func frame() throws {
        try lock.withLock {
            try requestFrames(1)
            try readUpdate()
        }
    }

    private func readUpdate() throws {
        while true {
            switch try connection.receive(exactly: 1)[0] {
            case 0:
                let head = [UInt8](try connection.receive(exactly: 3))
                for _ in 0..<(Int(head[1]) << 8 | Int(head[2])) {
                    let rectangle = [UInt8](try connection.receive(exactly: 12))
                    let width = Int(rectangle[4]) << 8 | Int(rectangle[5])
                    let height = Int(rectangle[6]) << 8 | Int(rectangle[7])
                    _ = try connection.receive(exactly: width * height * 4)
                }
                return
            case 2: continue
            case 3:
                let head = [UInt8](try connection.receive(exactly: 7))
                let count = head[3...6].reduce(0) { $0 << 8 | Int($1) }
                _ = try connection.receive(exactly: count)
            case let other: throw DeadlineExceeded(what: "server message \(other)")
            }
        }
    }

    func end() { shutdown(connection.descriptor, Int32(SHUT_RDWR)) }
}
