import AgentCore
import AgentHTTP
import AgentTestSupport
import Foundation
import Glibc
import Logging
import NIOCore
import Synchronization

@testable import Desktop

/// The desktop's routes, served on a unix socket and on TCP.
final class DesktopServer: Sendable {
    let socket: String
    let port: Int
    let world: SessionWorld
    let opened = Mutex<[String]>([])
    let activity = Atomic<Int>(0)
    private let server: HTTPServer

    /// - Parameters:
    ///   - novnc: the viewer's directory.
    ///   - token: what TCP asks for.
    ///   - endpoint: bridges viewers there, at `/fake`, without a session.
    init(
        _ world: SessionWorld, novnc: String = ViewerFiles.defaultDirectory, token: String? = nil,
        endpoint: RFBEndpoint? = nil, driver: (any DesktopDriver)? = nil
    ) async throws {
        self.world = world
        socket = "\(world.directory.path)/http.sock"
        unlink(socket)
        let logger = Logger(label: "test") { [log = world.log] _ in log }
        let viewer = ViewerFiles(directory: novnc, pool: world.pool)
        let shared = Shared()
        let routes = AgentRoutes()
        DesktopRoutes(
            session: world.session, viewer: viewer,
            hooks: .init(
                open: { command, display, _ in shared.server?.opened.withLock { $0.append("\(command) on \(display)") }
                },
                activity: { shared.server?.activity.add(1, ordering: .relaxed) }, recordings: { 3 }),
            clock: world.clock, executor: world.executor, logger: logger
        ).add(to: routes)
        if let endpoint, let driver {
            let context = ViewerBridge.Context(
                desktop: RunningDesktop(display: ":0", endpoint: endpoint, vncPort: 0, since: 0, driver: driver),
                hub: world.session.hub, metrics: world.session.metrics, executor: world.executor, logger: logger)
            routes.get("/fake") { request, requestContext in
                try WebSocketUpgrade.respondWithBytes(to: request, context: requestContext) {
                    try ViewerBridge.install(context, on: $0)
                }
            }
        }
        let service = HTTPService(routes: routes, metrics: world.metrics, logger: logger)
        server = HTTPServer(group: world.group, metrics: world.metrics, logger: logger)
        server.start(service)
        let uid = geteuid()
        try await server.serve(
            try UnixListener.bind(path: socket), policy: AccessPolicy(tokenRule: .none, ownUID: uid))
        port = try await server.serve(
            host: "127.0.0.1", port: 0,
            policy: AccessPolicy(
                tokenRule: token.map { .required(Secret($0)) } ?? .none, ownUID: uid, page: viewer.page))
        shared.set(self)
    }

    private final class Shared: Sendable {
        private let box = Mutex<DesktopServer?>(nil)
        var server: DesktopServer? { box.withLock { $0 } }
        func set(_ server: DesktopServer) { box.withLock { $0 = server } }
    }

    /// Ends in the daemon's order: nothing new is begun, then the server stops.
    func stop() async {
        world.session.beginShutdown()
        await server.stop()
    }

    func beginStop() -> Task<Void, Never> { Task(executorPreference: world.executor) { await self.stop() } }

    func connect(tcp: Bool = false) throws -> RawConnection {
        tcp ? try RawConnection(port: port, timeout: 60) : try RawConnection(unix: socket, timeout: 60)
    }

    private static let threads = BlockingExecutor(threads: 24)

    /// Runs something that blocks off the cooperative threads.
    func blocking<T: Sendable>(_ body: @escaping @Sendable (DesktopServer) throws -> T) async throws -> T {
        let task = Task(executorPreference: Self.threads) { try body(self) }
        return try await task.value
    }

    func action(_ json: String) throws -> RawConnection.Response {
        try connect().request("POST", "/api/v0/desktop/action", body: json)
    }
}

/// A viewer's WebSocket: the byte stream inside.
final class TestViewer: RFBTransport {
    private let connection: RawConnection
    private var buffer = Data()
    private(set) var closeCode: Int?
    let response: RawConnection.Response

    var descriptor: CInt { connection.descriptor }

    init(
        _ connection: RawConnection, path: String = "/api/v0/desktop/vnc", headers: [String: String] = [:]
    ) throws {
        self.connection = connection
        var all = [
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": Data((0..<16).map { UInt8($0) }).base64EncodedString(),
        ]
        all.merge(headers) { _, new in new }
        response = try connection.request("GET", path, headers: all)
        guard response.status == 101 else {
            throw DeadlineExceeded(what: "status \(response.status): \(response.text)")
        }
    }

