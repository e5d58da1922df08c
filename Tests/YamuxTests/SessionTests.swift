import NIOCore
import Testing

@testable import Yamux

private let start = NIODeadline.uptimeNanoseconds(0)

/// A server session with stream 1 opened by the other side and accepted.
private func served(_ session: YamuxSession = YamuxSession(role: .server)) -> YamuxSession {
    var session = session
    session.receive(YamuxHeader(.windowUpdate, .syn, stream: 1))
    session.accept(1)
    _ = session.drain()
    return session
}

private let goAway1 = YamuxSession.Action.send(YamuxHeader(.goAway, stream: 0, length: 1))
private let violation = YamuxSession.Action.end(YamuxError(.protocolViolation, ""))
private func reset(_ id: UInt32) -> YamuxHeader { YamuxHeader(.windowUpdate, .rst, stream: id) }

@Suite struct SessionOpenTests {
    @Test func idsAreOddForTheClientAndEvenForTheServer() throws {
        var client = YamuxSession(role: .client)
        let ids = try [client.open(), client.open(), client.open()]
        #expect(ids == [1, 3, 5])
        #expect(after(&client) { $0.frames() } == [1, 3, 5].map { YamuxHeader(.windowUpdate, .syn, stream: $0) })
        var server = YamuxSession(role: .server)
        let evens = try [server.open(), server.open()]
        #expect(evens == [2, 4])
    }

    @Test(arguments: [YamuxSession.Role.client, .server])
    func anyParityIsAcceptedAndOursStepsAside(_ role: YamuxSession.Role) throws {
        var session = YamuxSession(role: role)
        for id in [4, 1, 3, 2] as [UInt32] { session.receive(YamuxHeader(.windowUpdate, .syn, stream: id)) }
        #expect(after(&session) { $0.drain() } == [.opened(4), .opened(1), .opened(3), .opened(2)])
        #expect(try after(&session) { try $0.open() } == (role == .client ? 5 : 6))
    }

    @Test func idsThatAreUsedUpFailTheOpen() throws {
        for (role, last) in [(YamuxSession.Role.client, UInt32.max), (.server, UInt32.max - 1)] {
            var session = YamuxSession(role: role, firstID: last)
            #expect(try after(&session) { try $0.open() } == last)
            #expect(throws: YamuxError(.notAccepting, "")) { try session.open() }
            #expect(session.ended == nil)
        }
    }

    @Test func dataMayCarrySynAndFin() {
        var session = YamuxSession(role: .server)
        session.receive(YamuxHeader(.data, [.syn, .fin], stream: 1, length: 2), ByteBuffer(string: "hi"))
        #expect(after(&session) { $0.drain() } == [.opened(1), .deliver(1, ByteBuffer(string: "hi")), .inputEnded(1)])
        session.receive(YamuxHeader(.data, [.syn, .ack, .fin], stream: 3))
        #expect(after(&session) { $0.drain() } == [.opened(3), .inputEnded(3)])
        session.receive(YamuxHeader(.windowUpdate, [.syn], stream: 5, length: 10))
        #expect(session.sendWindow(of: 5) == YamuxLimits.window + 10)
    }

    @Test func moreThanTheBacklogIsReset() {
        var session = YamuxSession(role: .server)
        let last = UInt32(YamuxLimits.acceptBacklog) * 2 - 1
        for id in stride(from: 1, through: last, by: 2) {
            session.receive(YamuxHeader(.windowUpdate, .syn, stream: id))
        }
        #expect(after(&session) { $0.frames() } == [])
        session.receive(YamuxHeader(.data, .syn, stream: last + 2, length: 1), ByteBuffer(string: "x"))
        #expect(after(&session) { $0.drain() } == [.send(reset(last + 2))])
        // One that is accepted or gone makes room.
        session.accept(1)
        session.receive(reset(3))
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: last + 4))
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: last + 6))
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: last + 8))
        #expect(
            after(&session) { $0.drain() } == [
                .send(YamuxHeader(.windowUpdate, .ack, stream: 1)), .reset(3), .opened(last + 4), .opened(last + 6),
                .send(reset(last + 8)),
            ])
    }

    @Test func moreStreamsThanTheLimitAreRefused() throws {
        var session = YamuxSession(role: .client, maxStreams: 2)
        #expect(try after(&session) { try $0.open() } == 1)
        #expect(try after(&session) { try $0.open() } == 3)
        #expect(throws: YamuxError(.limit, "")) { try session.open() }
        _ = session.drain()
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: 2))
        #expect(after(&session) { $0.drain() } == [.send(reset(2))])
        // A closed one that waits for the other side makes room.
        session.close(1, now: start)
        _ = session.drain()
        #expect(try after(&session) { try $0.open() } == 5)
        #expect(after(&session) { $0.frames() } == [reset(1), YamuxHeader(.windowUpdate, .syn, stream: 5)])
        #expect(session.lingeringStreams == 0 && session.openStreams == 2)
    }

    @Test func theSecondSynEndsTheSession() {
        var session = served()
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: 1))
        #expect(after(&session) { $0.drain() } == [goAway1, violation])
        // Of a stream that is gone, too.
        session = served()
        session.finish(1)
        session.receive(YamuxHeader(.windowUpdate, .fin, stream: 1))
        #expect(session.openStreams == 0)
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: 1))
        #expect(after(&session) { $0.drain() }.suffix(2) == [goAway1, violation])
        // And of one that we opened.
        session = YamuxSession(role: .client)
        _ = try? session.open()
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: 1))
        #expect(after(&session) { $0.drain() }.suffix(2) == [goAway1, violation])
        session = YamuxSession(role: .client)
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: 0))
        #expect(after(&session) { $0.drain() } == [goAway1, violation])
    }

    @Test func millionsOfStreamsLeaveNothing() {
        var session = YamuxSession(role: .server)
        for id in stride(from: 1 as UInt32, to: 100_000, by: 2) {
            session.receive(YamuxHeader(.data, [.syn, .fin], stream: id))
            session.accept(id)
            session.finish(id)
            while session.nextAction() != nil {}
        }
        #expect(session.streams.isEmpty && !session.hasData && session.unaccepted == 0)
    }
}

