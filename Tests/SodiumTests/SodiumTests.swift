import AgentTestSupport
import Foundation
import Testing

@testable import Sodium

@Suite struct SodiumTests {
    private let vectors: [String: Any]

    init() throws { vectors = try VectorFile.read("tailnet_nacl.json") }

    private func value(_ name: String) throws -> [UInt8] { try #require(bytes(fromHex: vectors[name]), "\(name)") }

    @Test func everyBoxIsThatOfTheRealProgram() throws {
        let (a, b) = (try PrivateKey(value("a_private")), try PrivateKey(value("b_private")))
        #expect(try a.publicKey.bytes == value("a_public") && b.publicKey.bytes == value("b_public"))
        let shared = try value("x25519_shared")
        #expect(
            a.shared(with: b.publicKey) == SecretBytes(shared) && b.shared(with: a.publicKey) == SecretBytes(shared))
        let (box, other) = (try #require(Box(a, b.publicKey)), try #require(Box(b, a.publicKey)))
        let nonce = try value("nonce")
        let boxes = try #require(vectors["boxes"] as? [[String: Any]])
        #expect(boxes.count == 7)
        for vector in boxes {
            let plain = try #require(bytes(fromHex: vector["plaintext"]))
            let sealed = try #require(bytes(fromHex: vector["box"]))
            #expect(box.seal(plain, nonce: nonce) == sealed && other.open(sealed, nonce: nonce) == plain)
            for index in sealed.indices {
                var changed = sealed
                changed[index] ^= 1
                #expect(other.open(changed, nonce: nonce) == nil)
            }
            for count in sealed.indices { #expect(other.open(Array(sealed.prefix(count)), nonce: nonce) == nil) }
        }
        #expect(box.seal([], nonce: []) == nil && box.open([], nonce: nonce) == nil)
    }

    /// RFC 8439, 2.8.2, whose nonce is one that WireGuard cannot have; so the same text both ways.
    @Test func aSealedTextOpensWithItsCounterAlone() {
        let key = SecretBytes((0..<32).map { UInt8($0) })
        for count in [0, 1, 15, 16, 17, 1_280] {
            let text = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7) }
            var buffer = text + [UInt8](repeating: 0, count: AEAD.tagCount)
            var scratch = buffer
            let isSealed = buffer.withUnsafeMutableBytes { area in
                AEAD.seal(.init(rebasing: area[..<count]), into: area, counter: 1 << 40 | 5, key: key)
            }
            #expect(isSealed && Array(buffer.prefix(count)) != text || count == 0)
            func open(_ sealed: ArraySlice<UInt8>, counter: UInt64) -> Bool {
                sealed.withUnsafeBytes { sealed in
                    scratch.withUnsafeMutableBytes { AEAD.open(sealed, into: $0, counter: counter, key: key) }
                }
            }
            #expect(!open(buffer[...], counter: 5) && !open(buffer.dropLast(), counter: 1 << 40 | 5))
            #expect(open(buffer[...], counter: 1 << 40 | 5) && Array(scratch.prefix(count)) == text)
        }
    }

    @Test func longNonces() throws {
        let key = SecretBytes([UInt8](repeating: 7, count: 32))
        let nonce = [UInt8](repeating: 1, count: 24)
        let sealed = try #require(AEAD.xseal([1, 2, 3], nonce: nonce, aad: [9], key: key))
        #expect(sealed.count == 19 && AEAD.xopen(sealed, nonce: nonce, aad: [9], key: key) == [1, 2, 3])
        #expect(AEAD.xopen(sealed, nonce: nonce, aad: [8], key: key) == nil)
        #expect(AEAD.xopen([], nonce: nonce, aad: [], key: key) == nil)
        #expect(AEAD.xseal([1], nonce: [1], aad: [], key: key) == nil)
        let empty = try #require(AEAD.xseal([], nonce: nonce, aad: [], key: key))
        #expect(AEAD.xopen(empty, nonce: nonce, aad: [], key: key) == [])
    }

    @Test func secretsArePrintedAsStars() throws {
        let key = try PrivateKey([UInt8](repeating: 0xab, count: 32))
        for text in ["\(key)", "\(key.secret)", String(reflecting: key.secret), "\([key.secret])"] {
            #expect(text.contains("***") && !text.contains("171") && !text.contains("ab"), "\(text)")
        }
        #expect(key.secret == SecretBytes([UInt8](repeating: 0xab, count: 32)))
        #expect(key.secret != SecretBytes([UInt8](repeating: 0xab, count: 31)))
        #expect(throws: SodiumError.self) { try PrivateKey([1, 2, 3]) }
    }

    @Test func publicKeys() throws {
        #expect(PublicKey([1, 2]) == nil)
        let key = try #require(PublicKey([0xff, 0x00, 0x10, 0x83] + [UInt8](repeating: 0, count: 28)))
        #expect("\(key)" == "[\(Data(key.bytes).base64EncodedString().prefix(5))]" && !key.isZero)
        let zero = try #require(PublicKey([UInt8](repeating: 0, count: 32)))
        var random = SystemRandomNumberGenerator()
        let own = try PrivateKey(random: &random)
        #expect(own.shared(with: zero) == nil && Box(own, zero) == nil && zero.isZero)
    }
}
