import AgentCore
import Foundation
import NIOCore
import Testing

@Suite struct JSONStringTests {
    private static let text = "a\"\\\n\r\t\u{1}\u{1f}\u{7f}\u{80}\u{9f}\u{a0}ü\u{2028}😀"

    @Test(arguments: [JSONString.Escaping.required, .allControls])
    func textIsJSON(_ escaping: JSONString.Escaping) throws {
        for text in [Self.text, "", "\"", String(Self.text.reversed())] {
            var out = ByteBuffer()
            JSONString.write(text, into: &out, escaping: escaping)
            #expect(try JSONDecoder().decode(String.self, from: Data(out.readableBytesView)) == text)
        }
    }

    @Test func whatIsEscaped() {
        func json(_ escaping: JSONString.Escaping) -> String {
            var out = ByteBuffer()
            JSONString.write(Self.text, into: &out, escaping: escaping)
            return String(buffer: out)
        }
        let escaped = #""a\"\\\n\r\t\u0001\u001f"#
        let plain = "\u{a0}ü\u{2028}😀\""
        #expect(json(.required) == escaped + "\u{7f}\u{80}\u{9f}" + plain)
        #expect(json(.allControls) == escaped + #"\u007f\u0080\u009f"# + plain)
    }
}
