import AgentTestSupport
import Glibc
import IPAddresses
import Testing

@testable import NetStack

/// Two hosts, and a connection from the second to the first.
func pair(
    _ path: Link.Path, _ random: inout SeededGenerator, limits: NetStackLimits = NetStackLimits(),
    toServer: Int, toClient: Int, configure: (inout App) -> Void = { _ in }
) throws -> (link: Link, server: Host, client: Host, id: ConnectionID) {
    let server = Host(ours, &random, limits: limits)
    let client = Host(theirs, &random, limits: limits)
    var serverApp = App(id: ConnectionID(slot: 0, generation: 0), salt: 2, peerSalt: 1, toSend: toClient)
    configure(&serverApp)
    server.accept = { id, _, _ in
        var app = serverApp
        app.id = id
        return app
    }
    let link = Link(server, client, path, random: random)
    let opened = client.stack.connect(to: Endpoint(ours, 80), now: link.now)
    let id = try #require(opened)
    client.apps[id] = App(id: id, salt: 1, peerSalt: 2, toSend: toServer)
    client.write(id, now: link.now)
    return (link, server, client, id)
}

@Suite struct TransferTests {
    @Test(arguments: [0.0, 0.01, 0.05, 0.2])
    func bytesArriveExactly(loss: Double) throws {
        var random = SeededGenerator("bytesArriveExactly \(loss)")
        let path = Link.Path(jitter: .milliseconds(2), loss: loss, duplication: loss / 4, corruption: loss / 4)
        try exchange(loss > 0.1 ? 300_000 : 2_000_000, path, &random, within: .seconds(600))
    }

    /// 1 GiB each way at once, over 50 ms there and back. It takes minutes, so only with `WA_LONG=1`.
    @Test(.enabled(if: getenv("WA_LONG") != nil), arguments: [0.0, 0.01, 0.05])
    func aGiBBothWays(loss: Double) throws {
        var random = SeededGenerator("aGiBBothWays \(loss)")
        let path = Link.Path(delay: .milliseconds(25), jitter: .milliseconds(2), loss: loss, duplication: loss / 4)
        try exchange(1 << 30, path, &random, within: .seconds(100_000))
    }

    /// That many bytes each way at once arrive as they were sent, and then the end of each side.
    private func exchange(
        _ count: Int, _ path: Link.Path, _ random: inout SeededGenerator, within limit: Duration
    ) throws {
        let (link, server, client, id) = try pair(path, &random, toServer: count, toClient: count)
        let start = link.now
        let done = link.run(limit) {
            client.apps[id]?.isOver == true && server.apps.values.allSatisfy(\.isOver) && !server.apps.isEmpty
        }
        #expect(done)
        let a = try #require(client.apps[id])
        let b = try #require(server.apps.values.first)
        #expect(a.failure == nil && b.failure == nil)
        #expect(a.received == count && b.received == count && a.sawEnd && b.sawEnd)
        #expect(!server.isCorrupt && !client.isCorrupt)
        server.stack.checkInvariants()
        client.stack.checkInvariants()
        print(
            "loss \(path.loss): \(link.now - start), client \(client.stack.counters.retransmissions) of \(link.lost) lost"
        )
    }

    /// 50 ms there and back: the window must grow to what is under way.
    @Test func aLongPathIsFilled() throws {
        var random = SeededGenerator("aLongPathIsFilled")
        let (link, server, _, _) = try pair(
            Link.Path(delay: .milliseconds(25)), &random, toServer: 24_000_000, toClient: 0)
        func received(_ count: Int) -> Bool { server.apps.values.contains { $0.received >= count } }
        #expect(link.run(.seconds(60)) { received(8_000_000) })
        let begin = link.now
        #expect(link.run(.seconds(60)) { received(24_000_000) })
        #expect(16_000_000 / ((link.now - begin) / .seconds(1)) >= 40_000_000)
    }
}
