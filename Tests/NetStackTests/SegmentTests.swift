import AgentTestSupport
import NIOCore
import Testing

@testable import NetStack

/// What a peer may send, and what a stranger who guesses may not achieve.
@Suite struct SegmentTests {
    private func drops(_ peer: RawPeer, _ reason: DropReason) -> UInt64 { peer.stack.counters[reason] }

    // MARK: The handshake

    @Test func ourSYNOffersWhatTheClientOffered() throws {
        var peer = RawPeer()
        peer.send(.syn, options: RawPeer.synOptions)
        guard case .connectionRequested(let id, let local, let remote)? = peer.stack.nextEvent() else {
            Issue.record("no request")
            return
        }
        #expect("\(local)" == "[\(ours)]:80" && "\(remote)" == "[\(theirs)]:40000")
        #expect(peer.replies().isEmpty)
        peer.stack.accept(id, now: peer.now)
        let answer = try #require(peer.replies().first)
        #expect(answer.flags == [.syn, .ack] && answer.acknowledgment == peer.next)
        #expect(answer.timestamps?.echo == peer.stamp)
        #expect(answer.options.prefix(4) == [2, 4, 4, 0xc4])
        // 3 MiB must fit into 16 bits.
        let scale = try #require(answer.options.last)
        #expect(65_535 << scale >= 3 << 20)
    }

    @Test func withoutOptionsThereAreNone() throws {
        var peer = RawPeer()
        peer.usesTimestamps = false
        peer.send(.syn)
        guard case .connectionRequested(let id, _, _)? = peer.stack.nextEvent() else { return }
        peer.stack.accept(id, now: peer.now)
        let answer = try #require(peer.replies().first)
        #expect(answer.options == [2, 4, 4, 0xc4] && answer.timestamps == nil)
        peer.send(.ack)
        #expect(peer.stack.allEvents() == [.established(id)])
        var buffer = ByteBuffer(repeating: 1, count: 3_000)
        peer.stack.write(id, &buffer, now: peer.now)
        // RFC 9293, 3.7.1: 1,220 without an option, within the window of 1,000 that isn't scaled.
        #expect(peer.replies().map(\.payload.count).reduce(0, +) == 1_000)
    }

    @Test func aSYNIsAnsweredFiveTimesMore() throws {
        var peer = RawPeer()
        peer.send(.syn, options: RawPeer.synOptions)
        guard case .connectionRequested(let id, _, _)? = peer.stack.nextEvent() else { return }
        peer.stack.accept(id, now: peer.now)
        #expect(peer.replies().count == 1)
        let more = peer.wait(.seconds(200))
        #expect(more.count == 5 && more.allSatisfy { $0.flags == [.syn, .ack] })
        #expect(peer.stack.allEvents() == [.failed(id, .timedOut)])
        #expect(peer.stack.connectionCount == 0 && peer.stack.halfOpenCount == 0)
    }

    @Test func aWrongAcknowledgmentOfOurSYNIsReset() throws {
        var peer = RawPeer()
        peer.send(.syn, options: RawPeer.synOptions)
        guard case .connectionRequested(let id, _, _)? = peer.stack.nextEvent() else { return }
        peer.stack.accept(id, now: peer.now)
        _ = peer.replies()
        peer.send(.ack, acknowledges: peer.expected &+ 7)
        let answer = try #require(peer.replies().first)
        #expect(answer.flags == .rst && answer.sequence == peer.expected &+ 7)
    }

    @Test func aRequestThatIsNotAnsweredEnds() {
        var peer = RawPeer()
        peer.send(.syn, options: RawPeer.synOptions)
        guard case .connectionRequested(let id, _, _)? = peer.stack.nextEvent() else { return }
        #expect(peer.wait(.milliseconds(59_999)).isEmpty && peer.stack.allEvents().isEmpty)
        _ = peer.wait(.milliseconds(2))
        #expect(peer.stack.allEvents() == [.failed(id, .timedOut)])
    }

    @Test func strangersAreReset() throws {
        var peer = RawPeer()
        peer.send(.ack, acknowledges: 77)
        #expect(peer.replies().map { [$0.sequence, UInt32($0.flags.rawValue)] } == [[77, 4]])
        peer.send([.syn, .fin])
        let answer = try #require(peer.replies().first)
        #expect(answer.flags == [.rst, .ack] && answer.sequence == 0)
        peer.send(.rst)
        #expect(peer.replies().isEmpty && drops(peer, .closed) == 3)
    }

