import DRPC
import Foundation
import NIOCore
import Testing

@Suite struct FrameVectorTests {
    @Test func everyFrameDecodesAndEncodesToTheByte() throws {
        let vectors = try Vectors.list("drpc_frames.json", "frames")
        #expect(vectors.count == 47)
        for vector in vectors {
            let description = vector["description"] as? String ?? ""
            let meaning = try #require(vector["meaning"] as? [String: Any])
            var input: ByteBuffer
            if let text = vector["hex"] as? String {
                input = bytes(hex: text)
            } else {
                // Long data is not spelled out: the header, then so many bytes of 0x61.
                input = bytes(hex: try #require(meaning["header_hex"] as? String))
                input.writeRepeatingByte(0x61, count: try #require(meaning["length"] as? Int))
                #expect(input.readableBytes == vector["length"] as? Int)
                #expect(hex(input).hasPrefix(try #require(vector["first_64_hex"] as? String)))
            }
            let whole = input
            let frame = try #require(try Frame.read(from: &input), "\(description)")
            #expect(input.readableBytes == 0)
            #expect(frame.header.kind == (meaning["kind_number"] as? NSNumber)?.uint8Value, "\(description)")
            #expect(frame.header.stream == (meaning["stream"] as? NSNumber)?.uint64Value)
            #expect(frame.header.message == (meaning["message"] as? NSNumber)?.uint64Value)
            #expect(frame.header.length == (meaning["length"] as? NSNumber)?.uint64Value)
            #expect(frame.header.done == meaning["done"] as? Bool)
            #expect(frame.header.control == meaning["control"] as? Bool)
            if let data = meaning["data_hex"] as? String { #expect(hex(frame.data) == data) }
            if let rpc = meaning["rpc"] as? String { #expect(String(buffer: frame.data) == rpc) }
            if let code = meaning["error_code"] as? NSNumber {
                let payload = ErrorPayload(frame.data)
                #expect(payload.code == code.uint64Value)
                #expect(payload.text == meaning["error_text"] as? String)
            }
            if let pairs = meaning["metadata"] as? [String: String] {
                #expect(try Metadata.decode(frame.data) == pairs)
            }
            var output = ByteBuffer()
            frame.write(into: &output)
            #expect(output == whole, "\(description)")
        }
    }

    @Test func everyParseVectorHasItsResult() throws {
        let vectors = try Vectors.list("drpc_frames.json", "parse")
        #expect(vectors.count == 12)
        for vector in vectors {
            let description = vector["description"] as? String ?? ""
            var input = bytes(hex: try #require(vector["hex"] as? String))
            let before = input
            switch vector["result"] as? String {
            case "need more bytes":
                #expect(try Frame.read(from: &input) == nil, "\(description)")
                #expect(input == before)
            case "error":
                #expect(throws: DRPCError(.protocolViolation, ""), "\(description)") { try Frame.read(from: &input) }
            default:
                let frame = try #require(try Frame.read(from: &input), "\(description)")
                let meaning = try #require(vector["frame"] as? [String: Any])
                #expect(frame.header.stream == (meaning["stream"] as? NSNumber)?.uint64Value, "\(description)")
                #expect(frame.header.message == (meaning["message"] as? NSNumber)?.uint64Value)
                #expect(hex(input) == vector["rest_hex"] as? String)
                var output = ByteBuffer()
                frame.write(into: &output)
                // Ours are minimal, as the reference's are.
                #expect(hex(output).hasPrefix(meaning["header_hex"] as? String ?? "-"))
            }
        }
    }

    @Test func everyErrorPayloadDecodesAndEncodes() throws {
        let vectors = try Vectors.list("drpc_frames.json", "error_payloads")
        #expect(vectors.count == 5)
        for vector in vectors {
            let input = bytes(hex: try #require(vector["hex"] as? String))
            let payload = ErrorPayload(input)
            #expect(payload.code == (vector["code"] as? NSNumber)?.uint64Value)
            #expect(payload.text == vector["text"] as? String)
            if input.readableBytes >= 8 { #expect(payload.encoded() == input) }
        }
    }

    @Test func everyMetadataVectorDecodesAndEncodes() throws {
        let vectors = try Vectors.list("drpc_frames.json", "metadata")
        #expect(vectors.count == 7)
        for vector in vectors {
            let input = bytes(hex: try #require(vector["hex"] as? String))
            if vector["error"] != nil {
                #expect(throws: DRPCError(.protocolViolation, "")) { try Metadata.decode(input) }
                continue
            }
            let pairs = vector["metadata"] as? [String: String] ?? [:]
            #expect(try Metadata.decode(input) == pairs)
            let encoded = Metadata.encode(pairs)
            #expect(try Metadata.decode(encoded) == pairs)
            if vector["description"] as? String != "{k: v} then {k: w}: the last wins" { #expect(encoded == input) }
        }
    }

    @Test(arguments: [DRPCLimits.errorTextBytes - 1, DRPCLimits.errorTextBytes, DRPCLimits.errorTextBytes + 1])
    func errorTextIsCutToOneFrame(length: Int) {
        let encoded = ErrorPayload(code: 3, text: String(repeating: "x", count: length)).encoded()
        #expect(encoded.readableBytes == 8 + min(length, DRPCLimits.errorTextBytes))
    }

    @Test func errorTextIsCutBetweenCharacters() {
        for lead in 0..<4 {
            let text = String(repeating: "x", count: DRPCLimits.errorTextBytes - lead) + "🌍🌍"
            let kept = ErrorPayload(ErrorPayload(code: 0, text: text).encoded()).text
            #expect(text.hasPrefix(kept))
            #expect(kept.utf8.count == DRPCLimits.errorTextBytes - lead)
        }
    }
}