    func send(_ data: Data) throws { try send(0x82, data) }

    private func send(_ first: UInt8, _ data: Data) throws {
        var frame = Data([first])
        if data.count < 126 {
            frame.append(0x80 | UInt8(data.count))
        } else if data.count < 65536 {
            frame.append(contentsOf: [0x80 | 126, UInt8(data.count >> 8), UInt8(data.count & 255)])
        } else {
            frame.append(0x80 | 127)
            for shift in stride(from: 56, through: 0, by: -8) { frame.append(UInt8(data.count >> shift & 255)) }
        }
        // A key of zeros masks nothing.
        frame.append(contentsOf: [0, 0, 0, 0])
        try connection.send(frame + data)
    }

    func receive(exactly count: Int) throws -> Data {
        while buffer.count < count {
            guard try readFrame() else {
                throw DeadlineExceeded(what: "closed with \(closeCode ?? 0)")
            }
        }
        let data = Data(buffer.prefix(count))
        buffer = Data(buffer.dropFirst(count))
        return data
    }

    /// Reads to the end and gives the close code, if there was one.
    func readClose() throws -> Int? {
        while try readFrame() { buffer = Data() }
        return closeCode
    }

    private func readFrame() throws -> Bool {
        let head = try connection.receive(atMost: 1)
        guard let first = head.first else { return false }
        var count = Int(try connection.receive(exactly: 1)[0])
        if count >= 126 {
            count = try connection.receive(exactly: count == 126 ? 2 : 8).reduce(0) { $0 << 8 | Int($1) }
        }
        let payload = try connection.receive(exactly: count)
        switch first & 0x0F {
        case 2, 0: buffer += payload
        case 8:
            closeCode = payload.count >= 2 ? Int(payload[0]) << 8 | Int(payload[1]) : nil
            try? send(0x88, payload.prefix(2))
            return false
        case 9: try send(0x8A, payload)
        default: break
        }
        return true
    }

    /// Closes in order.
    func close() throws { try send(0x88, Data([3, 232])) }
}

/// A VNC server of which a test says every byte.
final class FakeVNC: Sendable {
    let path: String
    private let listener: CInt

    init(_ directory: TemporaryDirectory) throws {
        path = "\(directory.path)/fake.sock"
        listener = try Self.listen(path)
    }

    private static func listen(_ path: String) throws -> CInt {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let rc = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard rc == 0, Glibc.listen(descriptor, 16) == 0 else { throw DeadlineExceeded(what: "listen on \(path)") }
        return descriptor
    }

    deinit { close(listener) }

    /// The next connection; blocks.
    func accept() -> CInt { Glibc.accept(listener, nil, nil) }

    /// All that comes until the end of the stream; blocks.
    static func readAll(_ descriptor: CInt) -> [UInt8] {
        var bytes: [UInt8] = []
        var area = [UInt8](repeating: 0, count: 65536)
        while case let count = read(descriptor, &area, area.count), count > 0 { bytes += area.prefix(count) }
        return bytes
    }
}

/// Records the calls of a bridge.
final class RecordingDriver: DesktopDriver {
    let left = Mutex<[Bool]>([])
    let inputs = Atomic<Int>(0)
    let came = Atomic<Int>(0)
    let holds = Mutex<[Bool]>([])
    var size: DesktopSize { DesktopSize(width: 1, height: 1) }
    var isAlive: Bool { true }
    func perform(_ action: DriverAction, in space: CoordinateSpace) async throws -> ActionResult { ActionResult() }
    func probe(within budget: Duration) async throws {}
    func viewerCame() { came.add(1, ordering: .relaxed) }
    func viewerSentInput() { inputs.add(1, ordering: .relaxed) }
    func viewerHolds(_ holds: Bool) { self.holds.withLock { $0.append(holds) } }
    func viewerLeft(heldButtons: Bool) async { left.withLock { $0.append(heldButtons) } }
    func releaseAll() async {}
    func close() async {}
}

/// Runs the body with a server over a world and ends both in order.
func withServer<T: Sendable>(
    _ world: SessionWorld, novnc: String = ViewerFiles.defaultDirectory, token: String? = nil,
    endpoint: RFBEndpoint? = nil, driver: (any DesktopDriver)? = nil, _ body: (DesktopServer) async throws -> T
) async throws -> T {
    try await withWorld(world) { world in
        let server = try await DesktopServer(world, novnc: novnc, token: token, endpoint: endpoint, driver: driver)
        do {
            let result = try await body(server)
            await server.stop()
            return result
        } catch {
            await server.stop()
            throw error
        }
    }
}
