import Testing

@testable import IPAddresses

@Suite struct IPAddressTests {
    @Test(arguments: [
        "::", "::1", "fd7a:115c:a1e0::1", "fd7a:115c:a1e0:49d6:b259:b7ac:b1b2:48f4", "0.0.0.0", "127.0.0.1",
        "255.255.255.255", "ff02::1",
    ]) func textBecomesAnAddressAndTextAgain(_ text: String) throws {
        let address = try #require(IPAddress(text))
        #expect("\(address)" == text && IPAddress(address.bytes) == address)
    }

    @Test(arguments: ["", "1", "1.2.3", "1.2.3.4.5", "::g", "fe80::1%eth0", "1.2.3.4 ", "[::1]", "::1\0", "1.2.3.4\0x"])
    func whatIsNone(_ text: String) { #expect(IPAddress(text) == nil) }

    @Test func bytes() {
        #expect(IPAddress([127, 0, 0, 1]) == IPAddress("127.0.0.1") && IPAddress([1, 2, 3]) == nil)
        #expect(IPAddress("1.2.3.4") == IPAddress("::ffff:1.2.3.4") && IPAddress("1.2.3.4")?.v4 == 0x0102_0304)
    }

    @Test(arguments: [
        ("127.9.9.9", "loopback"), ("::1", "loopback"), ("0.0.0.0", "unspecified"), ("::", "unspecified"),
        ("224.0.0.1", "multicast"), ("ff02::1", "multicast"), ("169.254.1.1", "link"), ("fe80::1", "link"),
        ("febf::1", "link"), ("fec0::1", ""), ("10.1.1.1", "private"), ("172.16.0.1", "private"), ("172.32.0.1", ""),
        ("192.168.1.1", "private"), ("fd7a::1", "private"), ("fc00::1", "private"), ("fe00::1", ""), ("8.8.8.8", ""),
        ("2001:db8::1", ""),
    ]) func kinds(_ text: String, _ kind: String) throws {
        let address = try #require(IPAddress(text))
        #expect(address.isLoopback == (kind == "loopback") && address.isUnspecified == (kind == "unspecified"))
        #expect(address.isMulticast == (kind == "multicast") && address.isLinkLocal == (kind == "link"))
        #expect(address.isPrivate == (kind == "private"))
    }

    @Test(arguments: [
        ("fd7a:115c:a1e0::/48", "fd7a:115c:a1e0:ffff::1", "fd7a:115c:a1e1::1"),
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
        ("::1", "::1", "::2"), ("fd00::/64", "fd00::ffff:0:0:1", "fd00:0:0:1::"),
        ("fd00::/65", "fd00::1", "fd00::8000:0:0:0"),
        ("192.168.1.1/32", "192.168.1.1", "192.168.1.0"),
    ]) func networks(_ text: String, _ inside: String, _ outside: String) throws {
        let prefix = try #require(IPPrefix(text))
        let (inner, outer) = (try #require(IPAddress(inside)), try #require(IPAddress(outside)))
        #expect(prefix.contains(inner) && !prefix.contains(outer))
        #expect("\(prefix)" == (text.contains("/") ? text : "\(text)/128"))
    }

    @Test func everything() throws {
        #expect(try #require(IPPrefix("::/0")).contains(try #require(IPAddress("ffff::"))))
        #expect(IPPrefix("0.0.0.0/0")?.bits == 96 && IPPrefix("10.1.2.3/8")?.description == "10.0.0.0/8")
        for text in ["", "/", "::/129", "::/-1", "::/+1", "10.0.0.0/33", "x/8", "::/"] {
            #expect(IPPrefix(text) == nil, "\(text)")
        }
        #expect(IPPrefix(.unspecified, bits: 129) == nil && IPPrefix(.unspecified, bits: -1) == nil)
    }

    @Test func endpoints() throws {
        for text in ["1.2.3.4:80", "[::1]:65535"] { #expect(try "\(#require(Endpoint(text)))" == text) }
        for text in [
            "", ":", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "::1:80", "[::1]", "[1.2.3.4]:80", "[::1]:-1",
            "1.2.3.4:+80",
        ] {
            #expect(Endpoint(text) == nil, "\(text)")
        }
    }
}