    // MARK: Blind injection (RFC 5961)

    @Test func onlyTheVeryNextNumberResets() throws {
        var peer = RawPeer()
        let id = try peer.establish()
        for offset in [1, 1_000, 100_000] {
            peer.send(.rst, offset: offset)
            #expect(peer.replies().map(\.flags) == [.ack], "\(offset)")
        }
        for offset in [-1, 200_000] {
            peer.send(.rst, offset: offset)
            #expect(peer.replies().isEmpty, "\(offset)")
        }
        #expect(peer.stack.allEvents().isEmpty)
        peer.send(.rst)
        #expect(peer.stack.allEvents() == [.failed(id, .reset)] && peer.stack.connectionCount == 0)
    }

    @Test func aSYNInAConnectionIsChallenged() throws {
        var peer = RawPeer()
        try peer.establish()
        peer.send(.syn, offset: 5)
        let challenge = try #require(peer.replies().first)
        #expect(challenge.flags == .ack && challenge.acknowledgment == peer.next)
        #expect(peer.stack.allEvents().isEmpty)
    }

    @Test func anAcknowledgmentOfWhatWasNotSentIsRefused() throws {
        var peer = RawPeer()
        try peer.establish()
        peer.send(.ack, [1, 2], offset: 0, acknowledges: peer.expected &+ 1_000)
        #expect(drops(peer, .badAcknowledgment) == 1)
        #expect(peer.read().isEmpty)
    }

    @Test func challengesAreFew() throws {
        var peer = RawPeer()
        try peer.establish()
        var answers = 0
        for _ in 0..<100 {
            peer.send(.rst, offset: 1)
            answers += peer.replies().count
        }
        #expect(answers == 10 && drops(peer, .challengeLimit) == 90)
        _ = peer.wait(.seconds(1))
        peer.send(.rst, offset: 1)
        #expect(peer.replies().count == 1)
    }

    @Test func oldTimestampsAreOld() throws {
        var peer = RawPeer()
        try peer.establish()
        peer.send(.ack, [1], offset: 0, stamp: 99)
        #expect(drops(peer, .oldTimestamp) == 1 && peer.read().isEmpty)
        peer.next &-= 1
        peer.usesTimestamps = false
        peer.send(.ack, [1])
        #expect(drops(peer, .noTimestamp) == 1 && peer.read().isEmpty)
        peer.next &-= 1
        peer.usesTimestamps = true
        peer.send(.ack, [1])
        #expect(peer.read() == [1])
    }

    // MARK: Data

    @Test func dataOutOfOrderWaitsAndIsNamed() throws {
        var peer = RawPeer()
        let id = try peer.establish()
        peer.send(.ack, [4, 5, 6], offset: 3)
        let answer = try #require(peer.replies().first)
        #expect(answer.acknowledgment == peer.next)
        #expect(answer.options.contains([5, 10] + RawPeer.big(peer.next &+ 3) + RawPeer.big(peer.next &+ 6)))
        #expect(peer.stack.allEvents().isEmpty)
        // It overlaps with what is there.
        peer.send(.ack, [1, 2, 3, 4])
        #expect(peer.stack.allEvents() == [.readable(id)])
        #expect(peer.read() == [1, 2, 3, 4, 5, 6])
        peer.next &+= 2
        let last = try #require(peer.replies().last)
        #expect(last.acknowledgment == peer.next)
    }

    @Test func whatIsBeyondTheWindowIsDropped() throws {
        var limits = NetStackLimits()
        limits.firstReceiveBytes = 4_096
        limits.receiveBytes = 4_096
        var peer = RawPeer(limits)
        try peer.establish()
        for _ in 0..<4 { peer.send(.ack, [UInt8](repeating: 1, count: 1_000)) }
        _ = peer.replies()
        peer.send(.ack, [UInt8](repeating: 2, count: 1_000), offset: 2_000)
        #expect(drops(peer, .outsideWindow) == 1)
        #expect(peer.read().count == 4_000)
    }

