import AgentTestSupport
import Foundation
import Glibc
import IPAddresses
import Logging
import NIOCore
import NIOPosix
import NetStack
import Sodium
import Synchronization
import WireGuard

@testable import Tailnet

let serverAddress = IPAddress(high: 0xfd7a_115c_a1e0_0001, low: 1)
let clientAddress = IPAddress(high: 0xfd7a_115c_a1e0_0001, low: 2)

/// Two nodes of ours on UDP at loopback: one serves, the other one connects.
final class TunnelWorld: Sendable {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 3)
    let server: WireGuardInterface
    let client: WireGuardInterface
    let impairer: Impairer
    /// Connections to the HTTP port, with their peer.
    let http = Mutex<[Endpoint]>([])
    let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }

    private init(path: Impairer.Path, ownPorts: Set<UInt16>, limits: NetStackLimits, name: String?) async throws {
        var random = SystemRandomNumberGenerator()
        let (serverKey, clientKey) = (try PrivateKey(random: &random), try PrivateKey(random: &random))
        func text(_ key: PrivateKey) -> String { key.secret.withBytes { Data($0).base64EncodedString() } }
        func text(_ key: PublicKey) -> String { Data(key.bytes).base64EncodedString() }
        let loops = Array(group.makeIterator())
        server = try await WireGuardInterface.open(
            WireGuardConfiguration(
                """
                [Interface]
                PrivateKey = \(text(serverKey))
                Address = \(serverAddress)/128
                [Peer]
                PublicKey = \(text(clientKey.publicKey))
                AllowedIPs = \(clientAddress)/128
                """), limits: limits, on: loops[0], logger: logger, resolver: TunnelWorld.noNames)
        impairer = try await Impairer(to: server.port, path, on: loops[2])
        let endpoint = try impairer.endpoint
        client = try await WireGuardInterface.open(
            WireGuardConfiguration(
                """
                [Interface]
                PrivateKey = \(text(clientKey))
                Address = \(clientAddress)/128
                [Peer]
                PublicKey = \(text(serverKey.publicKey))
                AllowedIPs = \(serverAddress)/128
                Endpoint = \(name.map { "\($0):\(endpoint.port)" } ?? "\(endpoint)")
                """), limits: limits, on: loops[1], logger: logger
        ) { _, port in Endpoint(endpoint.address, port) }
        let ports = TunnelPorts.Configuration(
            services: [
                TunnelPorts.speedTest: { channel, _ in try SpeedTest.serve(channel) },
                TunnelPorts.http: { [weak self] _, peer in self?.http.withLock { $0.append(peer) } },
            ], ownUDPPorts: [server.port], isOwnPort: { ownPorts.contains($0) })
        try await loops[0].submit { [server] in server.start(ports) }.get()
        try await loops[1].submit { [client] in
            client.start(.init(services: [:]))
        }.get()
    }

    private static func noNames(_ name: String, _ port: UInt16) async throws -> Endpoint { throw ChannelError.eof }

    /// - Parameter name: as which the client knows the server, instead of by its address.
    static func run(
        path: Impairer.Path = .init(), ownPorts: Set<UInt16> = [], limits: NetStackLimits = .init(),
        name: String? = nil, _ body: (TunnelWorld) async throws -> Void
    ) async throws {
        let world = try await TunnelWorld(path: path, ownPorts: ownPorts, limits: limits, name: name)
        do {
            try await body(world)
            await world.end()
        } catch {
            await world.end()
            throw error
        }
    }

    private func end() async {
        for interface in [client, server] { try? await interface.tunnel.loop.submit { interface.close() }.get() }
        await impairer.close()
        try? await group.shutdownGracefully()
    }

    /// Looks at something on the loop of a node.
    func look<R: Sendable>(at node: WireGuardInterface, _ body: @escaping @Sendable (Tunnel) -> R) async throws -> R {
        try await node.tunnel.loop.submit { body(node.tunnel) }.get()
    }

    /// A connection from the client to a port of the server.
    func connect(_ port: Int) async throws -> NIOAsyncChannel<ByteBuffer, ByteBuffer> {
        let tunnel = client.tunnel
        return try await tunnel.loop.flatSubmit {
            let wrapped = tunnel.loop.makePromise(of: NIOAsyncChannel<ByteBuffer, ByteBuffer>.self)
            tunnel.connect(to: Endpoint(serverAddress, UInt16(port))) { channel in
                wrapped.succeed(
                    try NIOAsyncChannel(
                        wrappingChannelSynchronously: channel, configuration: .init(isOutboundHalfClosureEnabled: true))
                )
            }.whenFailure { wrapped.fail($0) }
            return wrapped.futureResult
        }.get()
    }

    /// Writes everything, ends, and reads to the end.
    func exchange(_ port: Int, _ bytes: [UInt8]) async throws -> [UInt8] {
        try await connect(port).executeThenClose { inbound, outbound in
            async let sent: Void = {
                for start in stride(from: 0, to: bytes.count, by: 100_000) {
                    try await outbound.write(ByteBuffer(bytes: bytes[start..<min(start + 100_000, bytes.count)]))
                }
                outbound.finish()
            }()
            var result: [UInt8] = []
            for try await data in inbound { result += data.readableBytesView }
            try await sent
            return result
        }
    }
}

func randomBytes(_ count: Int) -> [UInt8] {
    var random = SystemRandomNumberGenerator()
    var bytes = [UInt8](repeating: 0, count: count)
    bytes.withUnsafeMutableBytes { bytes in
        for offset in stride(from: 0, to: count - 7, by: 8) {
            bytes.storeBytes(of: random.next(), toByteOffset: offset, as: UInt64.self)
        }
    }
    return bytes
}

/// A TCP server at loopback with a thread for each connection.
final class LoopbackServer: Sendable {
    let port: Int
    private let descriptor: CInt

    init(v6: Bool = false, port wanted: UInt16 = 0, _ serve: @escaping @Sendable (CInt) -> Void) throws {
        let socket = socket(v6 ? AF_INET6 : AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        descriptor = socket
        let address = SocketAddress(Endpoint(v6 ? IPAddress(high: 0, low: 1) : IPAddress(v4: 0x7f00_0001), wanted))
        let rc = address.withSockAddr { bind(socket, $0, socklen_t($1)) }
        guard rc == 0, listen(socket, 1_024) == 0 else { throw DeadlineExceeded(what: "listen: errno \(errno)") }
        var storage = sockaddr_in6()
        var length = socklen_t(MemoryLayout<sockaddr_in6>.size)
        withUnsafeMutablePointer(to: &storage) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { _ = getsockname(socket, $0, &length) }
        }
        port = Int(UInt16(bigEndian: storage.sin6_port))
        Thread.detachNewThread {
            while case let connection = accept(socket, nil, nil), connection >= 0 {
                Thread.detachNewThread {
                    serve(connection)
                    close(connection)
                }
            }
            // Here, or it could be another socket's number when it is accepted from.
            close(socket)
        }
    }

    deinit { shutdown(descriptor, CInt(SHUT_RDWR)) }

    /// Sends back what comes, and its end.
    static func echo(_ descriptor: CInt) {
        var area = [UInt8](repeating: 0, count: 65_536)
        while case let count = read(descriptor, &area, area.count), count > 0 {
            var sent = 0
            while sent < count {
                let step = area.withUnsafeBytes {
                    send(descriptor, $0.baseAddress! + sent, count - sent, Int32(MSG_NOSIGNAL))
                }
                guard step > 0 else { return }
                sent += step
            }
        }
    }
}
