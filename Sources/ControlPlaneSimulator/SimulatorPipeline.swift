import DRPC
import NIOCore
import NIOPosix
import WebSockets
import Yamux

/// The handlers below and above the RPC of one connection, and what faults do to them. All on the
/// connection's event loop.
enum SimulatorPipeline {
    /// Puts WebSocket, yamux and the service behind a channel whose 101 is sent.
    static func install(
        on channel: any Channel, router: Router, budget: UnfinishedBudget,
        times: WebSocketTimes, fault: ConnectionFault?, end: ConnectionEnd
    ) throws {
        let pipeline = channel.pipeline.syncOperations
        if fault == .ignoreWebSocketPings { try pipeline.addHandler(WebSocketPongFilter()) }
        try pipeline.addHandler(WebSocketByteStream(role: .server, times: times))
        if fault == .ignoreYamuxPings { try pipeline.addHandler(YamuxPongFilter()) }
        try pipeline.addHandler(end)
        try pipeline.addHandler(
            YamuxHandler(role: .server, eventLoop: channel.eventLoop) { stream in
                stream.eventLoop.makeCompletedFuture {
                    try stream.pipeline.syncOperations.addHandler(
                        RPCServerHandler(router: router, budget: budget))
                }
            })
        switch fault {
        case .goAway(let code, let time): after(time, channel) { goAway($0, code) }
        case .close(let code, let time): after(time, channel) { closeWebSocket($0, code) }
        case .cut(let time): after(time, channel, closeTransport)
        default: break
        }
    }

    private static func after(
        _ time: Duration, _ channel: any Channel, _ body: @escaping @Sendable (any Channel) -> Void
    ) {
        channel.eventLoop.scheduleTask(in: TimeAmount(time)) { if channel.isActive { body(channel) } }
    }

    /// Sends a yamux GoAway past the session, which goes on as if nothing was.
    static func goAway(_ channel: any Channel, _ code: UInt32) {
        guard let context = try? channel.pipeline.syncOperations.context(handlerType: YamuxHandler.self) else { return }
        var frame = ByteBuffer()
        frame.writeBytes([0, 3, 0, 0])
        frame.writeInteger(UInt32(0))
        frame.writeInteger(code)
        context.writeAndFlush(NIOAny(frame), promise: nil)
    }

    /// Sends a close frame; the agent's answer ends the connection, or its absence two seconds later.
    static func closeWebSocket(_ channel: any Channel, _ code: UInt16) {
        guard let context = try? channel.pipeline.syncOperations.context(handlerType: WebSocketByteStream.self) else {
            return
        }
        var frame = ByteBuffer()
        frame.writeBytes([0x88, 2])
        frame.writeInteger(code)
        context.writeAndFlush(NIOAny(frame), promise: nil)
        after(.seconds(2), channel, closeTransport)
    }

    /// Closes the socket below TLS and WebSocket.
    static func closeTransport(_ channel: any Channel) {
        let bottom = try? channel.pipeline.syncOperations.context(handlerType: TransportEnd.self)
        if let bottom { bottom.close(promise: nil) } else { channel.close(promise: nil) }
    }
}

/// Marks the bottom of a pipeline: a close from here reaches the socket at once.
final class TransportEnd: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
}

/// Keeps why a connection ended.
final class ConnectionEnd: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    private(set) var reason = "closed"

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        reason = (error as? IOError).map { "\($0)" } ?? "\(error)"
        context.fireErrorCaught(error)
    }
}

/// Keeps the answers to WebSocket pings back.
private final class WebSocketPongFilter: ChannelOutboundHandler {
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        let frame = unwrapOutboundIn(data)
        // Each control frame is a write of its own.
        if frame.getInteger(at: frame.readerIndex, as: UInt8.self) == 0x8a {
            promise?.succeed()
        } else {
            context.write(data, promise: promise)
        }
    }
}

/// Keeps the answers to yamux pings back.
final class YamuxPongFilter: ChannelOutboundHandler {
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private var held = ByteBuffer()
    /// Bytes of a Data frame's payload that are still to come.
    private var payload = 0

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        var bytes = unwrapOutboundIn(data)
        context.write(wrapOutboundOut(filter(&bytes)), promise: promise)
    }

    /// The bytes without complete Ping frames that have ACK set; a header in pieces waits here.
    func filter(_ bytes: inout ByteBuffer) -> ByteBuffer {
        held.writeBuffer(&bytes)
        var passed = ByteBuffer()
        while held.readableBytes > 0 {
            if payload > 0, var part = held.readSlice(length: min(payload, held.readableBytes)) {
                payload -= part.readableBytes
                passed.writeBuffer(&part)
                continue
            }
            guard var header = held.getSlice(at: held.readerIndex, length: 12) else { break }
            held.moveReaderIndex(forwardBy: 12)
            let start = header.readerIndex
            guard let type = header.getInteger(at: start + 1, as: UInt8.self),
                let flags = header.getInteger(at: start + 2, as: UInt16.self),
                let length = header.getInteger(at: start + 8, as: UInt32.self)
            else { break }
            if type == 2, flags & 2 != 0 { continue }
            if type == 0 { payload = Int(length) }
            passed.writeBuffer(&header)
        }
        held.discardReadBytes()
        return passed
    }
}