    @Test func acknowledgmentsAreDelayedButNotForLong() throws {
        var peer = RawPeer()
        try peer.establish()
        // The first ones are answered at once, so that the peer's window grows.
        for _ in 0..<40 {
            peer.send(.ack, [UInt8](repeating: 1, count: 1_208))
            _ = peer.read()
            _ = peer.replies()
        }
        _ = peer.wait(.seconds(1))
        peer.send(.ack, [1])
        let early = peer.replies().count
        let late = peer.wait(.milliseconds(40))
        #expect(early + late.count == 1)
    }

    @Test func aClosedWindowIsProbed() throws {
        var peer = RawPeer()
        try peer.establish()
        peer.send(.ack, window: 0)
        #expect(peer.write([UInt8](repeating: 1, count: 5_000)) == 5_000)
        #expect(peer.replies().isEmpty)
        var probes = 0
        for _ in 0..<30 {
            probes += peer.wait(.seconds(60)).count
            peer.send(.ack, window: 0)
            _ = peer.replies()
        }
        #expect(probes >= 25)
        #expect(peer.stack.connectionCount == 1)
        peer.send(.ack, window: 1_000)
        #expect(peer.replies().map(\.payload.count).reduce(0, +) == 5_000)
    }

    @Test func aPeerThatIsGoneIsGivenUp() throws {
        var peer = RawPeer()
        let id = try peer.establish()
        _ = peer.write([1, 2, 3])
        #expect(peer.replies().count == 1)
        let begin = peer.now
        let again = peer.wait(.seconds(3_600))
        #expect(peer.stack.allEvents() == [.failed(id, .timedOut)])
        #expect(again.count >= 10 && again.allSatisfy { $0.payload == [1, 2, 3] })
        #expect(peer.now - begin >= .seconds(100))
    }

    /// After an outage the first repair that arrives tells how long the way is: the next timeout is short again.
    @Test func aRepairEndsTheLongTimeouts() throws {
        var peer = RawPeer()
        try peer.establish()
        _ = peer.write([UInt8](repeating: 1, count: 10 * 1_208))
        let first = peer.replies()
        #expect(first.count >= 5)
        // 0.2 s, 0.4 s and so on.
        for _ in 0..<7 {
            var sent: [RawSegment] = []
            while sent.isEmpty { sent = peer.wait(.milliseconds(50)) }
        }
        #expect(peer.now > .seconds(10))
        peer.now += .milliseconds(10)
        peer.send(.ack, acknowledges: (first.first?.sequence ?? 0) &+ 1_208)
        #expect(!peer.replies().isEmpty)
        #expect(!peer.wait(.milliseconds(700)).isEmpty)
    }

    @Test func aSilentPeerIsAsked() throws {
        var peer = RawPeer()
        let id = try peer.establish()
        #expect(peer.wait(.seconds(7_199)).isEmpty)
        #expect(peer.wait(.seconds(2)).count == 1)
        peer.send(.ack)
        #expect(peer.wait(.seconds(7_190)).isEmpty)
        // It answers no more: nine questions, 75 seconds each.
        #expect(peer.wait(.seconds(700)).count == 9)
        #expect(peer.stack.allEvents() == [.failed(id, .timedOut)])
    }

    /// The peer answered no question, and then there is something for it: the next question is due meanwhile.
    @Test func dataForAPeerThatIsAsked() throws {
        var peer = RawPeer()
        let id = try peer.establish()
        #expect(peer.wait(.seconds(7_201)).count == 1)
        #expect(peer.write([1, 2, 3]) == 3 && peer.replies().count == 1)
        // It is sent again until the connection fails.
        #expect(peer.wait(.seconds(600)).count >= 10)
        #expect(peer.stack.allEvents() == [.failed(id, .timedOut)] && peer.stack.connectionCount == 0)
    }

    @Test func keepAliveCanBeChanged() throws {
        var peer = RawPeer()
        let id = try peer.establish()
        peer.stack.setKeepAlive(id, idle: .seconds(259_200))
        #expect(peer.wait(.seconds(259_190)).isEmpty)
        #expect(peer.wait(.seconds(20)).count == 1)
        peer.send(.ack)
        peer.stack.setKeepAlive(id, idle: .zero)
        #expect(peer.wait(.seconds(1_000_000)).isEmpty && peer.stack.connectionCount == 1)
    }

    // MARK: The end

