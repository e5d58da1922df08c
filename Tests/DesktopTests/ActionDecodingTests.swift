import Foundation
import NIOCore
import Testing

@testable import Desktop

@Suite struct ActionDecodingTests {
    private func decode(_ json: String) throws -> DesktopAction {
        try DesktopAction.decode(ByteBuffer(string: json))
    }

    /// The message of the refusal, and its detail.
    private func refusal(_ json: String) -> String {
        do {
            return "accepted: \(try decode(json))"
        } catch let error as DesktopError {
            return error.code == .invalid ? error.message : "\(error)"
        } catch {
            return "\(error)"
        }
    }

    @Test(arguments: DesktopAction.Kind.allCases)
    func acceptsEachAction(kind: DesktopAction.Kind) throws {
        let action = try decode(
            #"{"action":"\#(kind.rawValue)","coordinate":[3,4],"start_coordinate":[1,2],"text":"a","duration":5}"#)
        #expect(action.kind == kind)
        #expect(action.coordinate == DesktopPoint(x: 3, y: 4))
        #expect(action.startCoordinate == DesktopPoint(x: 1, y: 2))
        #expect(action.text == "a")
        #expect(action.durationMilliseconds == 5)
    }

    @Test func hasTheDefaultsOfTheContract() throws {
        let action = try decode(#"{"action":"scroll","coordinate":[1,2],"text":null}"#)
        #expect(action == DesktopAction(.scroll, coordinate: DesktopPoint(x: 1, y: 2)))
        #expect(action.scrollAmount == 3 && action.scrollDirection == .down && action.durationMilliseconds == 1_000)
        #expect(action.declared == nil)
        let scaled = try decode(#"{"action":"screenshot","scaled_width":1280,"scaled_height":720}"#)
        #expect(scaled.declared == DesktopSize(width: 1280, height: 720))
    }

    @Test(arguments: [
        ("mouse_move", "coordinate"), ("left_click", "coordinate"), ("right_click", "coordinate"),
        ("middle_click", "coordinate"), ("double_click", "coordinate"), ("triple_click", "coordinate"),
        ("scroll", "coordinate"), ("left_click_drag", "start_coordinate"), ("key", "text"), ("key_down", "text"),
        ("key_up", "text"), ("type", "text"), ("hold_key", "text"), ("open", "text"), ("wait", "duration"),
    ])
    func namesWhatIsMissing(action: String, field: String) {
        #expect(refusal(#"{"action":"\#(action)"}"#) == #"Missing "\#(field)" for \#(action) action."#)
        #expect(
            refusal(#"{"action":"left_click_drag","start_coordinate":[1,1]}"#)
                == #"Missing "coordinate" for left_click_drag action."#)
    }

    @Test(arguments: [
        (#"{"action":"fly"}"#, "Unknown action: fly"),
        (#"{"action":""}"#, "Unknown action: "),
        (#"{}"#, #"Missing "action"."#),
        (
            #"{"action":"scroll","coordinate":[1,1],"scroll_direction":"sideways"}"#,
            "Invalid scroll direction: sideways"
        ),
        (#"{"action":5}"#, #""action" must be a string."#),
        (#"{"action":"key","text":5}"#, #""text" must be a string."#),
        (#"{"action":"mouse_move","coordinate":"1,2"}"#, #""coordinate" must be an array of two whole numbers."#),
        (#"{"action":"mouse_move","coordinate":[1.5,2]}"#, #""coordinate" must be an array of two whole numbers."#),
        (#"{"action":"mouse_move","coordinate":[1e99,2]}"#, #""coordinate" must be an array of two whole numbers."#),
        (#"{"action":"mouse_move","coordinate":[null,2]}"#, #""coordinate" must be an array of two whole numbers."#),
        (#"{"action":"mouse_move","coordinate":[1]}"#, #""coordinate" must be [x, y], not 1 numbers."#),
        (#"{"action":"mouse_move","coordinate":[1,2,3]}"#, #""coordinate" must be [x, y], not 3 numbers."#),
        (#"{"action":"wait","duration":"1"}"#, #""duration" must be a whole number."#),
        (#"{"action":"wait","duration":-1}"#, #""duration" must be at least 0 milliseconds, not -1."#),
        (#"{"action":"wait","duration":60001}"#, #""duration" must be at most 60000 milliseconds, not 60001."#),
        (#"{"action":"screenshot","scaled_width":0}"#, #""scaled_width" must be at least 1, not 0."#),
        (#"{"action":"screenshot","scaled_height":8193}"#, #""scaled_height" must be at most 8192, not 8193."#),
        (
            #"{"action":"scroll","coordinate":[1,1],"scroll_amount":-1}"#,
            #""scroll_amount" must be at least 0, not -1."#
        ),
        (
            #"{"action":"scroll","coordinate":[1,1],"scroll_amount":1001}"#,
            #""scroll_amount" must be at most 1000, not 1001."#
        ),
        (#"{"action":"key","text":"ctrl+nosuchkey"}"#, "Unknown key: nosuchkey"),
        (#"{"action":"key","text":""}"#, "Unknown key: "),
        (#"{"action":"key_down","text":"ctrl+"}"#, "Unknown key: ctrl+"),
        (#"{"action":"type","text":"a\u0007"}"#, #""text" has a control character that no key types: U+0007."#),
        (#"{"action":"type","text":"\u0000"}"#, #""text" has a control character that no key types: U+0000."#),
        (#"{"action":"open","text":""}"#, #"Missing "text" for open action."#),
        ("", "Request body must be valid JSON."), ("[]", "Request body must be valid JSON."),
        ("{", "Request body must be valid JSON."), (#"{"action":"wait","#, "Request body must be valid JSON."),
    ])
    func namesWhatIsWrong(json: String, message: String) {
        #expect(refusal(json) == message)
    }

    @Test func takesTheLimitsThemselves() throws {
        #expect(try decode(#"{"action":"wait","duration":60000}"#).durationMilliseconds == 60_000)
        #expect(try decode(#"{"action":"hold_key","text":"a","duration":0}"#).durationMilliseconds == 0)
        #expect(try decode(#"{"action":"scroll","coordinate":[0,0],"scroll_amount":1000}"#).scrollAmount == 1_000)
        #expect(try decode(#"{"action":"screenshot","scaled_width":8192,"scaled_height":1}"#).declaredWidth == 8_192)
        let far = try decode(#"{"action":"mouse_move","coordinate":[-9223372036854775808,9223372036854775807]}"#)
        #expect(far.coordinate == DesktopPoint(x: .min, y: .max))
    }

    @Test func encodesAnswers() throws {
        func text(_ result: ActionResult) -> String { String(buffer: result.json()) }
        #expect(text(ActionResult()) == "{}")
        #expect(text(ActionResult(output: "a\"\\\n\u{1}é")) == #"{"output":"a\"\\\n\u0001é"}"#)
        for count in 0...10 {
            let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 * 83 + 200) }
            let json = text(
                ActionResult(output: "screenshot", screenshot: bytes, size: DesktopSize(width: 7, height: 9)))
            let base64 = Data(bytes).base64EncodedString()
            #expect(
                json == #"{"output":"screenshot","screenshot_data":"\#(base64)","#
                    + #""screenshot_height":9,"screenshot_width":7}"#)
        }
        #expect(text(ActionResult(screenshot: [1, 2, 3])) == #"{"screenshot_data":"AQID"}"#)
    }
}
