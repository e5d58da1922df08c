import NIOCore
import Testing

@testable import Yamux

/// One frame of a recorded exchange.
private struct Recorded {
    let isClients: Bool
    let header: YamuxHeader
    let payload: ByteBuffer?
}

/// The frames of a vector, with made-up payload where only its length was recorded.
private func frames(_ vector: [String: Any]) throws -> [Recorded] {
    var frames: [Recorded] = []
    var offset = 0
    for event in try #require(vector["events"] as? [[String: Any]]) {
        let isClients = event["dir"] as? String == "c2s"
        if let text = event["hex"] as? String {
            var input = bytes(hex: text)
            let header = try #require(try YamuxHeader.read(from: &input))
            frames.append(Recorded(isClients: isClients, header: header, payload: nil))
        } else if let count = event["payload_bytes"] as? Int, let last = frames.popLast() {
            let payload = (event["payload_hex"] as? String).map { bytes(hex: $0) } ?? pattern(offset, count)
            offset += count
            frames.append(Recorded(isClients: isClients, header: last.header, payload: payload))
        }
    }
    return frames
}

@Suite struct VectorTests {
    @Test func everyHeaderDecodesAndEncodesToTheByte() throws {
        let vectors = try Vectors.all()
        #expect(vectors.count == 10)
        for vector in vectors {
            var sent = ["c2s": "", "s2c": ""]
            for event in try #require(vector["events"] as? [[String: Any]]) {
                let direction = try #require(event["dir"] as? String)
                sent[direction]? += (event["payload_hex"] as? String) ?? ""
                guard let text = event["hex"] as? String else { continue }
                sent[direction]? += text
                var input = bytes(hex: text)
                let header = try #require(try YamuxHeader.read(from: &input))
                #expect(input.readableBytes == 0)
                #expect(hex(header.encoded) == text)
                #expect("\(header.kind)".lowercased() == (event["type"] as? String)?.lowercased())
                #expect(header.stream == (event["stream"] as? Int).map { UInt32($0) })
                #expect(header.length == (event["length"] as? Int).map { UInt32($0) })
                var flags: YamuxHeader.Flags = []
                for name in event["flags"] as? [String] ?? [] {
                    flags.insert(try #require(["SYN": .syn, "ACK": .ack, "FIN": .fin, "RST": .rst][name]))
                }
                #expect(header.flags == flags)
            }
            for (direction, key) in [("c2s", "client_to_server_hex"), ("s2c", "server_to_client_hex")] {
                if let whole = vector[key] as? String { #expect(sent[direction] == whole) }
            }
        }
    }

    @Test(arguments: [YamuxSession.Role.client, .server])
    func everyExchangeIsPlayed(_ role: YamuxSession.Role) throws {
        for vector in try Vectors.all() {
            let name = try #require(vector["name"] as? String)
            try play(name, try frames(vector), role)
        }
    }

    /// Gives the session what the other side sent, and does whatever made the recorded side send the
    /// rest: our frames must be the recorded ones.
    private func play(_ name: String, _ frames: [Recorded], _ role: YamuxSession.Role) throws {
        var session = YamuxSession(
            role: role, acceptBacklog: name == "rst_backlog" ? 1 : 256, closeTimeout: .milliseconds(60))
        var actions: [YamuxSession.Action] = []
        var received = ByteBuffer()
        var expected = ByteBuffer()
        var pending: [(YamuxHeader, ByteBuffer?)] = []
        func collect() {
            for action in session.drain() {
                switch action {
                case .send(let header): pending.append((header, nil))
                case .sendData(let header, let payload): pending.append((header, payload))
                case .deliver(_, var data): received.writeBuffer(&data)
                default: actions.append(action)
                }
            }
        }
        var wrote = false
        // Where the reader's updates fell between the sender's frames is known roughly only.
        var isExact = true
        var sent = (ours: ByteBuffer(), recorded: ByteBuffer())
        for frame in frames {
            let header = frame.header
            guard frame.isClients == (role == .client) else {
                if name == "transfer_server_655420", header.kind == .windowUpdate, wrote { isExact = false }
                session.receive(.header(header))
                if let payload = frame.payload {
                    // In pieces, as from a socket.
                    var rest = payload
                    while rest.readableBytes > 0, let piece = rest.readSlice(length: min(32_768, rest.readableBytes)) {
                        session.receive(.payload(piece))
                    }
                    expected.writeImmutableBuffer(payload)
                }
                collect()
                continue
            }
            if !isExact {
                session.transmitAll()
                collect()
                for (_, data) in pending { sent.ours.writeImmutableBuffer(data ?? ByteBuffer()) }
                pending = []
                if let payload = frame.payload {
                    sent.recorded.writeImmutableBuffer(payload)
                    continue
                }
            }
            if pending.isEmpty {
                switch (header.kind, header.flags) {
                case (.windowUpdate, .syn): #expect(try after(&session) { try $0.open() } == header.stream, "\(name)")
                case (.windowUpdate, .ack): #expect(after(&session) { $0.accept(header.stream) }, "\(name)")
                case (.windowUpdate, .fin):
                    if name.hasPrefix("rst") {
                        session.close(header.stream, now: .uptimeNanoseconds(0))
                    } else {
                        session.finish(header.stream)
                    }
                case (.windowUpdate, .rst):
                    #expect(after(&session) { $0.expire(now: .uptimeNanoseconds(60_000_000)) } == nil)
                case (.windowUpdate, []): session.consumed(Int(header.length), stream: header.stream)
                case (.ping, .syn): #expect(after(&session) { $0.ping() } == header.length, "\(name)")
                case (.goAway, []): session.goAway()
                case (.data, []):
                    if !wrote {
                        wrote = true
                        switch name {
                        case "transfer_700000": session.write(pattern(0, 700_000), stream: header.stream)
                        case "transfer_server_655420":
                            for piece in 0..<10 {
                                session.write(pattern(piece * 65_542, 65_542), stream: header.stream)
                            }
                        default: session.write(try #require(frame.payload), stream: header.stream)
                        }
                    }
                    // The recorded sender doesn't split; we do.
                    var left = Int(header.length)
                    while left > 0 {
                        let count = session.transmit()
                        try #require(count > 0, "\(name)")
                        left -= count
                    }
                default: Issue.record("\(name): nothing makes \(header)")
                }
                collect()
            }
            if header.kind == .data, header.length > UInt32(YamuxLimits.dataFrameBytes) {
                var payload = ByteBuffer()
                while !pending.isEmpty {
                    let (ours, data) = pending.removeFirst()
                    #expect(ours.kind == .data && ours.flags == [] && ours.stream == header.stream)
                    payload.writeImmutableBuffer(data ?? ByteBuffer())
                }
                #expect(payload == frame.payload, "\(name)")
            } else {
                try #require(!pending.isEmpty, "\(name): \(header) is missing")
                let (ours, data) = pending.removeFirst()
                #expect(ours == header, "\(name)")
                #expect(data == frame.payload, "\(name)")
            }
        }
        #expect(pending.isEmpty, "\(name)")
        #expect(sent.ours == sent.recorded, "\(name)")
        #expect(received == expected, "\(name)")
        #expect(session.ended == nil, "\(name)")
        switch name {
        case "goaway_normal" where role == .client:
            #expect(actions.contains(.goingAway))
            #expect(throws: YamuxError(.notAccepting, "")) { try session.open() }
            #expect(after(&session) { $0.drain() }.isEmpty)
        case "rst_close_timeout" where role == .server: #expect(actions.suffix(2) == [.inputEnded(1), .reset(1)])
        case "rst_backlog" where role == .client: #expect(actions == [.reset(3)])
        case "rst_backlog": #expect(actions == [.opened(1)])
        case "stream_ids": #expect(session.openStreams == 4)
        case "ping", "keepalive": break
        case "goaway_normal": break
        default: #expect(session.openStreams + session.lingeringStreams == 0, "\(name)")
        }
    }
}
