import AgentTestSupport
import NIOCore
import NIOPosix
import Synchronization
import Testing

@testable import ControlPlaneSimulator

/// What one end of a connection has seen.
private final class End: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer

    struct Seen {
        var bytes: [UInt8] = []
        var inputClosed = false
        var closed = false
        var failed = false
    }

    let seen = Mutex(Seen())

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data)
        seen.withLock { $0.bytes += bytes.readableBytesView }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent { seen.withLock { $0.inputClosed = true } }
    }

    func channelInactive(context: ChannelHandlerContext) { seen.withLock { $0.closed = true } }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        seen.withLock { $0.failed = true }
        context.close(promise: nil)
    }

    var text: String { seen.withLock { String(decoding: $0.bytes, as: UTF8.self) } }
}

/// A server that only listens, a proxy before it, and clients.
private final class Network: Sendable {
    private final class Accepted: Sendable {
        let list = Mutex<[(channel: any Channel, end: End)]>([])
    }

    let proxy: FaultProxy
    private let server: any Channel
    private let accepted = Accepted()

    init() async throws {
        let accepted = accepted
        server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { channel in
                let end = End()
                accepted.list.withLock { $0.append((channel, end)) }
                return channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(end) }
            }.bind(host: "127.0.0.1", port: 0).get()
        let address = try #require(server.localAddress)
        proxy = try await FaultProxy.start(to: address, group: MultiThreadedEventLoopGroup.singleton)
    }

    func connect() async throws -> (channel: any Channel, end: End) {
        let end = End()
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(end) }
            }.connect(to: #require(proxy.address)).get()
        return (channel, end)
    }

    /// A client and the server's end of its connection.
    func pair() async throws -> (client: any Channel, clientEnd: End, server: any Channel, serverEnd: End) {
        let before = accepted.list.withLock { $0.count }
        let (client, clientEnd) = try await connect()
        try await eventually("the server accepted") { accepted.list.withLock { $0.count } > before }
        let (server, serverEnd) = accepted.list.withLock { $0[before] }
        return (client, clientEnd, server, serverEnd)
    }

    func stop() async throws {
        await proxy.stop()
        try await server.close()
    }
}

@Suite("Simulator: fault proxy")
struct FaultProxyTests {
    @Test("bytes and half-closes go both ways")
    func passes() async throws {
        let network = try await Network()
        let (client, clientEnd, server, serverEnd) = try await network.pair()
        try await client.writeAndFlush(ByteBuffer(string: "hello"))
        try await eventually("hello") { serverEnd.text == "hello" }
        try await client.close(mode: .output)
        try await eventually("the end") { serverEnd.seen.withLock { $0.inputClosed } }
        try await server.writeAndFlush(ByteBuffer(string: "answer"))
        try await eventually("answer") { clientEnd.text == "answer" }
        #expect(network.proxy.accepted == 1 && network.proxy.open == 1)
        try await server.close()
        try await eventually("both ends are gone") { network.proxy.open == 0 }
        try? await client.close()
        try await network.stop()
    }

    @Test("a cut is an end of stream for both sides")
    func cut() async throws {
        let network = try await Network()
        let (client, clientEnd, _, serverEnd) = try await network.pair()
        await network.proxy.cut()
        try await eventually("both see it") {
            clientEnd.seen.withLock { $0.inputClosed } && serverEnd.seen.withLock { $0.inputClosed }
        }
        #expect(!clientEnd.seen.withLock { $0.failed })
        try? await client.close()
        try await network.stop()
    }

    @Test("a reset is an error for both sides")
    func reset() async throws {
        let network = try await Network()
        let (_, clientEnd, _, serverEnd) = try await network.pair()
        await network.proxy.reset()
        try await eventually("both see it") {
            clientEnd.seen.withLock { $0.closed && $0.failed } && serverEnd.seen.withLock { $0.closed && $0.failed }
        }
        try await network.stop()
    }