@Suite struct SessionWindowTests {
    @Test func exactlyTheWindowIsTakenAndOneByteMoreIsNot() {
        var session = served()
        session.receive(YamuxHeader(.data, stream: 1, length: YamuxLimits.window - 1), pattern(0, 262_143))
        session.receive(YamuxHeader(.data, stream: 1, length: 1), pattern(0, 1))
        #expect(session.unconsumed(of: 1) == YamuxLimits.window && session.ended == nil)
        session.receive(YamuxHeader(.data, stream: 1, length: 1), pattern(0, 1))
        #expect(after(&session) { $0.drain() }.suffix(2) == [goAway1, violation])

        session = served()
        session.receive(YamuxHeader(.data, stream: 1, length: YamuxLimits.window + 1))
        #expect(after(&session) { $0.drain() } == [goAway1, violation])
    }

    @Test func theWindowIsGivenBackFromItsHalfOn() {
        var session = served()
        session.receive(YamuxHeader(.data, stream: 1, length: YamuxLimits.window), pattern(0, 262_144))
        _ = session.drain()
        session.consumed(131_071, stream: 1)
        #expect(after(&session) { $0.drain() }.isEmpty)
        session.consumed(1, stream: 1)
        #expect(after(&session) { $0.frames() } == [YamuxHeader(.windowUpdate, stream: 1, length: 131_072)])
        // More than was delivered cannot be consumed.
        session.consumed(1_000_000, stream: 1)
        #expect(after(&session) { $0.frames() } == [YamuxHeader(.windowUpdate, stream: 1, length: 131_072)])
        session.consumed(131_072, stream: 1)
        #expect(after(&session) { $0.drain() }.isEmpty)
    }

    @Test func aSenderStopsAtTheWindow() {
        var session = served()
        session.write(pattern(0, 300_000), stream: 1)
        session.transmitAll()
        #expect(after(&session) { $0.frames() }.map(\.length) == [69_632, 69_632, 69_632, 53_248])
        #expect(!session.hasData && session.sendWindow(of: 1) == 0)
        session.receive(YamuxHeader(.windowUpdate, stream: 1, length: 10))
        #expect(session.hasData)
        session.transmitAll()
        #expect(
            after(&session) { $0.drain() } == [
                .windowOpened(1),
                .sendData(YamuxHeader(.data, stream: 1, length: 10), pattern(262_144, 10)),
            ])
    }

    @Test func aWindowPast32BitsEndsTheSession() {
        var session = served()
        session.receive(YamuxHeader(.windowUpdate, stream: 1, length: .max - YamuxLimits.window))
        #expect(session.sendWindow(of: 1) == .max && session.ended == nil)
        session.receive(YamuxHeader(.windowUpdate, stream: 1, length: 1))
        #expect(after(&session) { $0.drain() } == [goAway1, violation])
    }

    @Test func streamsTakeTurns() throws {
        var session = YamuxSession(role: .client)
        for _ in 0..<3 { _ = try session.open() }
        session.write(pattern(0, 200_000), stream: 1)
        session.write(pattern(0, 10), stream: 3)
        session.write(pattern(0, 70_000), stream: 5)
        _ = session.drain()
        session.transmitAll()
        let frames = session.frames()
        #expect(frames.map(\.stream) == [1, 3, 5, 1, 5, 1])
        #expect(frames.map(\.length) == [69_632, 10, 69_632, 69_632, 368, 60_736])
    }
}

