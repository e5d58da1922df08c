import AgentProto
import AgentTestSupport
import Foundation
import IPAddresses
import SwiftProtobuf
import Testing

@testable import Tailnet

/// `tailnet_addresses.json`: of the reference's own functions.
@Suite struct TailnetAddressesTests {
    static func id(_ text: String) throws -> [UInt8] { try #require(bytes(fromHex: text.replacing("-", with: ""))) }

    @Test func everyRecordedAddress() throws {
        let all = try #require(VectorFile.read("tailnet_addresses.json")["addresses"] as? [[String: Any]])
        #expect(!all.isEmpty)
        for vector in all {
            let addresses = try #require(TailnetAddresses(agentID: try Self.id(vector["agent_id"] as? String ?? "")))
            #expect("\(addresses.client)/128" == vector["tailscale_prefix"] as? String)
            #expect("\(addresses.connect)/128" == vector["coder_prefix"] as? String)
            #expect(addresses.nodeID == (vector["node_id"] as? NSNumber)?.int64Value)
        }
        #expect(TailnetAddresses(agentID: [1, 2, 3]) == nil)
    }

    /// What we announce is among what the control plane accepts.
    @Test func whatWeAnnounceIsAccepted() throws {
        let file = try VectorFile.read("tailnet_addresses.json")
        let all = try #require(file["agent_authorization"] as? [[String: Any]])
        let (coordinator, _) = try CoordinatorWorld.make()
        var own = coordinator
        own.opened(now: .zero)
        own.setRelays(home: 1, latencies: [:], forcedWebSocket: [:], now: .zero)
        guard case .send(let request)? = own.nextAction() else {
            Issue.record("nothing is announced")
            return
        }
        let accepted = all.filter { $0["accepted"] as? Bool == true }.compactMap { $0["addresses"] as? [String] }
        #expect(accepted.contains(request.updateSelf.node.addresses))
        #expect(request.updateSelf.node.allowedIps == request.updateSelf.node.addresses)
    }
}

@Suite struct CoordinatorTests {
    // MARK: Recorded

    /// The data of each message frame of a dRPC stream; here messages are never split.
    private func messages(_ hex: Any?) throws -> [Data] {
        let all = try #require(bytes(fromHex: hex))
        var rest = all[...]
        func number() -> Int {
            var (value, shift) = (0, 0)
            while let byte = rest.popFirst() {
                value |= Int(byte & 127) << shift
                if byte & 128 == 0 { break }
                shift += 7
            }
            return value
        }
        var result: [Data] = []
        while let control = rest.popFirst() {
            _ = (number(), number())
            let count = number()
            if control >> 1 & 63 == 2 { result.append(Data(rest.prefix(count))) }
            rest = rest.dropFirst(count)
        }
        return result
    }

