import AgentTestSupport
import IPAddresses
import Testing

@testable import Disco

@Suite final class EndpointTests {
    private var manager = EndpointManager()
    private var random = SystemRandomNumberGenerator()
    private let server = endpoint("3.3.3.3:3478")

    private func address(_ text: String) -> IPAddress { IPAddress(text) ?? .unspecified }

    private func refresh(_ now: Duration) -> Bool { manager.refresh(now: now, random: &random) }

    private func answer(_ text: String, now: Duration) -> Bool {
        guard let request = manager.takeRequests().first, let packet = STUN.answer(request.packet, from: endpoint(text))
        else { return false }
        return manager.receive(packet, now: now)
    }

    @Test func whatIsAnnounced() {
        manager.setLocal(
            ["127.0.0.1", "::1", "10.0.0.1", "2001:db8::1", "fe80::1", "169.254.1.1", "fd7a:115c:a1e0::5", "10.0.0.1"]
                .map(address), v4: 41, v6: 42)
        #expect(manager.endpoints == [endpoint("10.0.0.1:41"), endpoint("[2001:db8::1]:42")])
        #expect(manager.takeChange()?.count == 2)
        #expect(manager.takeChange() == nil)
        // Loopback only where there is nothing else.
        manager.setLocal(["127.0.0.1", "::1", "fe80::1"].map(address), v4: 41, v6: nil)
        #expect(manager.endpoints == [endpoint("127.0.0.1:41")])
        manager.setServers([server], now: .zero)
        manager.advance(now: .zero, isActive: false, random: &random)
        let isOurs = answer("7.7.7.7:700", now: .zero)
        #expect(isOurs && manager.endpoints == [endpoint("7.7.7.7:700")])
        // STUN results come first.
        manager.setLocal(["10.0.0.1"].map(address), v4: 41, v6: nil)
        #expect(manager.endpoints == [endpoint("7.7.7.7:700"), endpoint("10.0.0.1:41")])
        manager.setLocal([], v4: nil, v6: nil)
        #expect(manager.nextDeadline == .seconds(310))
        manager.advance(now: .milliseconds(309_999), isActive: false, random: &random)
        #expect(manager.endpoints.count == 1)
        manager.advance(now: .seconds(310), isActive: false, random: &random)
        #expect(manager.endpoints == [])
    }

    @Test func requestsAreRepeatedUntilAnswered() {
        manager.setServers([server, server, endpoint("3.3.3.4:1")], now: .seconds(1))
        #expect(manager.nextDeadline == .seconds(1))
        manager.advance(now: .seconds(1), isActive: false, random: &random)
        let first = manager.takeRequests()
        #expect(first.count == 2 && manager.nextDeadline == .seconds(2) && manager.isWaiting(now: .seconds(1)))
        let reply = STUN.answer(first[0].packet, from: endpoint("7.7.7.7:700")) ?? []
        let (isOurs, isAgain) = (manager.receive(reply, now: .seconds(1)), manager.receive(reply, now: .seconds(1)))
        #expect(isOurs && !isAgain && manager.droppedAnswers == 1)
        manager.advance(now: .seconds(2), isActive: false, random: &random)
        let second = manager.takeRequests()
        #expect(second.count == 1 && first.contains(second[0]) && manager.nextDeadline == .seconds(4))
        manager.advance(now: .seconds(4), isActive: false, random: &random)
        #expect(manager.takeRequests().count == 1 && manager.nextDeadline == .seconds(7))
        manager.advance(now: .seconds(7), isActive: false, random: &random)
        #expect(manager.takeRequests().isEmpty && manager.nextDeadline == .seconds(311))
        #expect(manager.seenBy == [first[0].server: endpoint("7.7.7.7:700")] && manager.mappingVaries == nil)
    }

    @Test func roundsWhileAPeerIsActive() {
        manager.setServers([server], now: .zero)
        manager.advance(now: .zero, isActive: true, random: &random)
        var last = Duration.zero
        for _ in 0..<50 {
            #expect(answer("7.7.7.7:700", now: last))
            guard let next = manager.nextDeadline else { break }
            #expect(next - last >= .seconds(20) && next - last <= .seconds(26))
            manager.advance(now: next, isActive: true, random: &random)
            last = next
        }
        #expect(answer("7.7.7.7:700", now: last))
        manager.advance(now: last + .seconds(1), isActive: false, random: &random)
        #expect(manager.nextDeadline == last + .seconds(310))
        // Active again after a pause: at once.
        manager.advance(now: last + .seconds(100), isActive: true, random: &random)
        #expect(manager.takeRequests().count == 1)
    }

    @Test func aCallNeedsAFreshRound() {
        #expect(!refresh(.zero))
        manager.setServers([server], now: .zero)
        #expect(refresh(.zero))
        #expect(refresh(.milliseconds(999)))
        #expect(!refresh(.milliseconds(1_000)))
        #expect(!refresh(.seconds(27)) && manager.takeRequests().count == 1)
        #expect(refresh(.milliseconds(27_001)) && manager.takeRequests().count == 1)
    }

    @Test func limits() {
        for count in [63, 64, 65] {
            manager.setServers((0..<count).map { Endpoint(address("3.3.3.3"), UInt16($0 + count)) }, now: .zero)
            manager.advance(now: .zero, isActive: false, random: &random)
            #expect(manager.takeRequests().count == min(count, DiscoLimits.stunServers))
        }
        for count in [99, 100, 101] {
            manager.setLocal((0..<count).map { IPAddress(v4: 0x0a00_0001 + UInt32($0)) }, v4: 1, v6: nil)
            #expect(manager.endpoints.count == min(count, DiscoLimits.endpoints))
        }
        // A server behind a router that maps each request anew.
        for number in 0..<101 {
            let at = Duration.seconds(number * 30)
            manager.setServers([Endpoint(address("3.3.3.3"), UInt16(number + 1))], now: at)
            manager.advance(now: at, isActive: false, random: &random)
            #expect(answer("7.7.7.7:\(number + 1)", now: at))
        }
        #expect(manager.endpoints.count == 100)
        // What no peer could reach is not announced.
        manager.setServers([server], now: .seconds(9_000))
        manager.advance(now: .seconds(9_000), isActive: false, random: &random)
        #expect(answer("0.0.0.0:5", now: .seconds(9_000)) && !manager.endpoints.contains(endpoint("0.0.0.0:5")))
    }
}
