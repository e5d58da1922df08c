import FoundationEssentials
import IPAddresses
import Sodium

/// A configuration in the form of `wg-quick(8)`, of which the keys apply that a node without an interface has.
package struct WireGuardConfiguration: Sendable {
    /// Bytes of the longest file.
    package static let mostBytes = 1 << 20

    package enum Target: Equatable, Sendable {
        case address(Endpoint)
        case name(String, port: UInt16)
    }

    package struct Peer: Sendable {
        package var key: PublicKey
        package var preshared: SecretBytes?
        package var allowed: [IPPrefix] = []
        /// nil waits for the peer's first message.
        package var target: Target?
        package var keepAlive: Duration?
    }

    package struct Problem: Error, Equatable, CustomStringConvertible {
        package var line: Int
        package var text: String
        package var description: String { "line \(line): \(text)" }

        /// What may be a key is left out of the text: one can stand anywhere by mistake.
        package init(line: Int, text: String) {
            self.line = line
            var shown: [UInt8] = []
            var run: [UInt8] = []
            for byte in Array(text.utf8) + [0] {
                switch byte {
                case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"), UInt8(ascii: "/"):
                    run.append(byte)
                default:
                    shown += run.count >= Self.keyDigits ? Array("***".utf8) : run
                    run = []
                    shown.append(byte)
                }
            }
            self.text = String(decoding: shown.dropLast(), as: UTF8.self)
        }

        /// Of a key in base64, without what pads it.
        private static let keyDigits = 43
    }

    package let key: PrivateKey
    /// 0 lets the kernel choose.
    package private(set) var port: UInt16 = 0
    /// Ours in the tunnel.
    package private(set) var addresses: [IPAddress] = []
    package private(set) var peers: [Peer] = []
    /// What is not done, and may have been expected.
    package private(set) var warnings: [String] = []

    /// - Throws: ``Problem``, which never has the text of a key.
    package init(_ text: String) throws(Problem) {
        var parser = Parser()
        var number = 0
        for line in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline) {
            number += 1
            try parser.take(line, number)
        }
        try parser.endSection()
        guard let key = parser.key else { throw Problem(line: number, text: "[Interface] has no PrivateKey") }
        guard !parser.addresses.isEmpty else {
            throw Problem(
                line: number, text: "[Interface] has no IPv6 Address; add one, as Address = fd00::2/128")
        }
        (self.key, port, addresses, peers, warnings) =
            (key, parser.port, parser.addresses, parser.result, parser.warnings)
        if peers.isEmpty { warnings.append("there is no [Peer]: no client can connect") }
    }
}

extension WireGuardConfiguration {
    private enum Section { case none, interface, peer }

    /// Reads line by line.
    private struct Parser {
        var key: PrivateKey?
        var port: UInt16 = 0
        var addresses: [IPAddress] = []
        var peers: [Peer] = []
        var warnings: [String] = []
        private var section = Section.none
        private var hasInterface = false
        private var peer: PartialPeer?
        /// Where a key's peer is in ``peers``, and which key a prefix belongs to.
        private var places: [PublicKey: Int] = [:]
        private var owners: [IPPrefix: PublicKey] = [:]

        private struct PartialPeer {
            var line: Int
            var key: PublicKey?
            var preshared: SecretBytes?
            var allowed: [IPPrefix] = []
            var target: Target?
            /// Zero turns an earlier section's off.
            var keepAlive: Duration?
        }

        mutating func take(_ line: Substring, _ number: Int) throws(Problem) {
            let text = Self.trimmed(line.prefix { $0 != "#" })
            guard !text.isEmpty else { return }
            if text.hasPrefix("[") { return try begin(text.lowercased(), number) }
            guard let equals = text.firstIndex(of: "=") else {
                throw Problem(line: number, text: "this is neither a section nor \"Key = value\"")
            }
            let name = Self.trimmed(text[..<equals])
            let value = Self.trimmed(text[text.index(after: equals)...])
            switch section {
            case .none: throw Problem(line: number, text: "\(name) stands before [Interface]")
            case .interface: try takeInterface(name, value, number)
            case .peer: try takePeer(name, value, number)
            }
        }

        private mutating func begin(_ header: String, _ number: Int) throws(Problem) {
            try endSection()
            switch header {
            case "[interface]":
                guard !hasInterface else { throw Problem(line: number, text: "there is a second [Interface]") }
                (section, hasInterface) = (.interface, true)
            case "[peer]":
                section = .peer
                peer = PartialPeer(line: number)
            default: throw Problem(line: number, text: "the section is neither [Interface] nor [Peer]")
            }
        }

        mutating func endSection() throws(Problem) {
            guard let peer else { return }
            self.peer = nil
            guard let key = peer.key else { throw Problem(line: peer.line, text: "[Peer] has no PublicKey") }
            if peer.allowed.isEmpty {
                warnings.append("the peer of line \(peer.line) has no IPv6 prefix in AllowedIPs: it can send nothing")
            }
            // As `wg setconf` applies a file: a prefix belongs to the last peer that names it, and a later section with
            // the same key replaces the prefixes and whatever else it names.
            for prefix in peer.allowed {
                if let owner = owners.updateValue(key, forKey: prefix), owner != key {
                    warnings.append(
                        "\(prefix) belongs to the peer of line \(peer.line) now, no longer to an earlier one")
                }
            }
            guard let index = places[key] else {
                places[key] = peers.count
                return peers.append(
                    Peer(
                        key: key, preshared: peer.preshared, allowed: peer.allowed, target: peer.target,
                        keepAlive: peer.keepAlive))
            }
            warnings.append("the peer of line \(peer.line) has the key of an earlier one, whose AllowedIPs it replaces")
            peers[index].allowed = peer.allowed
            if let preshared = peer.preshared { peers[index].preshared = preshared }
            if let target = peer.target { peers[index].target = target }
            if let keepAlive = peer.keepAlive { peers[index].keepAlive = keepAlive }
        }

