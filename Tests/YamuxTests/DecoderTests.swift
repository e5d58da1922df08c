import AgentTestSupport
import NIOCore
import Testing

@testable import Yamux

@Suite struct DecoderTests {
    @Test func unknownFlagBitsAreCarried() throws {
        var input = bytes(hex: "0001fff10000000700000009")
        let header = try #require(try YamuxHeader.read(from: &input))
        #expect(header.flags.contains(.syn) && !header.flags.contains(.ack))
        #expect(hex(header.encoded) == "0001fff10000000700000009")
    }

    @Test(arguments: ["010100010000000100000000", "000400000000000100000000", "ff0000000000000000000000"])
    func unknownVersionsAndTypesAreViolations(_ text: String) throws {
        #expect(throws: YamuxError(.protocolViolation, "")) { try elements(bytes(hex: text)) }
    }

    @Test func aHeaderInPiecesIsTheSame() throws {
        let text = "000100010000000300000000" + "000000000000000300000002" + "6162" + "000200010000000000000007"
        let whole = try elements(bytes(hex: text))
        #expect(whole.count == 4)
        for step in 1...13 {
            var decoder = YamuxDecoder()
            var rest = bytes(hex: text)
            var headers: [YamuxHeader] = []
            var payload = ByteBuffer()
            while var piece = rest.readSlice(length: min(step, rest.readableBytes)), piece.readableBytes > 0 {
                while let element = try decoder.next(from: &piece) {
                    switch element {
                    case .header(let header): headers.append(header)
                    case .payload(var data):
                        #expect(data.readableBytes > 0)
                        payload.writeBuffer(&data)
                    }
                }
                #expect(piece.readableBytes == 0)
            }
            #expect(payload == ByteBuffer(string: "ab"))
            #expect(headers == whole.compactMap { if case .header(let header) = $0 { header } else { nil } })
        }
    }

    @Test func payloadIsHandedThroughWithoutACopy() throws {
        var input = YamuxHeader(.data, stream: 1, length: .max).encoded
        var decoder = YamuxDecoder()
        _ = try decoder.next(from: &input)
        // However long the frame says it is, only what is there is held, and by the receiver.
        for _ in 0..<3 {
            var piece = pattern(0, 1_000)
            #expect(try decoder.next(from: &piece) == .payload(pattern(0, 1_000)))
            #expect(try decoder.next(from: &piece) == nil)
        }
    }

    @Test func seenIDsKnowTheLastOnes() {
        var seen = SeenIDs()
        var random = SeededGenerator("seenIDs")
        let edge = 5_000 - YamuxLimits.rememberedIDs + 1
        // The second 5 is too far back to be remembered.
        let ids: [UInt32] = [5, 1, 3, 1, 3, 5, 5_000, 5, 5_000, 4_999, 4_999, edge, edge, edge - 1, edge - 1]
        let new = ids.map { seen.insert($0) }
        #expect(
            new == [true, true, true, false, false, false, true, true, false, true, false, true, false, true, true])
        let far = [.max, .max, .max - 1, 1 as UInt32].map { seen.insert($0) }
        #expect(far == [true, false, true, true])
        // Against a set: within the window every answer is right.
        seen = SeenIDs()
        var known: Set<UInt32> = []
        var highest: UInt32 = 1
        for _ in 0..<20_000 {
            highest += UInt32.random(in: 0...200, using: &random)
            let id = highest - min(highest - 1, UInt32.random(in: 0...600, using: &random))
            let isNew = seen.insert(id)
            let expected = known.insert(id).inserted
            #expect(isNew == expected)
        }
    }
}
