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

    /// Each special byte at each place of the eight bytes that are looked at together, alone and beside another.
    @Test(arguments: [JSONString.Escaping.required, .allControls])
    func specialsAnywhere(_ escaping: JSONString.Escaping) throws {
        let specials = [
            "", "\"", "\\", "\n", "\u{0}", "\u{1f}", " ", "!", "#", "\u{7e}", "\u{7f}", "\u{80}", "\u{a0}", "ü",
        ]
        for length in 0...20 {
            for place in 0...length {
                for first in specials {
                    for second in specials {
                        let text =
                            String(repeating: "a", count: place) + first + second
                            + String(repeating: "é", count: length - place)
                        var out = ByteBuffer()
                        JSONString.write(text, into: &out, escaping: escaping)
                        #expect(String(buffer: out) == reference(text, escaping))
                    }
                }
            }
        }
    }

    /// Character by character.
    private func reference(_ text: String, _ escaping: JSONString.Escaping) -> String {
        let short: [Unicode.Scalar: String] = ["\"": "\\\"", "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"]
        let escaped = text.unicodeScalars.map { scalar in
            let isControl = scalar.value < 0x20 || escaping == .allControls && (0x7F..<0xA0).contains(scalar.value)
            if let text = short[scalar] { return text }
            return isControl
                ? "\\u00" + (scalar.value < 16 ? "0" : "") + String(scalar.value, radix: 16) : String(scalar)
        }
        return "\"" + escaped.joined() + "\""
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
