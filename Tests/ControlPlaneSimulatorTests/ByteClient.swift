import NIOCore
import NIOPosix
import Synchronization

/// A socket whose bytes a test writes and reads itself, below HTTP.
final class ByteClient: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer

    private struct State {
        var bytes: [UInt8] = []
        var hasEnded = false
    }

    private let state = Mutex(State())
    private let channel = Mutex<(any Channel)?>(nil)

    /// - Parameter reads: false for a client that never reads.
    static func connect(_ address: SocketAddress?, reads: Bool = true) async throws -> ByteClient {
        guard let address else { throw ChannelError.unknownLocalAddress }
        let client = ByteClient()
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelOption(.autoRead, value: reads)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(client) }
            }
            .connect(to: address).get()
        client.channel.withLock { $0 = channel }
        return client
    }

    func write(_ bytes: some Sequence<UInt8>) async throws {
        try await channel.withLock { $0 }?.writeAndFlush(ByteBuffer(bytes: bytes))
    }

    func write(_ text: String) async throws { try await write(Array(text.utf8)) }

    func close() async { try? await channel.withLock { $0 }?.close() }

    var bytes: [UInt8] { state.withLock { $0.bytes } }
    var text: String { String(decoding: bytes, as: UTF8.self) }
    var hasEnded: Bool { state.withLock { $0.hasEnded } }

    /// The HTTP head with the empty line behind it; empty before it is whole.
    var head: String { headEnd.map { String(decoding: bytes[..<$0], as: UTF8.self) } ?? "" }

    /// What came behind the HTTP head.
    var afterHead: [UInt8] { headEnd.map { Array(bytes[$0...]) } ?? [] }

    private var headEnd: Int? {
        let bytes = bytes.prefix(4_096)
        for index in bytes.indices.dropLast(3) where bytes[index...].starts(with: [13, 10, 13, 10]) {
            return index + 4
        }
        return nil
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data)
        state.withLock { $0.bytes += bytes.readableBytesView }
    }

    func channelInactive(context: ChannelHandlerContext) { state.withLock { $0.hasEnded = true } }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
