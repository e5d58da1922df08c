import NIOCore

/// Before the decoder: notifies the connection when a request begins, before its header is complete, drives
/// ``RequestFraming``, and drops bytes that are discarded anyway, since the decoder would buffer everything after an
/// upgrade or an error.
final class RequestFramingHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    private weak var handler: HTTPConnectionHandler?
    private var framing = RequestFraming()

    init(_ handler: HTTPConnectionHandler) { self.handler = handler }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // nil after an upgrade.
        guard let handler else { return context.fireChannelRead(data) }
        var bytes = unwrapInboundIn(data)
        guard handler.bytesArrived(bytes.readableBytes) else { return }
        do throws(HTTPProblem) {
            while bytes.readableBytes > 0 {
                let (count, endsHeader) = try bytes.withUnsafeReadableBytes { bytes throws(HTTPProblem) in
                    try framing.take(bytes)
                }
                guard count > 0, let part = bytes.readSlice(length: count) else { return }
                context.fireChannelRead(wrapInboundOut(part))
                if endsHeader, let announced = handler.takeAnnounced() {
                    framing.begin(announced.body, isLast: announced.isLast)
                }
            }
        } catch {
            handler.framingFailed(error)
        }
    }
}