    /// The recorded control plane's words; ours must be the recorded agent's, byte for byte.
    @Test func theRecordedConversation() throws {
        let steps = try #require(VectorFile.read("tailnet_streams.json")["coordinate"] as? [[String: Any]])
        var sent = try steps.filter { $0["from"] as? String == "agent" }.flatMap { try messages($0["hex"]) }
        #expect(sent.count == 4)
        // Ready for one who has no tunnel is what a test asked the real agent for.
        sent.remove(at: 2)
        var (coordinator, _) = try CoordinatorWorld.make()
        coordinator.setEndpoints(
            [try #require(Endpoint("192.0.2.10:41641")), try #require(Endpoint("[2001:db8::5]:41641"))], now: .zero)
        coordinator.setRelays(
            home: 999, latencies: ["999-v4": .microseconds(12_500), "1000-v6": .milliseconds(500)],
            forcedWebSocket: [:], now: .zero)
        coordinator.setRelayUp(true)
        coordinator.opened(now: .zero)
        var ours: [Data] = []
        var others: [Coordinator.Action] = []
        func perform() throws {
            for action in CoordinatorWorld.actions(&coordinator) {
                guard case .send(let request) = action else {
                    others.append(action)
                    continue
                }
                var options = BinaryEncodingOptions()
                options.useDeterministicOrdering = true
                ours.append(try request.serializedBytes(options: options))
            }
        }
        try perform()
        for step in steps where step["from"] as? String == "server" {
            for data in try messages(step["hex"]) {
                coordinator.receive(try Coder_Tailnet_V2_CoordinateResponse(serializedBytes: data), now: .seconds(1))
                try perform()
            }
        }
        coordinator.disconnect()
        try perform()
        // A map's order is the encoder's.
        let decoded = try (ours.map { try Coder_Tailnet_V2_CoordinateRequest(serializedBytes: $0) })
        #expect(try decoded == sent.map { try Coder_Tailnet_V2_CoordinateRequest(serializedBytes: $0) })
        #expect(ours.map(\.count) == sent.map(\.count))
        guard case .add(let peer)? = others.first, case .log(let text, false)? = others.last else {
            Issue.record("\(others)")
            return
        }
        #expect(peer.addresses.map { "\($0)" } == ["fd7a:115c:a1e0:4222:8222:2222:2222:2222"] && peer.home == 999)
        #expect(text.contains("you do not share a tunnel"))
        #expect(others.count == 2 && coordinator.lastError == nil)
        #expect(coordinator.nextDeadline == .seconds(901))
    }

    @Test(arguments: ["coordinate_bad_address", "coordinate_overwritten"]) func recordedErrors(name: String) throws {
        let steps = try #require(VectorFile.read("tailnet_streams.json")[name] as? [[String: Any]])
        var coordinator = try CoordinatorWorld.ready()
        for step in steps where step["from"] as? String == "server" {
            for data in try messages(step["hex"]) {
                coordinator.receive(try Coder_Tailnet_V2_CoordinateResponse(serializedBytes: data), now: .zero)
            }
        }
        let error = try #require(coordinator.lastError)
        #expect(
            CoordinatorWorld.actions(&coordinator) == [
                .log("the control plane says of coordination: \(error)", isWarning: true)
            ])
        coordinator.closed(now: .zero)
        coordinator.opened(now: .zero)
        #expect(coordinator.lastError == nil)
    }

    // MARK: Ourselves

    @Test func nothingIsAnnouncedWithoutAHome() throws {
        var (coordinator, _) = try CoordinatorWorld.make()
        coordinator.opened(now: .zero)
        coordinator.setEndpoints([try #require(Endpoint("1.2.3.4:5"))], now: .zero)
        #expect(CoordinatorWorld.actions(&coordinator).isEmpty && coordinator.nextDeadline == nil)
        coordinator.setRelays(home: 7, latencies: [:], forcedWebSocket: [7: "h2"], now: .zero)
        guard case .send(let request)? = coordinator.nextAction() else {
            Issue.record("nothing was sent")
            return
        }
        #expect(request.updateSelf.node.preferredDerp == 7 && request.updateSelf.node.endpoints == ["1.2.3.4:5"])
        #expect(request.updateSelf.node.derpForcedWebsocket == [7: "h2"])
    }

    @Test func latenciesAloneWaitAMinute() throws {
        var coordinator = try CoordinatorWorld.ready()
        func set(_ latency: Int64, home: Int = 1, at seconds: Int64) {
            coordinator.setRelays(
                home: home, latencies: ["1-v4": .milliseconds(latency)], forcedWebSocket: [:], now: .seconds(seconds))
        }
        set(5, at: 1)
        set(6, at: 59)
        #expect(CoordinatorWorld.actions(&coordinator).isEmpty && coordinator.nextDeadline == .seconds(60))
        coordinator.advance(now: .milliseconds(59_999)) { _ in nil }
        #expect(CoordinatorWorld.actions(&coordinator).isEmpty)
        coordinator.advance(now: .seconds(60)) { _ in nil }
        #expect(CoordinatorWorld.actions(&coordinator).count == 1 && coordinator.nextDeadline == nil)
        // With another home at once.
        set(7, home: 2, at: 61)
        #expect(CoordinatorWorld.actions(&coordinator).count == 1)
        set(7, home: 2, at: 200)
        #expect(CoordinatorWorld.actions(&coordinator).isEmpty)
    }

    @Test func aNewStreamHearsEverythingAgain() throws {
        var coordinator = try CoordinatorWorld.ready()
        coordinator.closed(now: .seconds(1))
        coordinator.setRelays(home: 2, latencies: [:], forcedWebSocket: [:], now: .seconds(2))
        #expect(CoordinatorWorld.actions(&coordinator).isEmpty)
        coordinator.opened(now: .seconds(3))
        #expect(CoordinatorWorld.actions(&coordinator).count == 1)
    }
}
