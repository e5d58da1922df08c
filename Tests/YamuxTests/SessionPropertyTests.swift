import AgentTestSupport
import NIOCore
import Testing

@testable import Yamux

/// One end of a pipe with an application that does what comes to its mind.
private struct Peer {
    var session: YamuxSession
    var decoder = YamuxDecoder()
    var out = ByteBuffer()
    var written: [UInt32: Int] = [:]
    var received: [UInt32: Int] = [:]
    var ended: Set<UInt32> = []
    var finished: Set<UInt32> = []
    /// Streams that one of the sides reset or closed early: their bytes may be lost.
    var broken: Set<UInt32> = []
    var toAccept: [UInt32] = []
    var usable: Set<UInt32> = []
    var goingAway = false

    init(_ role: YamuxSession.Role) { session = YamuxSession(role: role) }

    mutating func perform() {
        while let action = session.nextAction() {
            switch action {
            case .send(let header): header.write(into: &out)
            case .sendData(let header, let payload):
                #expect(Int(header.length) == payload.readableBytes && payload.readableBytes > 0)
                #expect(payload.readableBytes <= YamuxLimits.dataFrameBytes)
                header.write(into: &out)
                out.writeImmutableBuffer(payload)
            case .opened(let id): toAccept.append(id)
            case .deliver(let id, let data):
                let offset = received[id, default: 0]
                #expect(data == pattern(offset, data.readableBytes, salt: Int(id)), "stream \(id) at \(offset)")
                #expect(!ended.contains(id))
                received[id] = offset + data.readableBytes
                #expect(session.unconsumed(of: id) <= YamuxLimits.window)
            case .inputEnded(let id):
                let isFirst = ended.insert(id).inserted
                #expect(isFirst)
            case .reset(let id):
                usable.remove(id)
                broken.insert(id)
            case .forgotten(let id): usable.remove(id)
            case .goingAway: goingAway = true
            case .end(let error): Issue.record("the session ended: \(error)")
            case .outputEnded, .windowOpened, .lingers, .pong: break
            }
        }
    }

    mutating func step(_ random: inout SeededGenerator) {
        let stream = usable.sorted().randomElement(using: &random)
        switch Int.random(in: 0..<24, using: &random) {
        case 0, 1:
            if usable.count < 12, let id = try? session.open() { usable.insert(id) }
        case 2, 3, 4:
            if let id = toAccept.popLast(), session.accept(id) { usable.insert(id) }
        case 5...10:
            guard let stream, !finished.contains(stream) else { return }
            let count = [1, 12, 500, 70_000, 300_000].randomElement(using: &random) ?? 1
            let offset = written[stream, default: 0]
            session.write(pattern(offset, count, salt: Int(stream)), stream: stream)
            written[stream] = offset + count
        case 11...14: _ = session.transmit()
        case 15...19:
            guard let stream else { return }
            session.consumed(Int.random(in: 0...262_144, using: &random), stream: stream)
        case 20:
            guard let stream, finished.insert(stream).inserted else { return }
            session.finish(stream)
        case 21:
            guard let stream, Int.random(in: 0..<4, using: &random) == 0 else { return }
            usable.remove(stream)
            broken.insert(stream)
            if Bool.random(using: &random) {
                session.reset(stream)
            } else {
                session.close(stream, now: .uptimeNanoseconds(0))
            }
        default: _ = session.ping()
        }
    }

    /// Takes some of the bytes that the other side sent.
    mutating func read(_ bytes: inout ByteBuffer, upTo limit: Int) throws {
        guard var piece = bytes.readSlice(length: min(limit, bytes.readableBytes)) else { return }
        if bytes.readableBytes == 0 { bytes.clear() }
        while let element = try decoder.next(from: &piece) {
            session.receive(element)
            perform()
        }
    }
}

@Suite struct SessionPropertyTests {
    @Test func whateverIsDoneAllBytesArriveInOrder() throws {
        var random = SeededGenerator("yamux session")
        for _ in 0..<20 {
            var client = Peer(.client)
            var server = Peer(.server)
            for _ in 0..<600 {
                client.step(&random)
                client.perform()
                server.step(&random)
                server.perform()
                let limit = [1, 11, 4_096, 65_536, 1_000_000].randomElement(using: &random) ?? 1
                if Bool.random(using: &random) { try server.read(&client.out, upTo: limit) }
                if Bool.random(using: &random) { try client.read(&server.out, upTo: limit) }
            }
            // Now both sides close all streams.
            for _ in 0..<10_000 {
                for id in client.toAccept where client.session.accept(id) { client.usable.insert(id) }
                for id in server.toAccept where server.session.accept(id) { server.usable.insert(id) }
                (client.toAccept, server.toAccept) = ([], [])
                for id in client.usable {
                    client.session.consumed(262_144, stream: id)
                    client.session.finish(id)
                }
                for id in server.usable {
                    server.session.consumed(262_144, stream: id)
                    server.session.finish(id)
                }
                client.session.transmitAll()
                server.session.transmitAll()
                client.perform()
                server.perform()
                if client.out.readableBytes + server.out.readableBytes == 0 { break }
                try server.read(&client.out, upTo: .max)
                try client.read(&server.out, upTo: .max)
            }
            for (name, one, other) in [("client", client, server), ("server", server, client)] {
                #expect(one.session.streams.isEmpty, "\(name) leaks; TEST_SEED=\(random.seed)")
                #expect(one.session.unaccepted == 0 && one.session.lingering == 0 && !one.session.hasData)
                for (id, count) in one.written where !one.broken.contains(id) && !other.broken.contains(id) {
                    #expect(other.received[id] == count, "stream \(id) of the \(name); TEST_SEED=\(random.seed)")
                    #expect(other.ended.contains(id))
                }
            }
        }
    }

    /// Whatever bytes come, nothing traps, and a session that is over says no more.
    @Test func anyBytesAreSurvived() throws {
        var random = SeededGenerator("yamux bytes")
        for _ in 0..<400 {
            var session = YamuxSession(role: Bool.random(using: &random) ? .client : .server, acceptBacklog: 3)
            for _ in 0..<60 {
                let kind = YamuxHeader.Kind(rawValue: UInt8.random(in: 0...3, using: &random)) ?? .data
                let length =
                    [0, 1, 2, 131_072, 262_144, 262_145, .max].randomElement(using: &random) ?? (0 as UInt32)
                let header = YamuxHeader(
                    kind, .init(rawValue: UInt16.random(in: 0...31, using: &random)),
                    stream: UInt32.random(in: 0...6, using: &random), length: kind == .goAway ? 0 : length)
                let wasOver = session.ended != nil
                session.receive(header, kind == .data && length > 0 && length < 300_000 ? pattern(0, Int(length)) : nil)
                if let id = try? session.open(), Bool.random(using: &random) { session.close(id, now: .now()) }
                session.accept(UInt32.random(in: 0...6, using: &random))
                session.write(pattern(0, 10), stream: UInt32.random(in: 0...6, using: &random))
                session.consumed(Int.random(in: 0...300_000, using: &random), stream: 1)
                session.transmitAll()
                #expect(after(&session) { $0.drain() }.isEmpty || !wasOver)
                for stream in session.streams.values {
                    #expect(stream.receiveWindow + stream.unconsumed + stream.unreturned <= YamuxLimits.window)
                }
            }
        }
    }
}
