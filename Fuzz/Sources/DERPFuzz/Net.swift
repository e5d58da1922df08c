import FuzzInput
import NIOCore
@testable import Sodium

@testable import DERP

/// A relay with clients that keep to the protocol and one that says anything.
struct Net {
    private static let raw: UInt64 = 9
    private static let disco: [UInt8] = [0x54, 0x53, 0xf0, 0x9f, 0x92, 0xac]
    private var relay: DERPRelay
    private var clients: [UInt64: DERPConnection] = [:]
    private var isRawConnected = false
    private var now = Duration.seconds(1)
    private var serial: UInt32 = 0
    /// What was sent to each key and has not come.
    private var underWay: [PublicKey: Set<UInt32>] = [:]

    init(isLimited: Bool) {
        let limit = isLimited ? DERPRelay.RateLimit(bytesPerSecond: 1_000, burst: 4_000) : nil
        relay = DERPRelay(key: relayKey, rateLimit: limit, random: SeededRandom(4))
        for id in 0..<3 as Range<UInt64> { join(id) }
    }

    /// The fourth connection has the third one's key.
    private func key(_ id: UInt64) -> PrivateKey { keys[min(Int(id), 2)] }

    private mutating func join(_ id: UInt64) {
        leave(id)
        var random = SeededRandom(id)
        let key = key(id)
        clients[id] = DERPConnection(key: key, isHome: true, dialled: now, now: now, random: &random)
        connect(id)
        settle(upTo: 1 << 20)
        check(clients[id]?.isConnected == true && relay.isConnected(key.publicKey), "a client was not greeted")
    }

    private mutating func connect(_ id: UInt64) {
        do { try relay.connect(id, now: now) } catch { fatalError("refused: \(error)") }
    }

    private mutating func leave(_ id: UInt64) {
        relay.disconnect(id)
        if clients.removeValue(forKey: id) != nil { underWay[key(id).publicKey] = nil }
        if id == Self.raw { isRawConnected = false }
    }

    mutating func play(_ input: inout FuzzInput) {
        while !input.isEmpty {
            let operation = input.byte()
            let id = UInt64(operation >> 4 & 3)
            switch operation & 15 {
            case 0...2: send(id, to: Int(input.byte()) & 3, count: Int(operation >> 6) * 400 + 1)
            case 3: settle(upTo: 1 + input.word())
            case 4: settle(upTo: 1 << 20)
            case 5: join(id)
            case 6: leave(id)
            case 7: pass(.seconds(Int(input.byte())))
            case 8: _ = clients[id]?.ping(UInt64(operation))
            case 9:
                relay.tell(id, .health("x"))
                settle(upTo: 1 << 20)
            case 10: flood(from: id, to: Int(input.byte()) & 3, isDisco: operation & 64 != 0)
            case 11: takeRaw(greeting(input.take(64)))
            case 12:
                var frame = ByteBuffer()
                let payload = input.block()
                frame.writeFrameHeader(operation >> 4, payload.count)
                frame.writeBytes(payload)
                takeRaw(frame)
            default: takeRaw(ByteBuffer(bytes: input.take(Int(operation >> 4) * 8 + 1)))
            }
        }
        leave(Self.raw)
        settle(upTo: 1 << 20)
        for id in 0..<3 as Range<UInt64> { join(id) }
        send(0, to: 1, count: 1)
        let last = serial
        settle(upTo: 1 << 20)
        check(underWay[keys[1].publicKey]?.contains(last) != true, "a packet did not get through")
        for id in clients.keys { leave(id) }
        check(relay.connectionCount == 0 && relay.nextDeadline == nil, "connections are left")
    }

    private mutating func pass(_ time: Duration) {
        now += time
        relay.advance(now: now)
        if let next = relay.nextDeadline { check(next > now, "a deadline of the past") }
    }

    // MARK: Those who keep to the protocol

    private mutating func send(_ id: UInt64, to number: Int, count: Int) {
        serial += 1
        var packet = ByteBuffer(integer: serial)
        packet.writeRepeatingByte(1, count: count)
        let to = keys[number].publicKey
        if clients[id]?.send(packet, to: to) == true { underWay[to, default: []].insert(serial) }
    }

    /// What both have for each other.
    private mutating func settle(upTo limit: Int) {
        var rounds = 0
        var isMoving = true
        while isMoving {
            rounds += 1
            check(rounds < 100_000, "the clients and the relay never stop talking")
            isMoving = false
            for id in relay.takeReady() {
                drainRelay(id, upTo: limit)
                isMoving = true
            }
            for id in clients.keys.sorted() where clients[id]?.hasOutput == true {
                var out = ByteBuffer()
                clients[id]?.write(into: &out, upTo: limit, now: now)
                checkFrames(out)
                do { try relay.receive(out, from: id, now: now) } catch { fatalError("a good client: \(error)") }
                isMoving = true
            }
        }
    }

    private mutating func drainRelay(_ id: UInt64, upTo limit: Int) {
        var (packets, control) = (0, 0)
        var isLeft = true
        while isLeft {
            var out = ByteBuffer()
            isLeft = relay.write(into: &out, for: id, upTo: limit)
            control += out.readableBytes
            for case .received(_, let packet) in checkFrames(out) {
                packets += 1
                control -= DERPFrame.headerCount + PublicKey.count + packet.readableBytes
            }
            clients[id]?.receive(out, now: now)
            takeEvents(id)
        }
        check(packets <= DERPLimits.queuedPackets, "the relay kept \(packets) packets for a client")
        check(control <= 2 * DERPLimits.controlBytes, "the relay kept \(control) bytes of control for a client")
    }

    private mutating func takeEvents(_ id: UInt64) {
        while let event = clients[id]?.nextEvent(now: now) {
            switch event {
            case .packet(let source, var packet):
                // The one that says anything may send what it likes; those of a flood have no number.
                guard source != keys[3].publicKey, packet.readableBytes > 4,
                    !packet.readableBytesView.starts(with: Self.disco),
                    let number: UInt32 = packet.readInteger()
                else { continue }
                check(number <= serial, "a packet that nobody sent")
                underWay[key(id).publicKey]?.remove(number)
            case .ended(let error): fatalError("the relay broke the protocol: \(error)")
            default: break
            }
        }
    }

    /// Many packets to one that takes nothing, or is not there.
    private mutating func flood(from id: UInt64, to number: Int, isDisco: Bool) {
        guard clients[id] != nil else { return }
        var bytes = ByteBuffer()
        let packet = isDisco ? Self.disco : [UInt8](repeating: 255, count: 3)
        for _ in 0..<600 {
            DERPFrame.send(to: keys[number].publicKey, ByteBuffer(bytes: packet)).write(into: &bytes)
        }
        do { try relay.receive(bytes, from: id, now: now) } catch { fatalError("a good client: \(error)") }
    }

    // MARK: The one that says anything

    private func greeting(_ text: [UInt8]) -> ByteBuffer {
        let nonce = [UInt8](repeating: 5, count: 24)
        var out = ByteBuffer()
        let sealed = Box(keys[3], relayKey.publicKey)?.seal(text, nonce: nonce) ?? []
        DERPFrame.clientInfo(keys[3].publicKey, nonce: nonce, box: sealed).write(into: &out)
        return out
    }

    private mutating func takeRaw(_ bytes: ByteBuffer) {
        if !isRawConnected {
            connect(Self.raw)
            isRawConnected = true
        }
        do throws(DERPError) {
            try relay.receive(bytes, from: Self.raw, now: now)
        } catch {
            leave(Self.raw)
        }
    }
}
