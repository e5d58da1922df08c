import NIOCore

/// A proxy's answer to CONNECT, without I/O.
struct ProxyAnswer {
    private var head: [UInt8] = []

    /// Takes bytes up to the end of the answer's head; the rest stays in `input`.
    /// - Returns: the status once the head is complete.
    /// - Throws: ``ControlPlaneError`` `.protocolViolation` for what is no HTTP answer.
    mutating func read(_ input: inout ByteBuffer) throws(ControlPlaneError) -> Int? {
        let end: [UInt8] = [13, 10, 13, 10]
        while let byte = input.readInteger(as: UInt8.self) {
            head.append(byte)
            if byte == 10, head.suffix(4) == end[...] || head.suffix(2) == [10, 10] { return try status() }
            if head.count == 5, !head.elementsEqual("HTTP/".utf8) { throw Self.garbage }
            guard head.count < DialLimits.proxyHeadBytes else { throw Self.garbage }
        }
        return nil
    }

    private static var garbage: ControlPlaneError {
        ControlPlaneError(.protocolViolation, "what it answers to CONNECT is not HTTP")
    }

    private func status() throws(ControlPlaneError) -> Int {
        let line = String(decoding: head.prefix { $0 != 13 && $0 != 10 }, as: UTF8.self)
        let parts = line.split(separator: " ", maxSplits: 2)
        guard parts.count >= 2, let status = Int(parts[1]), (100...599).contains(status) else { throw Self.garbage }
        return status
    }
}

/// Asks a proxy for a connection and then leaves the pipeline; until then the handlers behind it
/// believe that the channel is not active yet.
final class ProxyConnectHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let proxy: ServerAddress
    private let target: ServerAddress
    private var answer = ProxyAnswer()
    private var isDone = false

    init(proxy: ServerAddress, target: ServerAddress) {
        self.proxy = proxy
        self.target = target
    }

    func channelActive(context: ChannelHandlerContext) {
        var request = "CONNECT \(target.hostPort) HTTP/1.1\r\nHost: \(target.hostPort)\r\n"
        if let authorization = proxy.basicAuthorization {
            request += "Proxy-Authorization: \(authorization.reveal())\r\n"
        }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: request + "\r\n")), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var input = unwrapInboundIn(data)
        guard !isDone else { return context.fireChannelRead(wrapInboundOut(input)) }
        do {
            guard let status = try answer.read(&input) else { return }
            isDone = true
            guard (200..<300).contains(status) else { throw refusal(status) }
        } catch {
            fail(error as? ControlPlaneError ?? ControlPlaneError(.unreachable, "failed", cause: error), context)
            return context.close(promise: nil)
        }
        context.fireChannelActive()
        if input.readableBytes > 0 { context.fireChannelRead(wrapInboundOut(input)) }
        context.pipeline.syncOperations.removeHandler(self, promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        if !isDone { fail(ControlPlaneError(.unreachable, "it ended the connection"), context) }
        context.fireChannelInactive()
    }

    private func fail(_ error: ControlPlaneError, _ context: ChannelHandlerContext) {
        isDone = true
        var error = error
        error.message = "the proxy \(proxy): \(error.message)"
        context.fireErrorCaught(error)
    }

    private func refusal(_ status: Int) -> ControlPlaneError {
        let hint = status == 407 ? "; give the user and password in the proxy's URL" : ""
        // Not `.http`: it is the proxy that says so, and it may think better of it.
        return ControlPlaneError(.unreachable, "it answered CONNECT \(target.hostPort) with \(status)\(hint)")
    }
}
