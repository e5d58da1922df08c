import AgentProto
import AgentTestSupport
import Foundation
import Synchronization
import Testing

@testable import ControlPlaneSimulator

typealias CoordinateRequest = Coder_Tailnet_V2_CoordinateRequest
typealias CoordinateResponse = Coder_Tailnet_V2_CoordinateResponse

/// A peer's stream in this process.
final class TestPeer: Sendable {
    let id: [UInt8]
    private let state = Mutex<(responses: [CoordinateResponse], ends: Int)>(([], 0))
    private let attachment = Mutex<CoordinationService.Attachment?>(nil)

    init(_ service: CoordinationService, _ byte: UInt8, isAgent: Bool = false) {
        id = makeID(byte)
        let made = service.attach(id, isAgent: isAgent) { [self] response in
            state.withLock { $0.responses.append(response) }
        } end: { [self] in
            state.withLock { $0.ends += 1 }
        }
        attachment.withLock { $0 = made }
    }

    @discardableResult func send(_ change: (inout CoordinateRequest) -> Void) -> String? {
        attachment.withLock { $0 }?.receive(.with(change))
    }

    func lost() { attachment.withLock { $0 }?.lost() }
    var ends: Int { state.withLock { $0.ends } }
    var isOpen: Bool { attachment.withLock { $0 }?.isOpen ?? false }

    func taken() -> [CoordinateResponse] {
        state.withLock { state in
            defer { state.responses = [] }
            return state.responses
        }
    }

    /// Takes all, and says whether such an update was among it.
    func heard(_ kind: CoordinateResponse.PeerUpdate.Kind) -> Bool {
        taken().contains { $0.peerUpdates.contains { $0.kind == kind } }
    }
}

/// `22222222-2222-4222-8222-222222222222` and the like.
func makeID(_ byte: UInt8) -> [UInt8] {
    var id = [UInt8](repeating: byte, count: 16)
    id[6] = 0x40 | byte & 0xf
    id[8] = 0x80 | byte & 0xf
    return id
}

private func update(
    _ peer: TestPeer, _ kind: CoordinateResponse.PeerUpdate.Kind, _ reason: String, _ node: Coder_Tailnet_V2_Node? = nil
) -> CoordinateResponse {
    .with { response in
        response.peerUpdates = [
            .with {
                $0.id = Data(peer.id)
                $0.kind = kind
                $0.reason = reason
                if let node { $0.node = node }
            }
        ]
    }
}

@Suite("Simulator: coordination")
struct CoordinationTests {
    private let service = CoordinationService()
    private let node = Coder_Tailnet_V2_Node.with { $0.id = 5 }
    private let other = Coder_Tailnet_V2_Node.with { $0.id = 6 }

    /// An agent and a client that know each other.
    private func pair() -> (agent: TestPeer, client: TestPeer) {
        let agent = TestPeer(service, 0x11, isAgent: true)
        let client = TestPeer(service, 0x22)
        agent.send { $0.updateSelf.node = node }
        client.send { $0.updateSelf.node = other }
        client.send { $0.addTunnel.id = Data(agent.id) }
        #expect(agent.taken() == [update(client, .node, "add tunnel", other)])
        #expect(client.taken() == [update(agent, .node, "add tunnel", node)])
        return (agent, client)
    }

    @Test("nodes go to those who share a tunnel, and to nobody else")
    func nodes() {
        let (agent, client) = pair()
        let stranger = TestPeer(service, 0x33)
        stranger.send { $0.updateSelf.node = node }
        agent.send { $0.updateSelf.node = other }
        client.send { $0.updateSelf.node = node }
        #expect(client.taken() == [update(agent, .node, "update self", other)])
        #expect(agent.taken() == [update(client, .node, "update self", node)])
        #expect(stranger.taken() == [])
        #expect(service.node(of: agent.id) == other && service.peers == [agent.id, client.id, stranger.id])
        client.send { $0.addTunnel.id = Data(agent.id) }
        #expect(service.tunnels == 1 && agent.taken() == [])
        client.send { $0.removeTunnel.id = Data(agent.id) }
        #expect(agent.taken() == [update(client, .disconnected, "remove tunnel")])
        #expect(client.taken() == [update(agent, .disconnected, "remove tunnel")])
        #expect(service.tunnels == 0)
    }

    @Test("a tunnel to an agent that isn't there yet, or comes back")
    func laterAgent() {
        let client = TestPeer(service, 0x22)
        client.send {
            $0.updateSelf.node = other
            $0.addTunnel.id = Data(makeID(0x11))
        }
        #expect(client.taken() == [])
        for _ in 0..<2 {
            let agent = TestPeer(service, 0x11, isAgent: true)
            #expect(agent.taken() == [update(client, .node, "add tunnel", other)])
            agent.send { $0.updateSelf.node = node }
            #expect(client.taken() == [update(agent, .node, "update self", node)])
            agent.lost()
            agent.lost()
            #expect(client.taken() == [update(agent, .lost, "lost")] && agent.ends == 1)
        }
    }

