import AgentTestSupport
import NIOCore
import Sodium

@testable import DERP

extension ByteBuffer {
    init(hex text: Any?) { self.init(bytes: AgentTestSupport.bytes(fromHex: text) ?? []) }
    var all: [UInt8] { Array(readableBytesView) }
}

/// Gives the bytes it was made with, then zeros.
struct ScriptedGenerator: RandomNumberGenerator, Sendable {
    var bytes: [UInt8]
    mutating func next() -> UInt64 {
        let word = bytes.prefix(8)
        bytes.removeFirst(word.count)
        return word.reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }
}

func makeKey(_ byte: UInt8) throws -> PrivateKey { try PrivateKey([UInt8](repeating: byte, count: 32)) }

extension DERPConnection {
    mutating func events(of bytes: ByteBuffer, now: Duration = .zero) -> [Event] {
        receive(bytes, now: now)
        return allEvents(now: now)
    }

    mutating func allEvents(now: Duration = .zero) -> [Event] {
        var events: [Event] = []
        while let event = nextEvent(now: now) { events.append(event) }
        return events
    }

    mutating func output(now: Duration = .zero, upTo limit: Int = 1 << 24) -> ByteBuffer {
        var out = ByteBuffer()
        write(into: &out, upTo: limit, now: now)
        return out
    }
}

/// The frames of bytes that are whole.
func frames(_ bytes: ByteBuffer) throws -> [DERPFrame] {
    var reader = DERPFrameReader()
    reader.append(bytes)
    var frames: [DERPFrame] = []
    while let frame = try reader.next() { frames.append(frame) }
    return frames
}

/// A connection whose greeting is over.
func greeted(
    _ key: PrivateKey, relay: PrivateKey, home: Bool = true, info: String = #"{"version":2}"#, now: Duration = .zero
) -> DERPConnection {
    var random = SystemRandomNumberGenerator()
    var connection = DERPConnection(key: key, isHome: home, dialled: now, now: now, random: &random)
    var bytes = ByteBuffer()
    DERPFrame.serverKey(relay.publicKey).write(into: &bytes)
    serverInfo(info, client: key.publicKey, relay: relay).write(into: &bytes)
    _ = connection.events(of: bytes, now: now)
    _ = connection.output(now: now)
    return connection
}

func serverInfo(_ json: String, client: PublicKey, relay: PrivateKey) -> DERPFrame {
    let nonce = [UInt8](repeating: 3, count: 24)
    return .serverInfo(nonce: nonce, box: Box(relay, client)?.seal(Array(json.utf8), nonce: nonce) ?? [])
}