@Suite struct SessionEndTests {
    @Test func theSecondFinEndsTheSession() {
        var session = served()
        session.receive(YamuxHeader(.windowUpdate, .fin, stream: 1))
        #expect(after(&session) { $0.drain() } == [.inputEnded(1)])
        session.receive(YamuxHeader(.data, .fin, stream: 1))
        #expect(after(&session) { $0.drain() } == [goAway1, violation])
    }

    @Test func dataGoesOnAfterTheOthersFin() {
        var session = served()
        session.receive(YamuxHeader(.windowUpdate, .fin, stream: 1))
        session.write(ByteBuffer(string: "late"), stream: 1)
        session.finish(1)
        #expect(after(&session) { $0.drain() } == [.inputEnded(1)])
        session.transmitAll()
        #expect(
            after(&session) { $0.drain() } == [
                .sendData(YamuxHeader(.data, stream: 1, length: 4), ByteBuffer(string: "late")),
                .send(YamuxHeader(.windowUpdate, .fin, stream: 1)), .outputEnded(1), .forgotten(1),
            ])
    }

    @Test func dataAfterFinResetsItsStreamOnly() {
        var session = served()
        session.receive(YamuxHeader(.windowUpdate, .fin, stream: 1))
        session.receive(YamuxHeader(.data, stream: 1, length: 1), ByteBuffer(string: "x"))
        #expect(after(&session) { $0.drain() } == [.inputEnded(1), .send(reset(1)), .reset(1)])
        #expect(session.ended == nil)
    }

    @Test func lateFramesAreSkipped() {
        var session = served()
        session.reset(1)
        #expect(after(&session) { $0.frames() } == [reset(1)])
        session.receive(YamuxHeader(.data, stream: 1, length: 1_000_000), pattern(0, 1_000_000))
        session.receive(YamuxHeader(.windowUpdate, stream: 1, length: .max))
        session.receive(YamuxHeader(.windowUpdate, .fin, stream: 1))
        session.receive(YamuxHeader(.data, .fin, stream: 1))
        session.receive(reset(1))
        session.receive(YamuxHeader(.windowUpdate, .ack, stream: 77))
        #expect(after(&session) { $0.drain() }.isEmpty && session.ended == nil)
    }

    @Test func aResetInTheMiddleOfAFrameSkipsTheRest() {
        var session = served()
        session.receive(.header(YamuxHeader(.data, .fin, stream: 1, length: 4)))
        session.receive(.payload(ByteBuffer(string: "ab")))
        session.reset(1)
        session.receive(.payload(ByteBuffer(string: "cd")))
        #expect(
            after(&session) { $0.drain() } == [.deliver(1, ByteBuffer(string: "ab")), .send(reset(1)), .forgotten(1)])
    }

    @Test func aResetDropsWhatWaits() {
        var session = served()
        session.write(pattern(0, 100), stream: 1)
        session.receive(reset(1))
        #expect(after(&session) { $0.transmit() } == 0)
        #expect(after(&session) { $0.drain() } == [.reset(1)])
        session.receive(YamuxHeader(.windowUpdate, [.syn, .rst], stream: 3))
        #expect(after(&session) { $0.drain() }.isEmpty && session.openStreams == 0)
    }

    @Test func closeSendsWhatFitsThenFin() {
        var session = served()
        session.write(pattern(0, 100_000), stream: 1)
        session.close(1, now: start)
        #expect(after(&session) { $0.frames() }.map(\.flags) == [[], [], .fin])
        #expect(session.openStreams == 0 && session.lingeringStreams == 1)
        session.receive(YamuxHeader(.data, .fin, stream: 1, length: 3), ByteBuffer(string: "bye"))
        #expect(after(&session) { $0.drain() } == [.forgotten(1)])
    }

    @Test func closeResetsWhatCannotBeSentOrWasNotRead() {
        var session = served()
        session.write(pattern(0, 262_145), stream: 1)
        session.close(1, now: start)
        #expect(after(&session) { $0.frames() }.last == reset(1))
        session = served()
        session.receive(YamuxHeader(.data, stream: 1, length: 1), ByteBuffer(string: "x"))
        session.close(1, now: start)
        #expect(after(&session) { $0.frames() } == [reset(1)])
        // Refusing is closing without having accepted.
        session = YamuxSession(role: .server)
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: 1))
        session.close(1, now: start)
        #expect(after(&session) { $0.frames() } == [reset(1)])
        #expect(session.unaccepted == 0)
    }

    @Test func aClosedStreamWaitsForFinForItsTime() {
        var session = YamuxSession(role: .server, closeTimeout: .seconds(10))
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: 1))
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: 3))
        session.accept(1)
        session.accept(3)
        session.close(1, now: start)
        session.close(3, now: start + .seconds(4))
        #expect(after(&session) { $0.drain() }.filter { $0 == .lingers(until: start + .seconds(10)) }.count == 1)
        let early = session.expire(now: start + .seconds(10) - .nanoseconds(1))
        #expect(early == start + .seconds(10))
        #expect(after(&session) { $0.drain() }.isEmpty)
        #expect(after(&session) { $0.expire(now: start + .seconds(10)) } == start + .seconds(14))
        #expect(after(&session) { $0.frames() } == [reset(1)])
        #expect(after(&session) { $0.expire(now: start + .seconds(14)) } == nil)
        #expect(after(&session) { $0.frames() } == [reset(3)])
    }

    @Test func muchDataForAClosedStreamResetsIt() {
        var session = served()
        session.close(1, now: start)
        session.receive(YamuxHeader(.data, stream: 1, length: 131_071), pattern(0, 131_071))
        #expect(after(&session) { $0.frames() } == [YamuxHeader(.windowUpdate, .fin, stream: 1)])
        session.receive(YamuxHeader(.data, stream: 1, length: 1), pattern(0, 1))
        #expect(after(&session) { $0.frames() } == [reset(1)])
        #expect(session.lingeringStreams == 0)
    }
}

