import AgentProto
import IPAddresses
import Sodium

/// A peer as the control plane announced it, and as we may take it.
package struct TailnetPeer: Hashable, Sendable {
    package typealias ID = [UInt8]

    /// Prefixes of one peer; a peer with more is refused (docs/contracts/tailnet.md#who-is-who).
    static let mostAddresses = 8
    /// Endpoints of one peer; further ones are left out.
    static let mostEndpoints = 100

    /// 16 bytes.
    package var id: ID
    /// Of WireGuard, and at the relays.
    package var key: PublicKey
    package var disco: PublicKey
    /// The region of its home relay.
    package var home: Int
    package var addresses: [IPAddress]
    package var endpoints: [Endpoint]

    /// Why a peer was rejected, as the end of a sentence.
    package struct Refusal: Error, Equatable, CustomStringConvertible {
        package var description: String
    }

    package init(id: ID, key: PublicKey, disco: PublicKey, home: Int, addresses: [IPAddress], endpoints: [Endpoint]) {
        (self.id, self.key, self.disco, self.home) = (id, key, disco, home)
        (self.addresses, self.endpoints) = (addresses, endpoints)
    }

    /// - Parameter own: our addresses, which no peer may have.
    init(id: ID, _ node: Coder_Tailnet_V2_Node, own: [IPAddress]) throws(Refusal) {
        guard id.count == 16 else { throw Refusal(description: "its id has \(id.count) bytes instead of 16") }
        guard let key = Self.nodeKey(Array(node.key)) else {
            throw Refusal(description: "its key is not \"np\" and 32 bytes")
        }
        guard let disco = Self.discoKey(node.disco) else {
            throw Refusal(description: "its disco key is not \"discokey:\" and 64 hexadecimal digits")
        }
        guard node.preferredDerp > 0 else { throw Refusal(description: "its home relay is \(node.preferredDerp)") }
        guard node.allowedIps.count <= Self.mostAddresses else {
            throw Refusal(description: "it has \(node.allowedIps.count) addresses, over \(Self.mostAddresses)")
        }
        var addresses: [IPAddress] = []
        for text in node.allowedIps {
            guard let prefix = IPPrefix(text), text.contains("/"), prefix.bits == 128,
                TailnetAddresses.isOfTailnet(prefix.address)
            else {
                throw Refusal(description: "\(text.prefix(64).debugDescription) is not a single address of the tailnet")
            }
            guard !own.contains(prefix.address) else { throw Refusal(description: "it claims our address \(text)") }
            if !addresses.contains(prefix.address) { addresses.append(prefix.address) }
        }
        self.init(
            id: id, key: key, disco: disco, home: Int(node.preferredDerp), addresses: addresses,
            endpoints: node.endpoints.lazy.compactMap { Endpoint($0) }.filter { $0.port != 0 }.prefix(
                Self.mostEndpoints
            )
            .map { $0 })
    }

    private static let nodeKeyPrefix = Array("np".utf8)
    private static let discoKeyPrefix = "discokey:"

    static func nodeKey(_ bytes: [UInt8]) -> PublicKey? {
        guard bytes.starts(with: nodeKeyPrefix), let key = PublicKey(bytes.dropFirst(2)), !key.isZero else {
            return nil
        }
        return key
    }

    static func nodeKeyBytes(_ key: PublicKey) -> [UInt8] { nodeKeyPrefix + key.bytes }

    static func discoKey(_ text: String) -> PublicKey? {
        let digits = Array(text.utf8.dropFirst(discoKeyPrefix.utf8.count))
        guard text.hasPrefix(discoKeyPrefix), digits.count == 64 else { return nil }
        var bytes: [UInt8] = []
        for index in stride(from: 0, to: 64, by: 2) {
            guard let high = hexDigit(digits[index]), let low = hexDigit(digits[index + 1]) else { return nil }
            bytes.append(high << 4 | low)
        }
        guard let key = PublicKey(bytes), !key.isZero else { return nil }
        return key
    }

    private static func hexDigit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }

    static func discoKeyText(_ key: PublicKey) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return discoKeyPrefix
            + String(decoding: key.bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }

    package var idText: String { Self.text(id) }

    /// As a UUID, where it is one.
    static func text(_ id: TailnetPeer.ID) -> String {
        let digits = Array("0123456789abcdef".utf8)
        let text = String(
            decoding: id.prefix(16).flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
        guard text.utf8.count == 32 else { return text.isEmpty ? "without an id" : text }
        var rest = text[...]
        return [8, 4, 4, 4, 12].map { count in
            defer { rest = rest.dropFirst(count) }
            return String(rest.prefix(count))
        }.joined(separator: "-")
    }
}
