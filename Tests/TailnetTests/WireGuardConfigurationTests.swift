import Glibc
import IPAddresses
import NIOCore
import Sodium
import Testing

@testable import Tailnet

@Suite struct WireGuardConfigurationTests {
    private static let key = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk="
    private static let peer = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
    private static let interface = "[Interface]\nPrivateKey = \(key)\nAddress = fd00::1\n"

    private func parse(_ text: String) throws -> WireGuardConfiguration { try WireGuardConfiguration(text) }

    @Test func everything() throws {
        let configuration = try parse(
            """
            # A comment
            [interface]\r
              privatekey=\(Self.key)  # mine
            ListenPort = 51820
            Address = 10.0.0.2/24, fd00::2/64
            Address = fd00::3/128
            MTU = 1420
            PostUp = iptables -A x

            [Peer]
            PublicKey = \(Self.peer)
            PresharedKey = \(Self.key)
            AllowedIPs = fd00:1::/32,10.0.0.0/8
            AllowedIPs = fd00:2::5
            Endpoint = [2001:db8::1]:51821
            PersistentKeepalive = 25
            [Peer]
            PublicKey = \(Self.key)
            Endpoint = vpn.example.com:443
            PersistentKeepalive = off
            """)
        #expect(configuration.port == 51_820)
        #expect(configuration.addresses.map { "\($0)" } == ["fd00::2", "fd00::3"])
        #expect(configuration.peers.count == 2)
        let first = try #require(configuration.peers.first)
        #expect(first.allowed.map { "\($0)" } == ["fd00:1::/32", "fd00:2::5/128"])
        #expect(first.target == .address(try #require(Endpoint("[2001:db8::1]:51821"))))
        #expect(first.keepAlive == .seconds(25))
        #expect(first.preshared?.count == 32)
        let second = configuration.peers[1]
        #expect(second.target == .name("vpn.example.com", port: 443))
        #expect(second.keepAlive == nil && second.preshared == nil)
        #expect(
            configuration.warnings == [
                "10.0.0.2/24 is left out: only IPv6 goes through the tunnel",
                "MTU has no effect: there is no interface of the system",
                "PostUp has no effect: there is no interface of the system",
                "10.0.0.0/8 is left out: only IPv6 goes through the tunnel",
                "the peer of line 17 has no IPv6 prefix in AllowedIPs: it can send nothing",
            ])
        // As wg pubkey says of the documentation's key.
        #expect("\(configuration.key)" == "***")
    }

    /// Read once by the real wg(8): `wg setconf`, then `wg show`.
    @Test func theLaterSectionOwnsKeysAndPrefixes() throws {
        let configuration = try parse(
            """
            \(Self.interface)
            [Peer]
            PublicKey = \(Self.peer)
            PresharedKey = \(Self.key)
            AllowedIPs = fd00::1/128, fd00::9/128
            Endpoint = 192.0.2.1:5
            PersistentKeepalive = 7
            [Peer]
            PublicKey = \(Self.key)
            AllowedIPs = fd00::9/128, fd00::3/128
            PersistentKeepalive = 9
            [Peer]
            PublicKey = \(Self.peer)
            AllowedIPs = fd00::2/128, fd00::3/128
            [Peer]
            PublicKey = \(Self.key)
            AllowedIPs = fd00::9/128
            PersistentKeepalive = off
            """)
        #expect(configuration.peers.count == 2)
        let (first, second) = (configuration.peers[0], configuration.peers[1])
        #expect(first.allowed.map { "\($0)" } == ["fd00::2/128", "fd00::3/128"])
        #expect(first.preshared?.count == 32 && first.keepAlive == .seconds(7))
        #expect(first.target == .address(try #require(Endpoint("192.0.2.1:5"))))
        #expect(second.allowed.map { "\($0)" } == ["fd00::9/128"])
        #expect(second.preshared == nil && second.keepAlive == nil)
        #expect(configuration.warnings.count == 4, "\(configuration.warnings)")
    }

    @Test func aLinkLocalEndpointNamesItsInterface() throws {
        func target(_ endpoint: String) throws -> WireGuardConfiguration.Target? {
            try parse("\(Self.interface)[Peer]\nPublicKey = \(Self.peer)\nEndpoint = \(endpoint)").peers.first?.target
        }
        #expect(try target("[fe80::1%lo]:51820") == .name("fe80::1%lo", port: 51_820))
        let longest = String(repeating: "i", count: 15)
        #expect(try target("[fe80::1%\(longest)]:1") == .name("fe80::1%\(longest)", port: 1))
        for wrong in [
            "fe80::1%", "fe80::1%i\(longest)", "fd00::1%lo", "1.2.3.4%lo", "x%lo", "fe80::1%a%b", "fe80::1%a/b",
        ] {
            #expect(throws: WireGuardConfiguration.Problem.self, "\(wrong)") { try target("[\(wrong)]:1") }
        }
        // What the resolver makes of it keeps the interface, to the socket and back.
        let address = try SocketAddress.makeAddressResolvingHost("fe80::1%lo", port: 51_820)
        let endpoint = try #require(address.endpoint)
        #expect(endpoint.scope == if_nametoindex("lo") && SocketAddress(endpoint) == address)
        #expect("\(endpoint)" == "[fe80::1%\(endpoint.scope)]:51820")
    }

    @Test func withoutAPeerThereIsAWarning() throws {
        #expect(try parse(Self.interface).warnings == ["there is no [Peer]: no client can connect"])
        #expect(try parse(Self.interface).port == 0)
    }

    @Test(arguments: [
        ("", 1, "[Interface] has no PrivateKey"),
        ("[Interface]\nAddress = fd00::1", 2, "[Interface] has no PrivateKey"),
        (
            "[Interface]\nPrivateKey = \(key)\nAddress = 10.0.0.1/24", 3,
            "[Interface] has no IPv6 Address; add one, as Address = fd00::2/128"
        ),
        ("PrivateKey = \(key)", 1, "PrivateKey stands before [Interface]"),
        ("[Server]", 1, "the section is neither [Interface] nor [Peer]"),
        ("\(interface)[Interface]", 4, "there is a second [Interface]"),
        ("\(interface)hello", 4, "this is neither a section nor \"Key = value\""),
        ("\(interface)Colour = red", 4, "Colour is not a key of [Interface]"),
        ("\(interface)ListenPort = 65536", 4, "ListenPort \"65536\" is not a number from 0 to 65535"),
        ("\(interface)Address = fd00::1/129", 4, "Address \"fd00::1/129\" is not an address or network"),
        ("\(interface)[Peer]", 4, "[Peer] has no PublicKey"),
        ("\(interface)[Peer]\n[Peer]\nPublicKey = \(peer)", 4, "[Peer] has no PublicKey"),
        ("\(interface)[Peer]\nFace = red", 5, "Face is not a key of [Peer]"),
        ("\(interface)[Peer]\nAllowedIPs = any", 5, "AllowedIPs \"any\" is not an address or network"),
        (
            "\(interface)[Peer]\nPersistentKeepalive = 65536", 5,
            "PersistentKeepalive \"65536\" is neither off nor seconds up to 65535"
        ),
        (
            "\(interface)[Peer]\nEndpoint = fd00::1:80", 5,
            "Endpoint \"fd00::1:80\" is not host:port; IPv6 needs brackets, [::1]:51820"
        ),
        (
            "\(interface)[Peer]\nEndpoint = host", 5,
            "Endpoint \"host\" is not host:port; IPv6 needs brackets, [::1]:51820"
        ),
        (
            "\(interface)[Peer]\nEndpoint = host:0", 5,
            "Endpoint \"host:0\" is not host:port; IPv6 needs brackets, [::1]:51820"
        ),
    ])
    func whatIsWrongIsTold(text: String, line: Int, problem: String) {
        #expect(throws: WireGuardConfiguration.Problem(line: line, text: problem)) { try parse(text) }
    }

    /// A key that is not one may still be a secret.
    @Test(arguments: ["PrivateKey", "PublicKey", "PresharedKey"]) func aWrongKeyIsNotTold(name: String) {
        let section = name == "PrivateKey" ? "[Interface]" : "\(Self.interface)[Peer]"
        for value in ["abc", "\(Self.key)x", String(Self.key.dropLast()), String(repeating: "A", count: 44)] {
            let line = name == "PrivateKey" ? 2 : 5
            let text = "\(name) is not a key: 32 bytes in base64, as wg genkey and wg pubkey print"
            #expect(throws: WireGuardConfiguration.Problem(line: line, text: text)) {
                try parse("\(section)\n\(name) = \(value)")
            }
        }
    }

    /// Also where it stands by mistake.
    @Test func aKeyInTheWrongPlaceIsNotTold() throws {
        let places = [
            Self.key, "[Interface]\n\(Self.key)", "[Interface]\nAddress = \(Self.key)",
            "[Interface]\nListenPort = \(Self.key)", "\(Self.interface)[Peer]\n\(Self.key) = 1",
            "\(Self.interface)[Peer]\nEndpoint = \(Self.key)", "[Interface]\nAddress = 10.0.0.2\0\(Self.key)",
        ]
        for text in places {
            let problem = #expect(throws: WireGuardConfiguration.Problem.self) { try parse(text) }
            let shown = try #require(problem).text
            #expect(shown.contains("***") && !shown.contains(Self.key.prefix(43)), "\(shown)")
        }
    }

    /// Every beginning of a good file is read or refused.
    @Test func cutAnywhere() throws {
        let text = "\(Self.interface)[Peer]\nPublicKey = \(Self.peer)\nAllowedIPs = fd00::/8\nEndpoint = a.b:1\n"
        for count in 0..<text.count { _ = try? parse(String(text.prefix(count))) }
        #expect(try parse(text).peers.count == 1)
    }
}
