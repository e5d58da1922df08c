import NIOCore
import Testing

@testable import WebSockets

@Suite struct CloseFrameTests {
    private func reason(_ text: String) -> String? {
        var payload = WebSocketCloseCode.internalError.payload(reason: text)
        #expect(payload.readableBytes <= 125)
        #expect(payload.readInteger(as: UInt16.self) == 1011)
        return String(validating: payload.readableBytesView, as: UTF8.self)
    }

    /// By bytes, at characters: a control frame has 125 bytes, two of them the code.
    @Test func aReasonThatIsTooLongIsCut() {
        for count in [0, 1, 122, 123] {
            let text = String(repeating: "x", count: count)
            #expect(reason(text) == text)
        }
        #expect(reason(String(repeating: "x", count: 124)) == String(repeating: "x", count: 123))
        // Three bytes each: 41 of them fit exactly.
        #expect(reason(String(repeating: "語", count: 41)) == String(repeating: "語", count: 41))
        #expect(reason(String(repeating: "語", count: 42)) == String(repeating: "語", count: 41))
        #expect(reason("x" + String(repeating: "語", count: 41)) == "x" + String(repeating: "語", count: 40))
        // A flag and a letter with marks are characters of several scalars.
        #expect(reason(String(repeating: "🇯🇵", count: 20)) == String(repeating: "🇯🇵", count: 15))
        #expect(reason("e" + String(repeating: "\u{301}", count: 200)) == "")
    }
}
