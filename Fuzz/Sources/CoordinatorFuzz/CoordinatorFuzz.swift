@testable import AgentProto
import FuzzInput
@testable import IPAddresses
import SwiftProtobuf

@testable import DERP
@testable import Sodium
@testable import Tailnet

/// The first byte decides what the others are for: a configuration's text, a map of relays, or what the control plane
/// says.
func fuzz(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard count > 0 else { return 0 }
    var input = FuzzInput(data, count)
    let choice = input.byte()
    switch choice % 3 {
    case 0: readConfiguration(String(decoding: input.rest(), as: UTF8.self))
    case 1: readMap(&input)
    default:
        var world = World(isReady: choice & 128 != 0)
        while !input.isEmpty { world.perform(input.byte(), &input) }
        world.end()
    }
    return 0
}

// MARK: Texts

private func readConfiguration(_ text: String) {
    do throws(WireGuardConfiguration.Problem) {
        let configuration = try WireGuardConfiguration(text)
        check(!configuration.addresses.isEmpty, "a configuration without addresses")
        for warning in configuration.warnings { checkSecrecy(warning) }
        for peer in configuration.peers {
            for prefix in peer.allowed { check(IPPrefix("\(prefix)") == prefix, "another prefix: \(prefix)") }
            if let keepAlive = peer.keepAlive { check(keepAlive > .zero, "no time") }
            switch peer.target {
            case .address(let endpoint): check(endpoint.port != 0, "port 0")
            case .name(let name, let port): check(!name.isEmpty && port != 0, "no target")
            case nil: break
            }
        }
    } catch {
        checkSecrecy("\(error)")
        check(error.line >= 0, "no line")
    }
}

/// No text has what may be a key.
private func checkSecrecy(_ text: String) {
    var run = 0
    for byte in text.utf8 {
        let isDigit =
            UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte || UInt8(ascii: "A")...UInt8(ascii: "Z") ~= byte
            || UInt8(ascii: "/")...UInt8(ascii: "9") ~= byte || byte == UInt8(ascii: "+")
        run = isDigit ? run + 1 : 0
        check(run < 43, "a key may be told")
    }
}

private func readMap(_ input: inout FuzzInput) {
    let control = ControlPlaneAddress(String(decoding: input.block(), as: UTF8.self))
    guard let message = try? Coder_Tailnet_V2_DERPMap(serializedBytes: input.rest()) else { return }
    var map = DERPMap(message)
    if let control {
        check((1...65_535).contains(control.port) && !control.host.isEmpty, "no address: \(control)")
        map = map.rewritingEmbeddedRelays(to: control)
    }
    check(map.regions.count <= DERPLimits.regions, "too many regions")
    for region in map.regions.values {
        check(region.id > 0 && region.nodes.count <= DERPLimits.nodesPerRegion, "a region that may not be")
        guard let relay = region.relay else { continue }
        // The URL and the Host header are made of these.
        check(!"\(relay)".utf8.contains { $0 <= 32 || $0 == 127 }, "an address that ends a line")
        check(ControlPlaneAddress("\(relay)")?.host == relay.host, "another address: \(relay)")
    }
    for server in map.stunServers { check(server.port != 0, "port 0") }
}
