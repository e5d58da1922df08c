import DRPC
import NIOCore

/// The server's state machine: the first byte decides when handlers end, the rest is what a client
/// sends. What the server answers must be well-formed, and handlers must be started, cancelled and
/// finished at most once each.
func fuzz(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard let data, count > 0 else { return 0 }
    var choice = data[0]
    var server = ServerConnection<Void>(methods: [
        "/coder.agentsocket.v1.AgentSocket/Ping": .init(kind: .unary, handler: ()),
        "/coder.agentsocket.v1.AgentSocket/SyncWant": .init(kind: .clientStreaming, handler: ()),
        "/coder.agentsocket.v1.AgentSocket/SyncStart": .init(kind: .serverStreaming, handler: ()),
        "/coder.agentsocket.v1.AgentSocket/SyncStatus": .init(kind: .bidirectional, handler: ()),
    ])
    var reader = PacketReader()
    var out = ByteBuffer()
    var running: Set<UInt64> = []
    var cancelled: Set<UInt64> = []
    reader.append(ByteBuffer(bytes: UnsafeRawBufferPointer(start: data + 1, count: count - 1)))

    while server.wantsPackets, let packet = try? reader.next() {
        guard let actions = try? server.receive(packet, into: &out) else { break }
        for action in actions {
            switch action {
            case .start(let stream, _, _, _, _):
                guard running.insert(stream).inserted else { fatalError("started twice") }
            case .deliver(let stream, _), .endInput(let stream):
                guard running.contains(stream), !cancelled.contains(stream) else { fatalError("not running") }
            case .cancel(let stream):
                guard running.contains(stream), cancelled.insert(stream).inserted else { fatalError("not running") }
            }
        }
        choice = choice &* 167 &+ 13
        if choice & 3 == 0, let stream = running.min() {
            try? server.send(ByteBuffer(string: "m"), stream: stream, into: &out)
        }
        if choice & 12 == 0, let stream = running.min() {
            running.remove(stream)
            server.finish(
                choice & 16 == 0 ? .success(ByteBuffer(string: "r")) : .failure(ErrorPayload(code: 1, text: "e")),
                stream: stream, into: &out)
        }
    }
    var answers = PacketReader()
    answers.append(out)
    do {
        while try answers.next() != nil {}
    } catch {
        fatalError("the server broke the protocol: \(error)")
    }
    return 0
}
