import Disco
import IPAddresses
import NIOCore
import NIOPosix

/// A UDP socket that tells who asks what address it has (docs/contracts/disco.md#stun).
enum STUNResponder {
    /// - Parameter port: 0 takes a free one.
    /// - Throws: where the address cannot be had.
    static func start(host: String, port: Int, group: any EventLoopGroup) async throws -> any Channel {
        try await DatagramBootstrap(group: group)
            .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: SimulatorLimits.stunBytes))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Handler()) }
            }
            .bind(host: host, port: port).get()
    }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = AddressedEnvelope<ByteBuffer>
        typealias OutboundOut = AddressedEnvelope<ByteBuffer>

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let datagram = unwrapInboundIn(data)
            let sender = datagram.remoteAddress
            // An answer that finds no room is lost, as UDP's are.
            guard let address = sender.ipAddress.flatMap({ IPAddress($0) }),
                let port = sender.port.flatMap({ UInt16(exactly: $0) }), context.channel.isWritable,
                let answer = STUN.answer(Array(datagram.data.readableBytesView), from: Endpoint(address, port))
            else { return }
            context.writeAndFlush(
                wrapOutboundOut(AddressedEnvelope(remoteAddress: sender, data: ByteBuffer(bytes: answer))),
                promise: nil)
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) {}
    }
}
