import AgentTestSupport
import IPAddresses
import Testing

@testable import Disco

@Suite struct NetworkTests {
    private func pair(_ net: Network, _ first: NAT, _ second: NAT) throws -> (Host, Host) {
        let a = try net.host(1, first == .none ? "1.1.1.1:4000" : "10.0.0.1:4000", "1.1.1.1", first)
        let b = try net.host(2, second == .none ? "2.2.2.2:4000" : "10.9.0.1:4000", "2.2.2.2", second)
        net.introduce(a, b)
        return (a, b)
    }

    private func talk(_ net: Network, _ a: Host, _ b: Host, for time: Duration) {
        net.run(for: time) {
            net.sendData(a, to: b)
            net.sendData(b, to: a)
        }
    }

    @Test(arguments: [
        (NAT.none, NAT.none, true), (.fullCone, .none, true), (.fullCone, .fullCone, true), (.symmetric, .none, true),
        (.symmetric, .fullCone, true), (.symmetric, .symmetric, false),
    ])
    func aPathIsFoundWhereThereIsOne(_ first: NAT, _ second: NAT, _ isFound: Bool) throws {
        let net = Network("disco NAT")
        let (a, b) = try pair(net, first, second)
        talk(net, a, b, for: .seconds(3))
        #expect((a.paths[b.nodeKey] != nil) == isFound && (b.paths[a.nodeKey] != nil) == isFound)
        #expect(a.node.isDirect(b.nodeKey, now: net.now) == isFound)
        if isFound {
            #expect(a.node.report(b.nodeKey, now: net.now)?.latency == .milliseconds(20))
            // On a trusted path nothing goes by relay, and it is pinged every 3 s.
            (a.data, b.data, net.relayPackets) = ([], [], 0)
            let pings = a.node.counters.sentPings
            talk(net, a, b, for: .seconds(30))
            #expect(net.relayPackets == 0 && a.data.count >= 299 && a.data.allSatisfy(\.1))
            #expect((9...11).contains(a.node.counters.sentPings - pings))
        } else {
            // It stays on the relay without harm, and candidates are tried every 5 s.
            let pings = a.node.counters.sentPings
            talk(net, a, b, for: .seconds(30))
            #expect(a.data.count >= 320 && !a.data.contains { $0.1 })
            let candidates = UInt64(a.node.report(b.nodeKey, now: net.now)?.candidates.count ?? 0)
            #expect(a.node.counters.sentPings - pings <= candidates * 13)
        }
        #expect(first == .symmetric ? a.node.mappingVaries == true : a.node.mappingVaries == false)
    }