@Suite struct SessionControlTests {
    @Test func pingsAreAnswered() {
        var session = YamuxSession(role: .client)
        session.receive(YamuxHeader(.ping, .syn, stream: 0, length: 0xDEAD_BEEF))
        #expect(after(&session) { $0.frames() } == [YamuxHeader(.ping, .ack, stream: 0, length: 0xDEAD_BEEF)])
        session.receive(YamuxHeader(.ping, .ack, stream: 0, length: 7))
        session.receive(YamuxHeader(.ping, stream: 0, length: 7))
        #expect(after(&session) { $0.drain() }.isEmpty && session.ended == nil)
    }

    @Test func anUnansweredPingEndsTheSession() throws {
        var session = YamuxSession(role: .client)
        let (first, none) = try (#require(after(&session) { $0.ping() }), session.ping())
        #expect(none == nil)
        session.receive(YamuxHeader(.ping, .ack, stream: 0, length: first + 1))
        session.receive(YamuxHeader(.ping, .ack, stream: 0, length: first))
        session.pingTimedOut(first)
        #expect(session.ended == nil)
        let second = try #require(after(&session) { $0.ping() })
        #expect([first, second] == [0, 1])
        session.pingTimedOut(first)
        #expect(session.ended == nil)
        session.pingTimedOut(second)
        #expect(session.ended?.code == .keepAliveTimeout)
        // Without a GoAway: the session has ended.
        #expect(
            after(&session) { $0.drain() } == [
                .send(YamuxHeader(.ping, .syn, stream: 0, length: 0)), .pong(0),
                .send(YamuxHeader(.ping, .syn, stream: 0, length: 1)), .end(YamuxError(.keepAliveTimeout, "")),
            ])
    }

    @Test func afterGoAwayOldStreamsGoOn() {
        var session = served()
        session.receive(YamuxHeader(.goAway, stream: 0))
        session.receive(YamuxHeader(.goAway, stream: 0))
        #expect(after(&session) { $0.drain() } == [.goingAway])
        #expect(throws: YamuxError(.notAccepting, "")) { try session.open() }
        session.write(ByteBuffer(string: "x"), stream: 1)
        #expect(after(&session) { $0.transmit() } == 1)
    }

    @Test(arguments: [1, 2, 3, 0xFFFF_FFFF] as [UInt32])
    func otherGoAwaysEndTheSession(_ code: UInt32) {
        var session = served()
        session.receive(YamuxHeader(.goAway, stream: 0, length: code))
        #expect(after(&session) { $0.drain() } == [.end(YamuxError(.goAway(code), ""))])
        #expect(throws: YamuxError(.goAway(code), "")) { try session.open() }
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: 3))
        #expect(after(&session) { $0.drain() }.isEmpty && session.openStreams == 0)
    }

    @Test func ourGoAwayRefusesNewStreams() {
        var session = served()
        session.goAway()
        session.goAway()
        session.receive(YamuxHeader(.windowUpdate, .syn, stream: 3))
        session.receive(YamuxHeader(.data, stream: 1, length: 1), ByteBuffer(string: "x"))
        #expect(
            after(&session) { $0.drain() } == [
                .send(YamuxHeader(.goAway, stream: 0)), .send(reset(3)), .deliver(1, ByteBuffer(string: "x")),
            ])
        #expect(throws: YamuxError(.notAccepting, "")) { try session.open() }
    }
}
