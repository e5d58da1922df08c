import Testing

@testable import WebSockets

@Suite struct HandshakeTests {
    @Test func acceptValueOfTheRFC() {
        #expect(WebSocketHandshake.acceptValue("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    }

    @Test func sha1Vectors() {
        func hex(_ text: String) -> String {
            SHA1.digest(Array(text.utf8)).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        }
        #expect(hex("") == "da39a3ee5e6b4b0d3255bfef95601890afd80709")
        #expect(hex("abc") == "a9993e364706816aba3e25717850c26c9cd0d89d")
        #expect(
            hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")
                == "84983e441c3bd26ebaae4aa1f95129e5e54670f1")
        for count in [55, 56, 63, 64, 65] { #expect(hex(String(repeating: "a", count: count)).count == 40) }
    }
}
