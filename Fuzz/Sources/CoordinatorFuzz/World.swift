@testable import AgentProto
import FuzzInput
@testable import IPAddresses
import SwiftProtobuf

@testable import Sodium
@testable import Tailnet

/// A coordinator, and what its actions have made of the peers.
struct World {
    private var coordinator: Coordinator
    private var own: TailnetAddresses
    private var peers: [TailnetPeer.ID: TailnetPeer] = [:]
    private var now = Duration.seconds(10)
    private var isOpen = false
    private var isRelayUp = false
    private var isAnnounced = false

    /// - Parameter isReady: the stream is open, and our relay is known.
    init(isReady: Bool) {
        let id: [UInt8] = [
            0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x41, 0x11, 0x81, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
        ]
        let key = [UInt8](repeating: 7, count: 32)
        guard let own = TailnetAddresses(agentID: id), let key = PublicKey(key) else { fatalError("no address") }
        self.own = own
        coordinator = Coordinator(addresses: own, key: key, disco: key) { .init(seconds: 1_700_000_000) }
        guard isReady else { return }
        for operation: UInt8 in [4, 6, 7] { act(operation | 128) }
    }

    mutating func perform(_ operation: UInt8, _ input: inout FuzzInput) {
        switch operation & 15 {
        case 8: now += .seconds(input.word())
        case 9:
            let isAlive = operation & 128 != 0
            let now = now
            coordinator.advance(now: now) { _ in isAlive ? now - .seconds(5) : nil }
            takeActions()
        case 10:
            if let addresses = TailnetAddresses(agentID: input.take(16)) {
                own = addresses
                coordinator.setAddresses(addresses, now: now)
                takeActions()
            }
        case 11: receive(update(operation, &input))
        case 0...3, 12...15:
            guard let response = try? Coder_Tailnet_V2_CoordinateResponse(serializedBytes: input.block()) else {
                return
            }
            receive(response)
        default: act(operation)
        }
    }

    private mutating func act(_ operation: UInt8) {
        let isOn = operation & 128 != 0
        switch operation & 7 {
        case 4:
            if isOn { coordinator.opened(now: now) } else { coordinator.closed(now: now) }
            (isOpen, isAnnounced) = (isOn, false)
        case 5:
            coordinator.disconnect()
            takeActions()
            isOpen = false
        case 6:
            coordinator.setRelays(
                home: isOn ? 1 : 0, latencies: ["1-v4": .milliseconds(Int(operation))], forcedWebSocket: [:], now: now)
        default:
            isRelayUp = isOn
            coordinator.setRelayUp(isOn)
        }
        takeActions()
    }

    /// An update that is nearly right.
    private func update(_ operation: UInt8, _ input: inout FuzzInput) -> Coder_Tailnet_V2_CoordinateResponse {
        var response = Coder_Tailnet_V2_CoordinateResponse()
        for _ in 0...Int(operation >> 4 & 7) {
            var update = Coder_Tailnet_V2_CoordinateResponse.PeerUpdate()
            let number = input.byte()
            update.id.append(contentsOf: [UInt8](repeating: number & 3, count: 16))
            update.kind = .init(rawValue: Int(number >> 2 & 7)) ?? .node
            update.node.key.append(contentsOf: "np".utf8)
            update.node.key.append(contentsOf: [UInt8](repeating: input.byte() & 3, count: 32))
            update.node.disco = "discokey:" + String(repeating: "0a", count: 32)
            update.node.preferredDerp = Int32(number >> 5)
            for _ in 0..<Int(number >> 6) {
                update.node.allowedIps.append("fd7a:115c:a1e0::\(input.byte() & 7)/128")
            }
            response.peerUpdates.append(update)
        }
        return response
    }

    private mutating func receive(_ response: Coder_Tailnet_V2_CoordinateResponse) {
        coordinator.receive(response, now: now)
        takeActions()
    }

    private mutating func takeActions() {
        while let action = coordinator.nextAction() {
            switch action {
            case .add(let peer):
                check(peers.updateValue(peer, forKey: peer.id) == nil, "added twice")
            case .change(let peer):
                let old = peers.updateValue(peer, forKey: peer.id)
                check(old != nil && old != peer && old?.key == peer.key, "no change")
            case .remove(let peer):
                check(peers.removeValue(forKey: peer.id) == peer, "removed what was not there")
            case .send(let request): take(request)
            case .log(let text, _): check(text.utf8.count < 8_000, "a long text")
            }
            checkPeers()
        }
        check(coordinator.peerCount == peers.count, "the driver knows other peers")
        check(Set(coordinator.allPeers) == Set(peers.values), "the driver knows other peers")
    }

    private mutating func take(_ request: Coder_Tailnet_V2_CoordinateRequest) {
        check(isOpen, "sent without a stream")
        if request.hasUpdateSelf {
            isAnnounced = true
            check(request.updateSelf.node.preferredDerp > 0, "announced without a relay")
            check(request.updateSelf.node.addresses == own.all.map { "\($0)/128" }, "other addresses")
        }
        check(request.readyForHandshake.isEmpty || isRelayUp && isAnnounced, "ready too soon")
        for ready in request.readyForHandshake { check(peers[Array(ready.id)] != nil, "ready for a stranger") }
        let bytes: [UInt8]? = try? request.serializedBytes()
        check(bytes != nil, "cannot be sent")
    }

    private func checkPeers() {
        check(peers.count <= Coordinator.mostPeers, "too many peers")
        var addresses: Set<IPAddress> = []
        for peer in peers.values {
            check(peer.id.count == 16 && peer.home > 0 && !peer.key.isZero && !peer.disco.isZero, "not a peer")
            for address in peer.addresses {
                check(TailnetAddresses.isOfTailnet(address) && addresses.insert(address).inserted, "not its address")
            }
        }
        check(Set(peers.values.map(\.key)).count == peers.count, "two peers with one key")
    }

    /// Peers that are lost go.
    mutating func end() {
        for peer in peers.values {
            check(own.all.allSatisfy { !peer.addresses.contains($0) }, "a peer has our address")
        }
        act(4)
        now += Coordinator.lostLife
        coordinator.advance(now: now) { _ in nil }
        takeActions()
        check(peers.isEmpty && coordinator.nextDeadline == nil, "peers are left")
    }
}
