import AgentSocket
import DRPC
import NIOCore
import NIOEmbedded

/// A connection of the agent socket as the daemon serves it: handler, rpcs and units. The first
/// byte says in pieces of how many bytes the rest comes, 0 for all at once. What the server answers
/// must be well-formed, what it holds bounded and given back, and the connection closed or in use.
func fuzz(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard let data, count > 0 else { return 0 }
    var input = ByteBuffer(bytes: UnsafeRawBufferPointer(start: data + 1, count: count - 1))
    let whole = input
    let step = data[0] == 0 ? max(1, input.readableBytes) : Int(data[0])

    let budget = UnfinishedBudget()
    let unsent = UnsentBudget()
    let channel = EmbeddedChannel(
        handler: RPCServerHandler(
            router: AgentSocketService(units: UnitStore()).router(), budget: budget, unsentBudget: unsent))
    guard let address = try? SocketAddress(unixDomainSocketPath: "/peer") else { fatalError("no address") }
    channel.connect(to: address, promise: nil)
    var answers = PacketReader()

    while channel.isActive, let piece = input.readSlice(length: min(step, input.readableBytes)),
        piece.readableBytes > 0
    {
        _ = try? channel.writeInbound(piece)
        // Past the 50 µs for which a handler that sends much gives way.
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(1))
        _ = read(channel, &answers)
        // Unfinished packets, and what waits while a handler has enough to do.
        guard budget.held <= min(count, 2 * DRPCLimits.packetBytes) else { fatalError("holds \(budget.held) bytes") }
        guard unsent.held == 0 else { fatalError("nothing was left unread") }
    }

    if channel.isActive, let stream = nextStream(whole) {
        var call = ByteBuffer()
        let name = ByteBuffer(string: "/coder.agentsocket.v1.AgentSocket/Ping")
        Packet(.invoke, stream: stream, message: 1, data: name).write(into: &call)
        Packet(.message, stream: stream, message: 2).write(into: &call)
        _ = try? channel.writeInbound(call)
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(1))
        guard channel.isActive else { fatalError("closed for a Ping") }
        let kinds = read(channel, &answers).filter { $0.stream == stream }.map(\.kind)
        guard kinds == [.message, .closeSend] else { fatalError("a Ping got \(kinds)") }
    }
    _ = try? channel.finish(acceptAlreadyClosed: true)
    channel.embeddedEventLoop.advanceTime(by: .milliseconds(1))
    guard budget.held == 0, unsent.held == 0 else { fatalError("bytes are still booked") }
    return 0
}

/// The packets that the server sent.
private func read(_ channel: EmbeddedChannel, _ reader: inout PacketReader) -> [Packet] {
    var packets: [Packet] = []
    do {
        while let bytes = try channel.readOutbound(as: ByteBuffer.self) {
            reader.append(bytes)
            while let packet = try reader.next() { packets.append(packet) }
        }
    } catch {
        fatalError("the server broke the protocol: \(error)")
    }
    return packets
}

/// The stream of a further call; nil where the input ends within a frame, which would swallow it,
/// or leaves no number.
private func nextStream(_ input: ByteBuffer) -> UInt64? {
    var rest = input
    var last: UInt64 = 0
    while let frame = try? Frame.read(from: &rest) { last = max(last, frame.header.stream) }
    guard rest.readableBytes == 0, last < .max else { return nil }
    return last + 1
}
