import AgentTestSupport
import Testing

@testable import WireGuard

@Suite struct BLAKE2sTests {
    private func digest(_ input: [UInt8], key: [UInt8] = [], count: Int = 32, step: Int = .max) -> [UInt8] {
        var state = key.withUnsafeBytes { BLAKE2s(digestCount: count, key: $0) }
        input.withUnsafeBytes { input in
            var rest = input[...]
            while !rest.isEmpty {
                state.update(.init(rebasing: rest.prefix(step)))
                rest = rest.dropFirst(step)
            }
        }
        var digest = [UInt8](repeating: 0, count: count)
        digest.withUnsafeMutableBytes { state.finish(into: $0) }
        return digest
    }

    /// RFC 7693, appendix B.
    @Test func abc() {
        #expect(hex(digest(Array("abc".utf8))) == "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982")
    }

    /// RFC 7693, appendix E: one hash over those of all kinds of lengths, with keys and without.
    @Test func selfTest() {
        func sequence(_ count: Int, _ seed: UInt32) -> [UInt8] {
            var a: UInt32 = 0xdead_4bad &* seed
            var b: UInt32 = 1
            return (0..<count).map { _ in
                (a, b) = (b, a &+ b)
                return UInt8(b >> 24)
            }
        }
        var all: [UInt8] = []
        for count in [16, 20, 28, 32] {
            for inputCount in [0, 3, 64, 65, 255, 1_024] {
                let input = sequence(inputCount, UInt32(inputCount))
                all += digest(input, count: count)
                all += digest(input, key: sequence(count, UInt32(count)), count: count)
            }
        }
        #expect(hex(digest(all)) == "6a411f08ce25adcdfb02aba641451cec53c598b24f4fc787fbdc88797f4c1dfe")
    }

    @Test func piecesMakeTheSame() {
        let input = (0..<300).map { UInt8(truncatingIfNeeded: $0) }
        for count in [0, 1, 63, 64, 65, 127, 128, 129, 300] {
            let whole = digest(Array(input.prefix(count)), key: [1, 2])
            for step in [1, 7, 63, 64, 65] {
                #expect(digest(Array(input.prefix(count)), key: [1, 2], step: step) == whole)
            }
        }
    }
}
