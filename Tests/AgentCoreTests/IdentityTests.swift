import AgentCore
import Foundation
import Testing

@Suite struct SecretTests {
    private let secret = Secret("hunter2-hunter2!")

    @Test func nothingPrintsIt() throws {
        var dumped = ""
        dump(secret, to: &dumped)
        let encoded = String(decoding: try JSONEncoder().encode([secret]), as: UTF8.self)
        for text in ["\(secret)", String(reflecting: secret), dumped, encoded, "\(["k": secret])"] {
            #expect(!text.contains("hunter2"), "\(text)")
        }
        #expect(secret.reveal() == "hunter2-hunter2!")
    }

    @Test func matchesOnlyItself() {
        #expect(secret.matches(Array("hunter2-hunter2!".utf8)))
        for wrong in ["", "h", "hunter2-hunter2", "hunter2-hunter2!!", "Hunter2-hunter2!", "hunter2-hunter2?"] {
            #expect(!secret.matches(Array(wrong.utf8)), "\(wrong)")
        }
        #expect(!Secret("").matches([]))
    }
}

@Suite struct UUIDTests {
    @Test func lowerCase() {
        for _ in 0..<100 {
            let id = UUID()
            #expect(id.lowercased == id.uuidString.lowercased())
        }
    }

    /// Of the random kind, as `UUID()`: version 4, variant 1.
    @Test func random() {
        let ids = (0..<100).map { _ in UUID.random() }
        #expect(Set(ids).count == ids.count)
        for id in ids { #expect(id.lowercased.wholeMatch(of: /.{14}4.{4}[89ab].{16}/) != nil, "\(id)") }
        // No other bit is always the same.
        var (ones, zeros) = ([UInt8](repeating: 0, count: 16), [UInt8](repeating: 0, count: 16))
        for id in ids {
            withUnsafeBytes(of: id.uuid) { bytes in
                for (index, byte) in bytes.enumerated() {
                    ones[index] |= byte
                    zeros[index] |= ~byte
                }
            }
        }
        #expect(zip(ones, zeros).map { $0 & $1 }.enumerated().allSatisfy { $1 == [6: 0x0f, 8: 0x3f][$0] ?? 0xff })
    }
}

@Suite struct ChatIdentityTests {
    private let id = "0F4B6C1E-52A1-4F0A-8F6D-0E2C6E5B7A11"
    private let other = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

    @Test func malformedIdsAreNoChat() {
        let zero = "00000000-0000-0000-0000-000000000000"
        for header in [nil, "", "x", "0F4B6C1E", id + "0", zero] {
            #expect(ChatIdentity(chatHeader: header, ancestorsHeader: "[\"\(other)\"]") == nil)
        }
    }

    @Test func badAncestorsAreSkippedAndABadArrayIsNone() throws {
        func ancestors(_ header: String?) -> [String]? {
            ChatIdentity(chatHeader: id, ancestorsHeader: header)?.ancestors.map(\.lowercased)
        }
        #expect(ancestors(nil) == [])
        #expect(ancestors("[\"\(other)\"]") == [other])
        #expect(ancestors("[\"x\", 5, null, \"\(other)\", {}, [\"\(other)\"]]") == [other])
        #expect(ancestors("[\"00000000-0000-0000-0000-000000000000\", \"\(other)\"]") == [other])
        for bad in ["", "x", "{}", "\"\(other)\"", "[", "[\"\(other)\""] { #expect(ancestors(bad) == [], "\(bad)") }
        let many = "[" + (0..<150).map { _ in "\"\(other)\"" }.joined(separator: ",") + "]"
        #expect(ancestors(many)?.count == ChatIdentity.maximumAncestors)
    }

    @Test func lineageBeginsWithTheChat() throws {
        let chat = try #require(ChatIdentity(chatHeader: id, ancestorsHeader: "[\"\(other)\"]"))
        #expect(chat.lineage.map(\.lowercased) == [id.lowercased(), other])
    }
}