        /// The peers, each with the prefixes that no later one names.
        var result: [Peer] {
            peers.map { peer in
                var peer = peer
                peer.allowed.removeAll { owners[$0] != peer.key }
                if peer.keepAlive == .zero { peer.keepAlive = nil }
                return peer
            }
        }

        private mutating func takeInterface(_ name: String, _ value: String, _ line: Int) throws(Problem) {
            switch name.lowercased() {
            case "privatekey":
                let bytes = try Self.keyBytes(name, value, line)
                do { key = try PrivateKey(bytes) } catch { throw Problem(line: line, text: "\(error)") }
            case "listenport":
                guard let number = UInt16(value) else {
                    throw Problem(line: line, text: "ListenPort \"\(value)\" is not a number from 0 to 65535")
                }
                port = number
            case "address":
                for prefix in try Self.prefixes(name, value, line) {
                    if prefix.isIPv6 { addresses.append(prefix.address) } else { skipIPv4(prefix.text) }
                }
            case "dns", "mtu", "table", "preup", "postup", "predown", "postdown", "saveconfig", "fwmark":
                warnings.append("\(name) has no effect: there is no interface of the system")
            default: throw Problem(line: line, text: "\(name) is not a key of [Interface]")
            }
        }

        private mutating func takePeer(_ name: String, _ value: String, _ line: Int) throws(Problem) {
            switch name.lowercased() {
            case "publickey": peer?.key = PublicKey(try Self.keyBytes(name, value, line))
            case "presharedkey": peer?.preshared = SecretBytes(try Self.keyBytes(name, value, line))
            case "allowedips":
                for prefix in try Self.prefixes(name, value, line) {
                    if prefix.isIPv6, let network = IPPrefix(prefix.address, bits: prefix.bits) {
                        peer?.allowed.append(network)
                    } else {
                        skipIPv4(prefix.text)
                    }
                }
            case "endpoint": peer?.target = try Self.target(value, line)
            case "persistentkeepalive":
                if value.lowercased() == "off" {
                    peer?.keepAlive = .zero
                    return
                }
                guard let seconds = UInt16(value) else {
                    throw Problem(
                        line: line, text: "PersistentKeepalive \"\(value)\" is neither off nor seconds up to 65535")
                }
                peer?.keepAlive = .seconds(seconds)
            default: throw Problem(line: line, text: "\(name) is not a key of [Peer]")
            }
        }

        private mutating func skipIPv4(_ text: String) {
            warnings.append("\(text) is left out: only IPv6 goes through the tunnel")
        }

        /// The value is not told: it may be a secret.
        private static func keyBytes(_ name: String, _ value: String, _ line: Int) throws(Problem) -> [UInt8] {
            guard value.utf8.count == 44, let data = Data(base64Encoded: value), data.count == 32 else {
                throw Problem(
                    line: line, text: "\(name) is not a key: 32 bytes in base64, as wg genkey and wg pubkey print")
            }
            return Array(data)
        }

        private static func prefixes(
            _ name: String, _ value: String, _ line: Int
        ) throws(Problem) -> [(text: String, address: IPAddress, bits: Int, isIPv6: Bool)] {
            var result: [(String, IPAddress, Int, Bool)] = []
            for item in value.split(separator: ",") {
                let text = Self.trimmed(item)
                let host = String(text.prefix { $0 != "/" })
                guard let prefix = IPPrefix(text), let address = IPAddress(host) else {
                    throw Problem(line: line, text: "\(name) \"\(text)\" is not an address or network")
                }
                result.append((text, address, prefix.bits, host.contains(":")))
            }
            return result
        }

        private static func target(_ value: String, _ line: Int) throws(Problem) -> Target {
            if let endpoint = Endpoint(value), endpoint.port != 0 { return .address(endpoint) }
            let problem = Problem(
                line: line, text: "Endpoint \"\(value)\" is not host:port; IPv6 needs brackets, [::1]:51820")
            guard let colon = value.lastIndex(of: ":"), let port = UInt16(value[value.index(after: colon)...]),
                port != 0
            else { throw problem }
            let name = String(value[..<colon])
            // A link-local address with its interface, as [fe80::1%eth0]: the resolver knows the interface's number.
            if name.hasPrefix("["), name.hasSuffix("]"), let percent = name.firstIndex(of: "%") {
                let zone = name[name.index(after: percent)...].dropLast()
                guard let address = IPAddress(String(name[..<percent].dropFirst())), address.isLinkLocal,
                    !zone.isEmpty, zone.utf8.count < 16,
                    !zone.contains(where: { "/%[]".contains($0) || $0.isWhitespace })
                else { throw problem }
                return .name("\(address)%\(zone)", port: port)
            }
            guard !name.isEmpty, !name.contains(":"), !name.contains("["), !name.contains("/") else { throw problem }
            return .name(name, port: port)
        }

        private static func trimmed(_ text: some StringProtocol) -> String {
            let spaces: (Character) -> Bool = { $0 == " " || $0 == "\t" || $0 == "\r" }
            return String(text.drop(while: spaces).reversed().drop(while: spaces).reversed())
        }
    }
}
