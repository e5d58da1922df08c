import AgentCore
import CPlatform
import Glibc
import IPAddresses
import NIOCore
import NIOPosix

/// A UDP socket of each family on the same port, on one event loop. Where the kernel has no IPv6 there is the one of
/// IPv4 alone.
///
/// NIO reads, and with the kernel's receive offload many datagrams at once. Sending is ours: NIO closes a datagram
/// channel for errors that are a single packet's, as that a network cannot be reached.
///
/// Unchecked, since it is touched on its event loop only, as NIO's channels are.
package final class UDPSockets: @unchecked Sendable {
    /// Bytes of the kernel's buffers, as far as it allows (docs/contracts/disco.md#endpoints).
    static let bufferBytes: CInt = 7 << 20
    /// How long is waited when a socket's buffer is full: nothing says when it has room again.
    static let retry = TimeAmount.milliseconds(1)

    /// What becomes of the datagrams.
    package struct Handlers {
        /// A datagram came, which may be overwritten.
        package var datagram: (UnsafeMutableRawBufferPointer, Endpoint) -> Void
        /// The last one of a burst came, or there is room again.
        package var burstEnded: () -> Void
        /// The kernel refused datagrams, for another reason than before.
        package var refused: (String) -> Void
        /// Reading failed, and the sockets are closed.
        package var failed: () -> Void

        package init(
            datagram: @escaping (UnsafeMutableRawBufferPointer, Endpoint) -> Void, burstEnded: @escaping () -> Void,
            refused: @escaping (String) -> Void, failed: @escaping () -> Void
        ) {
            (self.datagram, self.burstEnded) = (datagram, burstEnded)
            (self.refused, self.failed) = (refused, failed)
        }
    }

    package let port: UInt16
    private let loop: any EventLoop
    private var v4: OutgoingDatagrams
    private var v6: OutgoingDatagrams?
    private var channels: [any Channel] = []
    private var retryTask: Scheduled<Void>?
    private var handlers: Handlers?
    /// The last reason that was told for refused datagrams.
    private var told: CInt?

    /// Opens the sockets and reads from them.
    /// - Parameters:
    ///   - port: 0 lets the kernel choose one.
    ///   - forbidsFragments: whether a datagram that is too large for the path gets lost, instead of being cut.
    /// - Throws: ``CoreError`` when the port cannot be had.
    package static func open(
        port: UInt16, forbidsFragments: Bool, on loop: any EventLoop
    ) async throws -> UDPSockets {
        let (v4, v6) = try descriptors(port: port, forbidsFragments: forbidsFragments)
        let sockets = UDPSockets(v4: v4, v6: v6, on: loop)
        var left = [v4, v6].compactMap { $0 }
        do {
            while let descriptor = left.popLast() { try await sockets.read(descriptor) }
        } catch {
            for descriptor in left { Glibc.close(descriptor) }
            try? await loop.submit { sockets.close() }.get()
            throw error
        }
        return sockets
    }

    /// - Parameter descriptor: becomes the channel's.
    private func read(_ descriptor: CInt) async throws {
        let channel = try await DatagramBootstrap(group: loop)
            .channelOption(.datagramReceiveOffload, value: true)
            .channelOption(.datagramReceiveSegmentSize, value: true)
            .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 65_536))
            .channelOption(.maxMessagesPerRead, value: 8)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(DatagramReader(self))
                }
            }
            .withBoundSocket(descriptor).get()
        try await loop.submit { self.channels.append(channel) }.get()
        // The descriptor is no longer ours then, whatever closed it.
        channel.closeFuture.whenComplete { _ in
            let handlers = self.handlers
            self.close()
            handlers?.failed()
        }
    }

    private static func descriptors(port: UInt16, forbidsFragments: Bool) throws(CoreError) -> (CInt, CInt?) {
        var problem: CInt = 0
        // A port that the kernel chose may be in use in the other family.
        for _ in 0..<(port == 0 ? 16 : 1) {
            let v4 = wa_udp_open(AF_INET, port, forbidsFragments, bufferBytes)
            guard v4 >= 0 else {
                problem = v4
                continue
            }
            let bound = UInt16(clamping: wa_socket_port(v4))
            let v6 = wa_udp_open(AF_INET6, bound, forbidsFragments, bufferBytes)
            if v6 >= 0 { return (v4, v6) }
            if [-EAFNOSUPPORT, -EADDRNOTAVAIL, -EPROTONOSUPPORT].contains(v6) { return (v4, nil) }
            problem = v6
            Glibc.close(v4)
        }
        throw CoreError(.invalid, "cannot listen on UDP port \(port): \(errnoText(-problem))")
    }

    private init(v4: CInt, v6: CInt?, on loop: any EventLoop) {
        self.loop = loop
        self.v4 = OutgoingDatagrams(descriptor: v4)
        self.v6 = v6.map { OutgoingDatagrams(descriptor: $0) }
        port = UInt16(clamping: wa_socket_port(v4))
    }

    var hasIPv6: Bool { v6 != nil }

    /// To be called on the event loop; datagrams that came before are lost.
    package func start(_ handlers: Handlers) { self.handlers = handlers }

    /// Whether more is taken now.
    package var hasRoom: Bool { retryTask == nil }

    /// Sends a datagram at the next ``flush()``, or drops it.
    package func send(_ datagram: UnsafeRawBufferPointer, to endpoint: Endpoint) {
        let isTaken: Bool
        if endpoint.address.v4 != nil {
            isTaken = v4.append(datagram, to: endpoint)
        } else {
            isTaken = v6?.append(datagram, to: endpoint) ?? false
        }
        guard !isTaken else { return }
        if endpoint.address.v4 != nil || v6 != nil { waitForRoom() }
    }

    package func flush() {
        if v4.flush() == .full { waitForRoom() }
        if v6?.flush() == .full { waitForRoom() }
        for case let problem? in [v4.takeProblem(), v6?.takeProblem()] where problem != told {
            told = problem
            handlers?.refused(errnoText(problem))
        }
    }

    private func waitForRoom() {
        guard retryTask == nil, !channels.isEmpty else { return }
        retryTask = loop.scheduleTask(in: Self.retry) {
            self.retryTask = nil
            self.flush()
            if self.hasRoom { self.handlers?.burstEnded() }
        }
    }

    fileprivate func receive(_ envelope: inout AddressedEnvelope<ByteBuffer>) {
        guard let handlers, let endpoint = envelope.remoteAddress.endpoint else { return }
        let segment = envelope.metadata?.segmentSize ?? 0
        envelope.data.withUnsafeMutableReadableBytes { bytes in
            var start = 0
            while start < bytes.count {
                let end = segment > 0 ? min(start + segment, bytes.count) : bytes.count
                handlers.datagram(UnsafeMutableRawBufferPointer(rebasing: bytes[start..<end]), endpoint)
                start = end
            }
        }
    }

    fileprivate func burstEnded() { handlers?.burstEnded() }

    private var isClosed = false

    /// To be called on the event loop.
    package func close() {
        guard !isClosed else { return }
        isClosed = true
        handlers = nil
        retryTask?.cancel()
        let open = channels
        channels = []
        for channel in open { channel.close(promise: nil) }
        v4.deallocate()
        v6?.deallocate()
        v6 = nil
    }
}

private final class DatagramReader: ChannelInboundHandler {
    typealias InboundIn = AddressedEnvelope<ByteBuffer>

    private let sockets: UDPSockets

    init(_ sockets: UDPSockets) { self.sockets = sockets }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var envelope = unwrapInboundIn(data)
        sockets.receive(&envelope)
    }

    func channelReadComplete(context: ChannelHandlerContext) { sockets.burstEnded() }

    // A single datagram's: NIO closes the channel where it is more.
    func errorCaught(context: ChannelHandlerContext, error: any Error) {}
}