    @Test func bothMayEndAtOnce() throws {
        var peer = RawPeer()
        let id = try peer.establish()
        peer.stack.finish(id, now: peer.now)
        let fin = try #require(peer.replies().first)
        #expect(fin.flags.contains(.fin))
        let acknowledged = peer.expected
        peer.send([.fin, .ack], acknowledges: acknowledged &- 1)
        #expect(peer.replies().last?.acknowledgment == peer.next)
        peer.send(.ack, acknowledges: acknowledged)
        #expect(peer.stack.allEvents() == [.endOfInput(id), .closed(id)])
        #expect(peer.stack.connectionCount == 0 && peer.stack.timeWaitCount == 1)
        _ = peer.wait(.seconds(61))
        #expect(peer.stack.timeWaitCount == 0)
    }

    @Test func halfAConnectionGoesOn() throws {
        var peer = RawPeer()
        let id = try peer.establish()
        peer.send([.fin, .ack], [7])
        #expect(peer.stack.allEvents() == [.readable(id)])
        #expect(peer.read() == [7] && peer.stack.allEvents() == [.endOfInput(id)])
        #expect(peer.write([8, 9]) == 2)
        #expect(peer.replies().map(\.payload).contains([8, 9]))
        peer.send(.ack)
        peer.stack.finish(id, now: peer.now)
        #expect(peer.replies().last?.flags.contains(.fin) == true)
        peer.send(.ack)
        #expect(peer.stack.allEvents() == [.closed(id)])
        // The side that ends last has nothing to wait for.
        #expect(peer.stack.timeWaitCount == 0)
    }

    @Test func aNewerSYNEndsTimeWait() throws {
        var peer = RawPeer()
        let id = try peer.establish()
        peer.stack.finish(id, now: peer.now)
        _ = peer.replies()
        peer.send([.fin, .ack])
        _ = peer.replies()
        #expect(peer.stack.timeWaitCount == 1)
        _ = peer.stack.allEvents()
        // A repetition is answered, RST ignored.
        peer.next &-= 1
        peer.send([.fin, .ack])
        #expect(peer.replies().count == 1)
        peer.send(.rst)
        #expect(peer.stack.timeWaitCount == 1)
        peer.send(.syn, stamp: 100, options: RawPeer.synOptions)
        #expect(peer.stack.timeWaitCount == 1 && peer.stack.connectionCount == 0)
        _ = peer.replies()
        // RFC 6191: whatever its number.
        peer.send(.syn, offset: -5_000, stamp: 101, options: RawPeer.synOptions)
        #expect(peer.stack.timeWaitCount == 0 && peer.stack.connectionCount == 1)
    }

    @Test func anAbortIsTold() throws {
        var peer = RawPeer()
        let id = try peer.establish()
        peer.stack.abort(id, now: peer.now)
        let reset = try #require(peer.replies().first)
        #expect(reset.flags == [.rst, .ack] && reset.sequence == peer.expected && reset.acknowledgment == peer.next)
        #expect(peer.stack.allEvents().isEmpty && peer.stack.connectionCount == 0)
        #expect(peer.write([1]) == 0 && peer.read().isEmpty)
    }

    @Test func aPeerThatIsResetLosesEverything() throws {
        var peer = RawPeer()
        let id = try peer.establish()
        peer.stack.reset(peer: theirs)
        #expect(peer.stack.allEvents() == [.failed(id, .reset)])
        #expect(peer.replies().isEmpty && peer.stack.connectionCount == 0)
    }

    /// An hour that is missing, and a clock that went back.
    @Test func clocksThatJump() throws {
        var peer = RawPeer()
        try peer.establish()
        _ = peer.write([1, 2, 3])
        _ = peer.replies()
        peer.now += .seconds(3_600)
        peer.stack.advance(now: peer.now)
        #expect(peer.replies().map(\.payload) == [[1, 2, 3]])
        peer.now -= .seconds(3_600)
        peer.stack.advance(now: peer.now)
        peer.send(.ack)
        #expect(peer.write([4]) == 1)
        #expect(peer.replies().map(\.payload) == [[4]])
    }
}

extension [UInt8] {
    fileprivate func contains(_ other: [UInt8]) -> Bool {
        indices.contains { self[$0...].starts(with: other) }
    }
}