    @Test("Disconnect, and what comes after it")
    func disconnect() {
        let (agent, client) = pair()
        client.send { $0.disconnect = .init() }
        #expect(agent.taken() == [update(client, .disconnected, "disconnected")])
        #expect(client.ends == 1 && !client.isOpen && service.tunnels == 0)
        client.send { $0.updateSelf.node = node }
        client.lost()
        #expect(client.ends == 1 && agent.taken() == [])
        #expect(service.peers == [agent.id])
    }

    @Test("what an agent may claim", arguments: 0..<8)
    func authorization(_ index: Int) throws {
        let tests = #filePath.split(separator: "/").dropLast(2).joined(separator: "/")
        let vector = try VectorFile.read("tailnet_addresses.json", tests: "/\(tests)/TailnetTests/Tests.swift")
        let entries = try #require(vector["agent_authorization"] as? [[String: Any]])
        #expect(entries.count == 8)
        let entry = entries[index]
        let agent = TestPeer(service, 0x11, isAgent: true)
        let addresses = entry["addresses"] as? [String]
        let problem = agent.send { request in
            if let addresses { request.updateSelf.node.addresses = addresses } else { request.addTunnel = .init() }
        }
        let error = try #require(entry["error"] as? String)
        #expect(problem == (error.isEmpty ? nil : "authorization: \(error)"))
        #expect(agent.isOpen == (entry["accepted"] as? Bool))
        #expect(agent.taken() == (problem.map { text in [.with { $0.error = text }] } ?? []))
    }

    @Test("allowed_ips are looked at as addresses are; clients may claim anything")
    func allowedIPs() {
        let (agent, client) = pair()
        client.send { $0.updateSelf.node.allowedIps = ["0.0.0.0/0"] }
        #expect(client.isOpen && agent.taken().count == 1)
        for text in ["::/0", "10.0.0.1/32", "x/128", "fd60:627a:a42b:4111:8111:1111:1111:1111/128x"] {
            let agent = TestPeer(service, 0x11, isAgent: true)
            #expect(agent.send { $0.updateSelf.node.allowedIps = [text] }?.hasPrefix("authorization: Allowed") == true)
            #expect(agent.ends == 1)
        }
    }

    @Test("a test can send anything, and end the streams of agents")
    func controls() {
        let (agent, client) = pair()
        service.send(.with { $0.error = "anything" }, to: agent.id)
        service.send(.with { $0.error = "nobody" }, to: makeID(0x44))
        #expect(agent.taken() == [.with { $0.error = "anything" }] && agent.isOpen)
        service.endAgents()
        #expect(agent.ends == 1 && client.isOpen)
        #expect(client.taken() == [update(agent, .lost, "lost")])
    }

    @Test("a receiver may call the service, and hears everything in order")
    func reentrance() {
        let agent = TestPeer(service, 0x11, isAgent: true)
        agent.send { $0.updateSelf.node = node }
        let seen = Mutex<[String]>([])
        let own = Mutex<CoordinationService.Attachment?>(nil)
        let attachment = service.attach(makeID(0x22), isAgent: false) { response in
            seen.withLock { $0.append(response.peerUpdates.first?.reason ?? response.error) }
            if response.peerUpdates.first?.kind == .node {
                own.withLock { $0 }?.receive(.with { $0.disconnect = .init() })
            }
        } end: {
            seen.withLock { $0.append("end") }
        }
        own.withLock { $0 = attachment }
        attachment.receive(.with { $0.addTunnel.id = Data(agent.id) })
        #expect(seen.withLock { $0 } == ["add tunnel", "end"])
    }

    @Test("peers, tunnels and nodes up to their limits")
    func limits() {
        var state = CoordinationState()
        func id(_ number: Int) -> [UInt8] {
            [UInt8](repeating: 0, count: 14) + [UInt8(number >> 8), UInt8(number & 255)]
        }
        for number in 0..<SimulatorLimits.coordinatedPeers {
            state.attach(UInt64(number), id(number), isAgent: false)
        }
        #expect(state.effects.isEmpty)
        state.attach(9_999, id(9_999), isAgent: false)
        #expect(state.effects.count == 2 && !state.isOpen(9_999))
        state.lost(0)
        state.attach(9_999, id(9_999), isAgent: false)
        #expect(state.isOpen(9_999))
        for number in 0..<SimulatorLimits.tunnels {
            #expect(state.receive(.with { $0.addTunnel.id = Data(id(number)) }, UInt64(1 + number % 2)) == nil)
        }
        #expect(state.tunnelCount == SimulatorLimits.tunnels)
        #expect(
            state.receive(.with { $0.addTunnel.id = Data(id(9_000)) }, 3) == "authorization: too many tunnels")
        func named(_ bytes: Int) -> CoordinateRequest {
            .with { $0.updateSelf.node.disco = String(repeating: "x", count: bytes) }
        }
        // Two tags and two lengths of three bytes.
        let most = SimulatorLimits.nodeBytes - 8
        #expect(state.receive(named(most), 4) == nil)
        #expect(state.receive(named(most + 1), 4) == "authorization: the node has 65537 bytes")
    }
}
