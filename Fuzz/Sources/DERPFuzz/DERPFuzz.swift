import FuzzInput
import NIOCore
@testable import Sodium

@testable import DERP

/// The first byte decides what the others are for: the frame reader, a client after a real greeting, or a relay.
func fuzz(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard count > 0 else { return 0 }
    var input = FuzzInput(data, count)
    let choice = input.byte()
    switch choice % 3 {
    case 0: readFrames(input.rest(), step: max(1, Int(choice) / 3))
    case 1:
        var client = Client(hasInfo: choice & 128 != 0, &input)
        client.play(&input)
    default:
        var net = Net(isLimited: choice & 128 != 0)
        net.play(&input)
    }
    return 0
}

func makeKey(_ byte: UInt8) -> PrivateKey {
    do { return try PrivateKey([UInt8](repeating: byte, count: 32)) } catch { fatalError("\(error)") }
}

let relayKey = makeKey(200)
let keys = (1...4).map { makeKey($0) }

// MARK: The reader

private struct Reading: Equatable {
    var frames: [DERPFrame] = []
    var skipped: UInt64 = 0
    var error: DERPError?
}

private func read(_ bytes: [UInt8], step: Int) -> Reading {
    var reading = Reading()
    var reader = DERPFrameReader()
    var rest = ByteBuffer(bytes: bytes)
    do throws(DERPError) {
        while let piece = rest.readSlice(length: min(step, rest.readableBytes)), piece.readableBytes > 0 {
            reader.append(piece)
            while let frame = try reader.next() { reading.frames.append(frame) }
            check(
                reader.buffered <= DERPLimits.frameBytes + DERPFrame.headerCount + piece.readableBytes,
                "more than a frame is kept")
        }
    } catch {
        reading.error = error
    }
    reading.skipped = reader.skipped
    return reading
}

/// In pieces and at once are the same, and so is what is written again.
private func readFrames(_ bytes: [UInt8], step: Int) {
    let whole = read(bytes, step: max(1, bytes.count))
    check(read(bytes, step: step) == whole, "reading in pieces and at once differ")
    for frame in whole.frames {
        // Texts are shortened and mended.
        if case .health = frame { continue }
        var out = ByteBuffer()
        frame.write(into: &out)
        check(read(Array(out.readableBytesView), step: 7).frames == [frame], "the frame changed: \(frame)")
    }
}

/// What we or a relay write must be frames.
@discardableResult
func checkFrames(_ bytes: ByteBuffer) -> [DERPFrame] {
    let reading = read(Array(bytes.readableBytesView), step: max(1, bytes.readableBytes))
    check(reading.error == nil && reading.skipped == 0, "what was written is no frame")
    check(!reading.frames.isEmpty || bytes.readableBytes == 0, "a part of a frame was written")
    return reading.frames
}

// MARK: A client

/// A client of a relay that says anything.
struct Client {
    private var connection: DERPConnection
    private var now = Duration.seconds(1)
    private var isOver = false
    private var isConnected = false

    /// The relay's key, and its info with a text of the input.
    init(hasInfo: Bool, _ input: inout FuzzInput) {
        var random = SeededRandom(3)
        connection = DERPConnection(key: keys[0], isHome: true, dialled: .zero, now: now, random: &random)
        var bytes = ByteBuffer()
        DERPFrame.serverKey(relayKey.publicKey).write(into: &bytes)
        if hasInfo {
            let nonce = [UInt8](repeating: 3, count: 24)
            let sealed = Box(relayKey, keys[0].publicKey)?.seal(input.take(Int(input.byte())), nonce: nonce) ?? []
            DERPFrame.serverInfo(nonce: nonce, box: sealed).write(into: &bytes)
        }
        connection.receive(bytes, now: now)
        guard connection.nextEvent(now: now) == .greeted(server: relayKey.publicKey) else {
            fatalError("there was no greeting")
        }
        takeEvents()
    }

    mutating func play(_ input: inout FuzzInput) {
        while !input.isEmpty {
            let operation = input.byte()
            switch operation & 15 {
            case 0...6:
                connection.receive(ByteBuffer(bytes: input.take(Int(operation >> 4) * 8 + 1)), now: now)
                takeEvents()
            case 7, 8:
                for _ in 0..<Int(operation) {
                    connection.send(ByteBuffer(repeating: 1, count: input.word()), to: keys[1].publicKey)
                }
            case 9, 10: write(upTo: input.word())
            case 11: _ = connection.ping(UInt64(operation))
            case 12: connection.notePreferred(operation & 16 == 0)
            case 13: pass(.milliseconds(input.word()))
            case 14: pass(.seconds(Int(input.byte())))
            default:
                // A frame that is right but for its payload.
                var frame = ByteBuffer()
                let payload = input.block()
                frame.writeFrameHeader(operation >> 4 | (operation & 1) << 4, payload.count)
                frame.writeBytes(payload)
                connection.receive(frame, now: now)
                takeEvents()
            }
            check(connection.queuedPackets <= DERPLimits.queuedPackets, "too many packets wait")
        }
        write(upTo: .max)
        check(!connection.hasOutput, "there is always something to write")
        pass(DERPLimits.silence)
        check(isOver && connection.nextDeadline == nil, "silence does not end the connection")
    }

    private mutating func pass(_ time: Duration) {
        now += time
        connection.advance(now: now)
        if let next = connection.nextDeadline { check(next > now, "a deadline of the past") }
        takeEvents()
    }

    private mutating func write(upTo limit: Int) {
        var out = ByteBuffer()
        connection.write(into: &out, upTo: limit, now: now)
        checkFrames(out)
    }

    private mutating func takeEvents() {
        while let event = connection.nextEvent(now: now) {
            check(!isOver, "something follows the end")
            switch event {
            case .ended: isOver = true
            case .greeted: fatalError("greeted twice")
            case .connected:
                check(!isConnected, "connected twice")
                isConnected = true
            case .packet(_, let packet):
                check(isConnected && packet.readableBytes <= DERPLimits.packetBytes, "a packet that may not be")
            case .peerGone, .health, .pong, .restarting: check(isConnected, "not connected")
            }
        }
    }
}
