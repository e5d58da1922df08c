import AgentTestSupport
import Foundation
import NIOCore
import Testing

@testable import AgentProc

@Suite struct OutputEventsTests {
    private struct Event {
        var id: Int
        var offset: Int
        var text: String?
        var bytes: [UInt8]
    }

    /// The `output` events in the text of a stream.
    private func parse(_ stream: String) throws -> [Event] {
        try stream.components(separatedBy: "\n\n").filter { $0.hasPrefix("event: output\n") }.map { block in
            let lines = block.components(separatedBy: "\n")
            try #require(lines.count == 3)
            let data = try JSONSerialization.jsonObject(with: Data(lines[2].dropFirst("data: ".count).utf8))
            let fields = try #require(data as? [String: Any])
            let text = fields["text"] as? String
            let base64 = (fields["base64"] as? String).flatMap { Data(base64Encoded: $0) }
            let bytes = try #require(text.map { Array($0.utf8) } ?? base64.map { Array($0) })
            return Event(
                id: try #require(Int(lines[1].dropFirst("id: ".count))), offset: try #require(fields["offset"] as? Int),
                text: text, bytes: bytes)
        }
    }

    private func feed(_ bytes: [UInt8], cuts: [Int], from offset: Int = 0) -> (OutputEvents, String) {
        var events = OutputEvents(from: offset)
        var stream = ""
        var start = 0
        for end in cuts + [bytes.count] {
            stream += String(buffer: events.events(for: ByteBuffer(bytes: bytes[start..<end])))
            start = end
        }
        // What is left of a character comes before whatever follows.
        stream += String(buffer: events.gone(1))
        return (events, stream)
    }

    @Test func textIsCutAtCharacters() throws {
        let text = "aé€😀\n\"\\\u{7}"
        let bytes = Array(text.utf8)
        for cut in 0...bytes.count {
            let (_, stream) = feed(bytes, cuts: [cut])
            let events = try parse(stream)
            #expect(events.compactMap(\.text).joined() == text, "cut at \(cut)")
            #expect(events.allSatisfy { $0.text != nil && $0.id == $0.offset + $0.bytes.count })
        }
    }

    @Test func whatIsNoTextGoesAsBase64() throws {
        let (_, stream) = feed([0xFF, 0x00, 0xC3], cuts: [])
        let events = try parse(stream)
        #expect(events.map(\.bytes) == [[0xFF, 0x00], [0xC3]])
        #expect(events.allSatisfy { $0.text == nil })
        #expect(stream.hasSuffix("event: gone\nid: 4\ndata: {\"offset\":3,\"bytes\":1}\n\n"))
    }

    @Test func aReaderThatBeginsInsideACharacterGetsTheRestOfItAlone() throws {
        let bytes = Array("€ and text".utf8)
        let (_, stream) = feed(Array(bytes[1...]), cuts: [], from: 1)
        let events = try parse(stream)
        #expect(events.map(\.bytes.count) == [2, 9])
        #expect(events.map(\.offset) == [1, 3])
        #expect(events[1].text == " and text")
    }

    /// Whatever the bytes and the cuts: the events hold every byte once, in order.
    @Test func everyByteOnce() throws {
        var random = SeededGenerator("everyByteOnce")
        for _ in 0..<300 {
            var bytes: [UInt8] = []
            for _ in 0..<Int.random(in: 0...40, using: &random) {
                if Bool.random(using: &random) {
                    bytes += Array(["a", "é", "€", "😀", "\n", "\u{0}"].randomElement(using: &random)!.utf8)
                } else {
                    bytes.append(UInt8.random(in: 0...255, using: &random))
                }
            }
            let cuts = (0..<Int.random(in: 0...6, using: &random)).map { _ in
                Int.random(in: 0...bytes.count, using: &random)
            }
            let start = Int.random(in: 0...1000, using: &random)
            let (events, stream) = feed(bytes, cuts: cuts.sorted(), from: start)
            let parsed = try parse(stream)
            #expect(parsed.flatMap(\.bytes) == bytes)
            #expect(events.offset == start + bytes.count + 1)
            var offset = start
            for event in parsed {
                #expect(event.offset == offset && event.id == offset + event.bytes.count && !event.bytes.isEmpty)
                offset = event.id
            }
        }
    }
}