    @Test("a stalled network moves nothing, tells nobody of an end, and goes on where it was")
    func stall() async throws {
        let network = try await Network()
        let (client, clientEnd, server, serverEnd) = try await network.pair()
        await network.proxy.stall()
        try await client.writeAndFlush(ByteBuffer(string: "lost?"))
        // A connection made while the network is stalled shows that the first had its time.
        let (late, _) = try await network.connect()
        try await late.writeAndFlush(ByteBuffer(string: "late"))
        #expect(serverEnd.text.isEmpty)
        await network.proxy.resume()
        try await eventually("it arrives") { serverEnd.text == "lost?" }
        await network.proxy.stall()
        try? await client.close()
        try await server.writeAndFlush(ByteBuffer(string: "to nobody"))
        #expect(!serverEnd.seen.withLock { $0.closed || $0.inputClosed })
        await network.proxy.resume()
        try await eventually("the end arrives") { serverEnd.seen.withLock { $0.closed || $0.inputClosed } }
        #expect(clientEnd.text.isEmpty)
        try await late.close()
        try await network.stop()
    }

    @Test("a connection is cut after so many bytes of one way", arguments: [true, false])
    func cutAfter(_ reset: Bool) async throws {
        let network = try await Network()
        await network.proxy.cut(after: 7, .toServer, reset: reset)
        let (client, clientEnd, server, serverEnd) = try await network.pair()
        // The other way is not counted.
        try await server.writeAndFlush(ByteBuffer(string: "0123456789"))
        try await eventually("all of it") { clientEnd.text == "0123456789" }
        try await client.writeAndFlush(ByteBuffer(string: "abcd"))
        try await eventually("the first part") { serverEnd.text == "abcd" }
        #expect(network.proxy.open == 1)
        try await client.writeAndFlush(ByteBuffer(string: "efghij"))
        try await eventually("the cut") { serverEnd.seen.withLock { $0.inputClosed || $0.closed } }
        if !reset { #expect(serverEnd.text == "abcdefg") }
        #expect(serverEnd.seen.withLock { $0.failed } == reset)
        try? await client.close()
        try await network.stop()
    }

    @Test("delayed bytes come late and in order")
    func delay() async throws {
        let network = try await Network()
        let (client, _, _, serverEnd) = try await network.pair()
        await network.proxy.delay(.milliseconds(60))
        let start = ContinuousClock.now
        for part in ["a", "b", "c"] { try await client.writeAndFlush(ByteBuffer(string: part)) }
        try await eventually("they arrive") { serverEnd.text == "abc" }
        #expect(ContinuousClock.now - start >= .milliseconds(60))
        try? await client.close()
        try await network.stop()
    }

    @Test("refused connections get nowhere, open ones go on, and the address stays")
    func refuse() async throws {
        let network = try await Network()
        let (client, _, _, serverEnd) = try await network.pair()
        let port = network.proxy.port
        try await network.proxy.refuse()
        await #expect(throws: (any Error).self) { try await network.connect() }
        try await client.writeAndFlush(ByteBuffer(string: "still here"))
        try await eventually("it arrives") { serverEnd.text == "still here" }
        try await network.proxy.listen()
        #expect(network.proxy.port == port)
        let (again, _, _, _) = try await network.pair()
        try await again.close()
        try? await client.close()
        try await network.stop()
    }

    @Test("a reader that stops is felt by the writer, and nothing is lost")
    func backPressure() async throws {
        let network = try await Network()
        let (client, _, server, serverEnd) = try await network.pair()
        try await server.setOption(.autoRead, value: false).get()
        let size = 32 << 20
        let written = client.eventLoop.makePromise(of: Void.self)
        client.writeAndFlush(ByteBuffer(repeating: 0x78, count: size), promise: written)
        // The kernel's buffers and the proxy's bound are far from 32 MiB.
        let done = Mutex(false)
        written.futureResult.whenComplete { _ in done.withLock { $0 = true } }
        try await eventually("the writer is held up") { !client.isWritable }
        #expect(!done.withLock { $0 })
        try await server.setOption(.autoRead, value: true).get()
        try await written.futureResult.get()
        try await eventually("all of it") { serverEnd.seen.withLock { $0.bytes.count } == size }
        try? await client.close()
        try await network.stop()
    }
}