    /// Only a knows an address of b: b hears of a by a's pings.
    @Test func oneAnnouncementIsEnough() throws {
        let net = Network("disco one way")
        let a = try net.host(1, "10.0.0.1:4000", "1.1.1.1", .fullCone)
        let b = try net.host(2, "2.2.2.2:4000", "2.2.2.2", .none)
        _ = a.node.update(b.nodeKey, disco: b.discoKey, endpoints: [b.inside], now: net.now)
        _ = b.node.update(a.nodeKey, disco: a.discoKey, endpoints: [], now: net.now)
        talk(net, a, b, for: .seconds(2))
        #expect(
            b.paths[a.nodeKey] == endpoint("1.1.1.1:40000") && b.node.peer(at: endpoint("1.1.1.1:40000")) == a.nodeKey)
    }

    @Test func aPathIsLostAndFoundAgain() throws {
        let net = Network("disco lost path")
        let (a, b) = try pair(net, .fullCone, .none)
        talk(net, a, b, for: .seconds(5))
        #expect(a.node.isDirect(b.nodeKey, now: net.now))
        a.isUDPBlocked = true
        (a.data, net.relayPackets) = ([], 0)
        talk(net, a, b, for: .seconds(10))
        #expect(!a.node.isDirect(b.nodeKey, now: net.now) && !b.node.isDirect(a.nodeKey, now: net.now))
        // At most 6.5 s of silence, then the relay carries it, too.
        #expect(a.data.count >= 30 && !a.data.contains { $0.1 })
        if case .both = a.node.route(b.nodeKey, now: net.now) {} else { Issue.record("not by both") }
        talk(net, a, b, for: .seconds(40))
        #expect(a.node.route(b.nodeKey, now: net.now) == .relay && a.paths[b.nodeKey] == nil)
        a.isUDPBlocked = false
        talk(net, a, b, for: .seconds(6))
        #expect(a.node.isDirect(b.nodeKey, now: net.now) && b.node.isDirect(a.nodeKey, now: net.now))
    }

    @Test(arguments: [5, 30]) func lossDelaysAndBreaksNothing(_ loss: Int) throws {
        let net = Network("disco loss")
        net.loss = loss
        let (a, b) = try pair(net, .fullCone, .fullCone)
        talk(net, a, b, for: .seconds(60))
        #expect(a.paths[b.nodeKey] != nil && b.paths[a.nodeKey] != nil, "seed \(net.random.seed)")
        #expect(a.data.count > 300 && a.data.contains { $0.1 })
    }

    @Test func anIdlePairIsSilent() throws {
        let net = Network("disco idle")
        let (a, b) = try pair(net, .fullCone, .none)
        talk(net, a, b, for: .seconds(5))
        net.run(for: .seconds(60))
        (net.udpPackets, net.relayPackets) = (0, 0)
        net.run(for: .seconds(3_600))
        #expect(net.udpPackets == 0 && net.relayPackets == 0 && a.paths[b.nodeKey] == nil)
        #expect(a.node.boundCount == 1, "what b announces")
        talk(net, a, b, for: .seconds(3))
        #expect(a.node.isDirect(b.nodeKey, now: net.now))
    }

    /// After an hour the router has forgotten its ports: servers are asked before the call.
    @Test func aCallAfterALongPauseNamesNewEndpoints() throws {
        let net = Network("disco old endpoints")
        let (a, b) = try pair(net, .symmetric, .none)
        net.run(for: .seconds(100))
        a.restartRouter()
        b.isUDPBlocked = true
        a.node.received(from: b.nodeKey, now: net.now)
        (a.announced, net.udpPackets) = ([], 0)
        net.run(for: .seconds(400))
        net.sendData(a, to: b)
        #expect(a.node.counters.sentCallMeMaybes == 0 && a.node.toCall == [b.nodeKey])
        net.run(for: .milliseconds(50))
        #expect(a.node.counters.sentCallMeMaybes == 1 && a.node.toCall == [])
        // Where no server answers, the call waits for a second.
        net.run(for: .seconds(400))
        net.loss = 100
        net.sendData(a, to: b)
        net.run(for: .milliseconds(990))
        #expect(a.node.counters.sentCallMeMaybes == 1)
        net.run(for: .milliseconds(20))
        #expect(a.node.counters.sentCallMeMaybes == 2)
    }

    @Test func pings() throws {
        let net = Network("disco pings")
        let (a, b) = try pair(net, .fullCone, .none)
        let first = try #require(a.ping(b.nodeKey, now: net.now))
        net.drain(a)
        net.run(for: .seconds(1))
        #expect(a.latencies[first] == .some(.milliseconds(80)))
        talk(net, a, b, for: .seconds(2))
        let second = try #require(a.ping(b.nodeKey, now: net.now))
        net.drain(a)
        net.run(for: .seconds(1))
        #expect(a.latencies[second] == .some(.milliseconds(20)))
        a.isUDPBlocked = true
        let third = try #require(a.ping(b.nodeKey, now: net.now))
        net.drain(a)
        net.run(for: .milliseconds(4_999))
        #expect(a.latencies[third] == nil)
        net.run(for: .milliseconds(1))
        #expect(a.latencies[third] == .some(nil))
        let stranger = a.node.ping(a.nodeKey, now: net.now)
        #expect(stranger == nil)
    }

    @Test func directConnectionsDisabled() throws {
        let net = Network("disco disabled")
        let (a, b) = try pair(net, .fullCone, .none)
        talk(net, a, b, for: .seconds(2))
        #expect(a.node.boundCount > 0)
        a.node.setDirect(false, now: net.now)
        net.drain(a)
        #expect(a.announced == [] && a.node.endpoints == [] && a.node.boundCount == 0 && a.paths[b.nodeKey] == nil)
        a.node.setLocal([a.inside.address], v4: 9, v6: nil)
        net.drain(a)
        #expect(a.announced == [])
        net.introduce(a, b)
        net.run(for: .seconds(10))
        (a.sentUDP, a.data) = (0, [])
        net.run(for: .seconds(30)) { net.sendData(a, to: b) }
        #expect(a.sentUDP == 0 && !b.data.suffix(200).contains { $0.1 })
        // b still tries, and a still answers by relay.
        net.run(for: .seconds(30)) { net.sendData(b, to: a) }
        let drops = a.node.counters.drops[.directDisabled, default: 0]
        #expect(drops > 0 && !a.data.contains { $0.1 })
        let id = try #require(b.ping(a.nodeKey, now: net.now))
        net.drain(b)
        net.run(for: .seconds(1))
        #expect(b.latencies[id] == .some(.milliseconds(80)))
        a.node.setDirect(true, now: net.now)
        net.drain(a)
        #expect(!a.announced.isEmpty)
        net.introduce(a, b)
        talk(net, a, b, for: .seconds(6))
        #expect(a.node.isDirect(b.nodeKey, now: net.now))
    }
}
