import AgentTestSupport
import Sodium
import Testing

@testable import WireGuard

/// Networks and clocks that do harm.
@Suite struct TroubleTests {
    /// Losses, doubles and swaps: what arrives is right and arrives once, and the sessions come back.
    @Test(arguments: [1, 2, 3, 4]) func aBadNetwork(_ number: UInt64) throws {
        var random = SeededGenerator("aBadNetwork \(number)")
        var options = Pair.Options()
        options.seed = random.seed &+ number
        var pair = try Pair(options)
        var dice = ScriptedGenerator(seed: options.seed)
        pair.fate = { _, _ in
            switch Int.random(in: 0..<20, using: &dice) {
            case 0, 1: []
            case 2: [.milliseconds(5), .milliseconds(Int.random(in: 1...3_000, using: &dice))]
            case 3: [.milliseconds(Int.random(in: 1...8_000, using: &dice))]
            default: [.milliseconds(Int.random(in: 1...50, using: &dice))]
            }
        }
        var sent: [Set<[UInt8]>] = [[], []]
        for step in 0..<3_000 {
            let payload =
                [UInt8(step >> 8), UInt8(step & 255)]
                + [UInt8](repeating: 1, count: Int.random(in: 0..<1_238, using: &random))
            let from = Int.random(in: 0...1, using: &random)
            if case .dropped(let reason) = pair.send(from, payload) { #expect(reason == .stagingFull) }
            sent[from].insert(payload)
            // Now and then a pause in which sessions die.
            let pause = Int.random(in: 0..<400, using: &random) == 0 ? 200_000 : Int.random(in: 0..<400, using: &random)
            pair.run(.milliseconds(pause))
        }
        pair.fate = { _, _ in [.milliseconds(1)] }
        pair.run(.seconds(10))
        for index in [0, 1] {
            let got = pair.payloads(index)
            #expect(Set(got).count == got.count && Set(got).isSubset(of: sent[1 - index]))
            #expect(got.count * 10 > sent[1 - index].count * 8, "\(got.count) of \(sent[1 - index].count)")
            #expect(pair.nodes[index].places.count <= 3 && pair.nodes[index].drops[.notAuthentic] == 0)
        }
        let before = pair.got[1].count
        pair.send(0, [255])
        pair.run(.seconds(10))
        #expect(pair.got[1].count == before + 1)
    }

    @Test func oldInitiationsAreNotTaken() throws {
        var pair = try Pair()
        var recorded: [[UInt8]] = []
        pair.send(0, [0])
        recorded.append(pair.network[0].datagram)
        pair.run(.seconds(1))
        let state = pair.nodes[1].places
        for wait in [Duration.zero, .seconds(5), .seconds(600)] {
            pair.run(wait)
            #expect(pair.nodes[1].take(recorded[0], now: pair.now).received == .dropped(.oldTime))
            #expect(!pair.nodes[1].hasTransmissions)
        }
        #expect(pair.nodes[1].places.isEmpty && state.count == 1)
        #expect(pair.nodes[1].drops[.oldTime] == 3)
    }

    @Test func initiationsThatFollowTooFast() throws {
        var pair = try Pair()
        let sender = Authentic(peer: pair.peers[1])
        let (own, peer) = (pair.nodes[0].key, pair.nodes[1].key.publicKey)
        let messages = try (1...4).map { try initiation(own, peer, $0) }
        #expect(pair.nodes[1].take(messages[0], now: .seconds(2_000)).received == .authenticated(sender))
        #expect(
            pair.nodes[1].take(messages[1], now: .seconds(2_000) + .milliseconds(19)).received
                == .dropped(.initiationTooSoon))
        #expect(
            pair.nodes[1].take(messages[2], now: .seconds(2_000) + .milliseconds(20)).received
                == .authenticated(sender))
        #expect(
            pair.nodes[1].take(messages[1], now: .seconds(2_001)).received == .dropped(.oldTime), "older than the last")
        #expect(pair.nodes[1].take(messages[2], now: .seconds(2_001)).received == .dropped(.oldTime))
        // One session that waits, and one answer: the last.
        #expect(pair.nodes[1].places.count == 1)
        let answers = pair.nodes[1].transmissions(now: .seconds(2_001))
        #expect(answers.map(\.count) == [92])
    }

    @Test func theTimeOfDayIsSetBack() throws {
        var pair = try Pair()
        pair.send(0, [0])
        pair.run(.seconds(1))
        pair.walls[0].offset = .seconds(-3_600)
        pair.run(.seconds(200))
        pair.send(0, [1])
        pair.run(.seconds(1))
        #expect(pair.payloads(1) == [[0], [1]])
        pair.walls[0].offset = .seconds(3_600)
        pair.run(.seconds(200))
        pair.send(0, [2])
        pair.run(.seconds(1))
        pair.walls[0].offset = .zero
        pair.run(.seconds(200))
        pair.send(0, [3])
        pair.run(.seconds(1))
        #expect(pair.payloads(1) == [[0], [1], [2], [3]])
    }

    /// Both clocks jump: the machines slept, or one clock counts an hour at once.
    @Test(arguments: [600, 3_600]) func aJump(_ seconds: Int) throws {
        for wait in [Duration.zero, .milliseconds(5), .milliseconds(15), .milliseconds(25), .seconds(30)] {
            var pair = try Pair()
            pair.send(0, [0])
            pair.run(wait)
            pair.now += .seconds(seconds)
            pair.send(1, [1])
            pair.run(.seconds(10))
            pair.send(0, [2])
            pair.run(.seconds(10))
            #expect(pair.payloads(0).contains([1]) && pair.payloads(1).contains([2]), "\(wait)")
        }
    }

    /// The clock of one machine stood still for 10 minutes: it takes the session to be alive.
    @Test func aClockThatStoodStill() throws {
        var pair = try Pair()
        pair.send(0, [0])
        pair.run(.seconds(1))
        pair.lag[0] = .seconds(600)
        pair.now += .seconds(600)
        pair.send(0, [1])
        pair.run(.seconds(16))
        pair.send(0, [2])
        pair.send(1, [3])
        pair.run(.seconds(1))
        #expect(pair.payloads(1) == [[0], [2]] && pair.payloads(0) == [[3]])
    }

    @Test func aClockThatGoesBackStandsStill() throws {
        var pair = try Pair()
        pair.send(0, [0])
        pair.run(.seconds(1))
        let sealed = pair.nodes[0].send([1], to: pair.peers[0], now: .zero).sealed
        #expect(sealed == .datagram(16 + 16 + 16))
        pair.nodes[0].advance(now: .zero)
        #expect(pair.status(0)?.session == .usable)
    }

    /// Every bit of every message: what is not authentic changes nothing.
    @Test func changedMessages() throws {
        var pair = try Pair()
        pair.send(0, [0])
        let initiation = pair.network[0].datagram
        var node = pair.nodes[1]
        var taken = 0
        for index in initiation.indices {
            for bit in 0..<8 {
                var changed = initiation
                changed[index] ^= 1 << UInt8(bit)
                guard case .dropped = node.take(changed, now: pair.now + .seconds(index * 8 + bit)).received else {
                    taken += 1
                    continue
                }
            }
            #expect(node.take(Array(initiation.prefix(index)), now: pair.now + .seconds(index * 8)).packet == nil)
        }
        // The second MAC is not looked at without load: those bits are of no matter, and after the first it is replayed.
        #expect(taken == 1)
        pair.run(.milliseconds(15))
        let response = try #require(pair.network.first).datagram
        #expect(response.count == 92)
        node = pair.nodes[0]
        for index in 0..<76 {
            for bit in 0..<8 {
                var changed = response
                changed[index] ^= 1 << UInt8(bit)
                guard case .dropped = node.take(changed, now: pair.now).received else {
                    Issue.record("taken with a change at \(index)")
                    return
                }
            }
        }
        pair.run(.seconds(1))
        let (_, datagram) = pair.nodes[0].send(packet(from: 1, to: 2, [5]), to: pair.peers[0], now: pair.now)
        let message = try #require(datagram)
        for index in message.indices {
            for bit in 0..<8 {
                var changed = message
                changed[index] ^= 1 << UInt8(bit)
                guard case .dropped = pair.nodes[1].take(changed, now: pair.now).received else {
                    Issue.record("taken with a change at \(index)")
                    return
                }
            }
        }
        #expect(pair.nodes[1].take(message, now: pair.now).packet == packet(from: 1, to: 2, [5]))
    }

    /// Anything at all: nothing crashes, and nothing grows.
    @Test func noise() throws {
        var random = SeededGenerator("noise")
        var options = Pair.Options()
        options.seed = random.seed
        var pair = try Pair(options)
        pair.send(0, [0])
        var known = [pair.network[0].datagram]
        pair.run(.milliseconds(15))
        known.append(pair.network[0].datagram)
        pair.run(.seconds(1))
        let (_, datagram) = pair.nodes[0].send(packet(from: 1, to: 2, [5]), to: pair.peers[0], now: pair.now)
        known.append(try #require(datagram))
        known.append([3, 0, 0, 0] + known[0][4..<8] + [UInt8](repeating: 1, count: 56))
        let before = pair.nodes[1].places.count
        for _ in 0..<100_000 {
            var bytes = try #require(known.randomElement(using: &random))
            switch Int.random(in: 0..<4, using: &random) {
            case 0: bytes = Array(bytes.prefix(Int.random(in: 0...bytes.count, using: &random)))
            case 1: bytes += (0..<Int.random(in: 0...40, using: &random)).map { _ in random.next() }
            case 2: bytes = bytes.map { Int.random(in: 0..<8, using: &random) == 0 ? random.next() : $0 }
            default:
                bytes[Int.random(in: bytes.indices, using: &random)] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            }
            pair.now += .milliseconds(1)
            let received = pair.nodes[1].take(bytes, now: pair.now).received
            if case .packet = received { continue }
            _ = pair.nodes[1].transmissions(now: pair.now)
            pair.nodes[1].advance(now: pair.now)
        }
        #expect(pair.nodes[1].places.count <= before + 1 && pair.nodes[1].initiations.isEmpty)
        #expect(pair.nodes[1].watchedSources == 0)
    }
}
