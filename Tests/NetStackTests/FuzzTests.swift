import AgentTestSupport
import NIOCore
import Testing

@testable import NetStack

/// A hostile peer that knows the connection, and one that knows nothing.
@Suite struct FuzzTests {
    private static let interesting: [Int] = [-70_000, -2, -1, 0, 1, 2, 100, 1_000, 65_535, 131_072, 3 << 20, 1 << 30]

    private func step(_ peer: inout RawPeer, _ random: inout SeededGenerator) {
        var flags: TCPFlags =
            Bool.random(using: &random) ? .ack : TCPFlags(rawValue: UInt8.random(in: 0..<32, using: &random))
        if flags.contains(.rst), Int.random(in: 0..<4, using: &random) > 0 { flags.remove(.rst) }
        let isRight = Int.random(in: 0..<3, using: &random) > 0
        let offset = isRight ? 0 : Self.interesting.randomElement(using: &random) ?? 0
        let payload = [UInt8](repeating: 3, count: [0, 0, 1, 100, 1_208].randomElement(using: &random) ?? 0)
        let shift = isRight ? 0 : Self.interesting.randomElement(using: &random) ?? 0
        let stamp = peer.stamp &+ UInt32(truncatingIfNeeded: Int.random(in: -2...3, using: &random))
        peer.stamp = max(peer.stamp, stamp)
        var options: [UInt8] = []
        if Int.random(in: 0..<4, using: &random) == 0 {
            let start = peer.expected &- UInt32.random(in: 0...5_000, using: &random)
            let end = start &+ UInt32.random(in: 0...5_000, using: &random)
            options = [1, 1, 5, 10] + RawPeer.big(start) + RawPeer.big(end)
        } else if Int.random(in: 0..<8, using: &random) == 0 {
            options = (0..<4 * Int.random(in: 1...6, using: &random)).map { _ in
                UInt8.random(in: 0...255, using: &random)
            }
        }
        peer.send(
            flags, payload, offset: offset, acknowledges: peer.expected &+ UInt32(truncatingIfNeeded: shift),
            window: UInt16.random(in: 0...3, using: &random) == 0 ? 0 : .random(in: 0...65_535, using: &random),
            stamp: stamp, options: options)
    }

    @Test func aConnectionSurvivesWhatAPeerSends() throws {
        var random = SeededGenerator("aConnectionSurvivesWhatAPeerSends")
        for round in 0..<300 {
            var peer = RawPeer(name: "round \(round)")
            try peer.establish()
            for _ in 0..<100 {
                step(&peer, &random)
                switch Int.random(in: 0..<8, using: &random) {
                case 0: _ = peer.write([UInt8](repeating: 1, count: Int.random(in: 0...50_000, using: &random)))
                case 1: _ = peer.read()
                case 2: _ = peer.wait(.milliseconds(Int.random(in: 0...3_000, using: &random)))
                case 3:
                    if let id = peer.id, Int.random(in: 0..<20, using: &random) == 0 {
                        peer.stack.finish(id, now: peer.now)
                    }
                default: break
                }
                let replies = peer.replies()
                #expect(replies.count < 200)
                _ = peer.stack.allEvents()
            }
            peer.stack.checkInvariants()
            // Whatever happened, it comes to an end.
            if let id = peer.id { peer.stack.finish(id, now: peer.now) }
            _ = peer.read()
        }
    }

    @Test func bytesThatMeanNothing() {
        var random = SeededGenerator("bytesThatMeanNothing")
        var peer = RawPeer()
        for _ in 0..<20_000 {
            var packet = (0..<Int.random(in: 0...200, using: &random)).map { _ in
                UInt8.random(in: 0...255, using: &random)
            }
            // Most get past the first look.
            if packet.count >= 40, Int.random(in: 0..<10, using: &random) > 0 {
                let next = [6, 17, 58, 99, 44, 0].randomElement(using: &random) ?? 6
                packet = RawPeer.packet(
                    from: theirs, to: ours, next: UInt8(next), Array(packet[40...]),
                    checksumAt: next == 6 && packet.count >= 60 ? 16 : next == 17 && packet.count >= 48 ? 6 : nil)
            }
            peer.stack.receive(packet, now: peer.now)
            peer.now += .milliseconds(1)
            _ = peer.replies()
            for case .connectionRequested(let id, _, _) in peer.stack.allEvents() {
                peer.stack.accept(id, now: peer.now)
            }
        }
        peer.stack.checkInvariants()
        #expect(peer.stack.connectionCount <= 128)
    }
}
