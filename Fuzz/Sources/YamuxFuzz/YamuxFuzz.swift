import NIOCore
import Yamux

/// The decoder and the session's state machine in either role: the first byte decides the role and
/// what our application does meanwhile, the rest is what the other side sends. What the session says
/// must be well-formed, streams must be told of in order, and nobody may hold more than the window.
func fuzz(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard let data, count > 0 else { return 0 }
    let input = ByteBuffer(bytes: UnsafeRawBufferPointer(start: data + 1, count: count - 1))
    var application = Application(choice: data[0])
    application.play(input, step: max(1, Int(data[0] >> 1) % 29))
    return 0
}

private struct Application {
    var choice: UInt8
    var session: YamuxSession
    var decoder = YamuxDecoder()
    var known: Set<UInt32> = []
    var inputEnded: Set<UInt32> = []
    var isOver = false

    init(choice: UInt8) {
        self.choice = choice
        session = YamuxSession(role: choice & 1 == 0 ? .client : .server, acceptBacklog: 3, maxStreams: 8)
    }

    mutating func play(_ input: ByteBuffer, step: Int) {
        var rest = input
        while var piece = rest.readSlice(length: min(step, rest.readableBytes)), piece.readableBytes > 0 {
            do {
                while let element = try decoder.next(from: &piece) {
                    if case .header(let header) = element { check(header) }
                    session.receive(element)
                    act()
                    perform()
                }
                guard piece.readableBytes == 0 else { fatalError("bytes were left") }
            } catch {
                session.end(error)
                perform()
                return
            }
        }
    }

    private func check(_ header: YamuxHeader) {
        var bytes = ByteBuffer()
        header.write(into: &bytes)
        guard (try? YamuxHeader.read(from: &bytes)) == header else { fatalError("the header changed") }
    }

    private mutating func act() {
        choice = choice &* 167 &+ 13
        let stream = known.sorted().dropFirst(Int(choice >> 6)).first
        switch choice & 15 {
        case 0:
            if let id = try? session.open() { known.insert(id) }
        case 1, 2: if let stream { session.accept(stream) }
        case 3, 4: if let stream { session.write(ByteBuffer(repeating: choice, count: 100_000), stream: stream) }
        case 5, 6: _ = session.transmit()
        case 7, 8: if let stream { session.consumed(Int(choice) * 2_000, stream: stream) }
        case 9: if let stream { session.finish(stream) }
        case 10: if let stream { session.close(stream, now: .uptimeNanoseconds(UInt64(choice))) }
        case 11: if let stream { session.reset(stream) }
        case 12: _ = session.expire(now: .distantFuture)
        case 13: _ = session.ping()
        case 14: if choice == 0xFE { session.goAway() }
        default: break
        }
    }

    private mutating func perform() {
        while let action = session.nextAction() {
            guard !isOver else { fatalError("said something after the end") }
            switch action {
            case .sendData(let header, let payload):
                guard header.kind == .data, Int(header.length) == payload.readableBytes, header.length > 0 else {
                    fatalError("a frame is not well-formed")
                }
            case .send(let header):
                guard header.kind != .data else { fatalError("data without its payload") }
            case .opened(let id): known.insert(id)
            case .deliver(let id, _):
                guard known.contains(id), !inputEnded.contains(id) else { fatalError("delivered to nobody") }
                guard session.unconsumed(of: id) <= YamuxLimits.window else { fatalError("past the window") }
            case .inputEnded(let id):
                guard inputEnded.insert(id).inserted else { fatalError("ended twice") }
            case .reset(let id), .forgotten(let id):
                known.remove(id)
                inputEnded.remove(id)
            case .outputEnded, .windowOpened, .lingers, .pong, .goingAway: break
            case .end: isOver = true
            }
        }
        guard session.openStreams + session.lingeringStreams <= 8 else { fatalError("too many streams") }
    }
}
