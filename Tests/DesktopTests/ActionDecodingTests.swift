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
            return error.code == .invalid ? error.detail ?? error.message : "\(error)"
        } catch {
            return "\(error)"
        }
    }

    /// What each action of the contract becomes, of a request with every field.
    private static func expected(_ name: DesktopAction.Name) throws -> DesktopAction.Work {
        let (at, start) = (DesktopPoint(x: 3, y: 4), DesktopPoint(x: 1, y: 2))
        let region = DesktopRegion(x: 1, y: 2, width: 3, height: 4)
        let a = try KeyCombination("a")
        func click(_ button: DriverAction.Button, _ times: Int) -> DesktopAction.Work {
            .driver(.click(button, times: times, at: at, modifiers: []))
        }
        return switch name {
        case .key: .driver(.keys([a]))
        case .keyDown: .driver(.press(a))
        case .keyUp: .driver(.release(a))
        case .holdKey: .driver(.hold(a, milliseconds: 5))
        case .type: .driver(.type("a"))
        case .mouseMove: .driver(.move(at))
        case .leftClick: click(.left, 1)
        case .rightClick: click(.right, 1)
        case .middleClick: click(.middle, 1)
        case .doubleClick: click(.left, 2)
        case .tripleClick: click(.left, 3)
        case .leftClickDrag: .driver(.drag(from: start, to: at, modifiers: []))
        case .leftMouseDown: .driver(.button(.left, isDown: true))
        case .leftMouseUp: .driver(.button(.left, isDown: false))
        case .middleMouseDown: .driver(.button(.middle, isDown: true))
        case .middleMouseUp: .driver(.button(.middle, isDown: false))
        case .rightMouseDown: .driver(.button(.right, isDown: true))
        case .rightMouseUp: .driver(.button(.right, isDown: false))
        case .scroll: .driver(.scroll(.down, steps: 3, at: at, modifiers: []))
        case .cursorPosition: .driver(.position)
        case .screenshot, .zoom: .driver(.picture(Picture(region: region)))
        case .wait: .wait(milliseconds: 5)
        case .waitStable: .screen(.untilStill(region, milliseconds: 500, timeoutMilliseconds: 10_000))
        case .open: .open("a")
        case .clipboardGet: .driver(.readClipboard)
        case .clipboardSet: .driver(.setClipboard("a"))
        case .windows: .screen(.windows)
        case .focusWindow: .screen(.focus(7))
        case .closeWindow: .screen(.close(7))
        case .waitForWindow: .screen(.window(titled: "t", timeoutMilliseconds: 10_000))
        case .resize: .driver(.resize(DesktopSize(width: 8, height: 8)))
        }
    }

    @Test(arguments: DesktopAction.Name.allCases)
    func acceptsEachAction(name: DesktopAction.Name) throws {
        let action = try decode(
            #"{"action":"\#(name.rawValue)","coordinate":[3,4],"start_coordinate":[1,2],"duration":5,"#
                + #""text":"\#(name == .resize ? "8x8" : "a")","region":[1,2,3,4],"id":7,"title":"t"}"#)
        #expect(action == DesktopAction(name: name.rawValue, work: try Self.expected(name)))
    }

    @Test func hasTheDefaultsOfTheContract() throws {
        let scroll = try decode(#"{"action":"scroll","coordinate":[1,2],"text":null}"#)
        #expect(
            scroll.work == .driver(.scroll(.down, steps: 3, at: DesktopPoint(x: 1, y: 2), modifiers: [])))
        #expect(scroll.space == CoordinateSpace() && scroll.picture == nil)
        let hold = try decode(#"{"action":"hold_key","text":"a"}"#)
        #expect(hold.work == .driver(.hold(try KeyCombination("a"), milliseconds: 1_000)))
        let scaled = try decode(#"{"action":"screenshot","scaled_width":1280,"scaled_height":720}"#)
        #expect(scaled.space == CoordinateSpace(width: 1280, height: 720))
        let native = try decode(#"{"action":"screenshot","scaled_width":0,"scaled_height":-5}"#)
        #expect(native.space.isNative)
    }

    @Test(arguments: [
        ("mouse_move", "coordinate"), ("left_click", "coordinate"), ("right_click", "coordinate"),
        ("middle_click", "coordinate"), ("double_click", "coordinate"), ("triple_click", "coordinate"),
        ("scroll", "coordinate"), ("key", "text"), ("key_down", "text"),
        ("key_up", "text"), ("type", "text"), ("hold_key", "text"), ("open", "text"), ("wait", "duration"),
        ("zoom", "region"), ("clipboard_set", "text"), ("resize", "text"), ("focus_window", "id"),
        ("close_window", "id"), ("wait_for_window", "title"),
    ])
    func namesWhatIsMissing(action: String, field: String) {
        #expect(refusal(#"{"action":"\#(action)"}"#) == #"Missing "\#(field)" for \#(action) action."#)
        for point in [#""start_coordinate""#, #""coordinate""#] {
            #expect(
                refusal(#"{"action":"left_click_drag",\#(point):[1,1]}"#)
                    == #"Missing "coordinate" or "start_coordinate" for left_click_drag."#)
        }
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
        (#"{"action":"open","text":"a\u0000"}"#, #""text" must not contain a NUL character."#),
        (#"{"action":"clipboard_set","text":"\u0000"}"#, #""text" must not contain a NUL character."#),
        (#"{"action":"wait_for_window","title":""}"#, #"Missing "title" for wait_for_window action."#),
        (#"{"action":"wait_stable","ms":60001}"#, #""ms" must be at most 60000 milliseconds, not 60001."#),
        (#"{"action":"wait_stable","ms":-1}"#, #""ms" must be at least 0 milliseconds, not -1."#),
        (
            #"{"action":"wait_stable","timeout_ms":60001}"#,
            #""timeout_ms" must be at most 60000 milliseconds, not 60001."#
        ),
        (#"{"action":"zoom","region":[1,2,3]}"#, #""region" must be [x, y, width, height], not 3 numbers."#),
        (#"{"action":"zoom","region":[1,2,0,3]}"#, #""region" must be at least 1 by 1, not 0 by 3."#),
        (#"{"action":"zoom","region":[1,2,0.5,3]}"#, #""region" must be an array of four whole numbers."#),
        (#"{"action":"screenshot","scale":0.04}"#, #""scale" must be from 0.05 to 8.0, not 0.04."#),
        (#"{"action":"screenshot","scale":8.01}"#, #""scale" must be from 0.05 to 8.0, not 8.01."#),
        (#"{"action":"screenshot","scale":"2"}"#, #""scale" must be a number."#),
        (#"{"action":"screenshot","screenshot":1}"#, #""screenshot" must be true or false."#),
        (#"{"action":"focus_window","id":-1}"#, #""id" must be at least 0, not -1."#),
        (#"{"action":"focus_window","id":4294967296}"#, #""id" must be at most 4294967295, not 4294967296."#),
        (
            #"{"action":"left_click","coordinate":[1,1],"modifiers":"ctrl"}"#,
            #""modifiers" must be an array of strings."#
        ),
        (
            #"{"action":"left_click","coordinate":[1,1],"modifiers":["q"]}"#,
            #""modifiers" takes ctrl, shift, alt, super and the like, not q."#
        ),
        (
            #"{"action":"left_click","coordinate":[1,1],"modifiers":["ctrl+alt"]}"#,
            #""modifiers" takes ctrl, shift, alt, super and the like, not ctrl+alt."#
        ),
        (
            #"{"action":"key","text":"a","modifiers":["ctrl"]}"#,
            #""modifiers" are for clicks, drags and scroll, not for the key action."#
        ),
        (
            #"{"action":"resize","text":"0x100"}"#,
            #""text" must be a size such as 1280x720, at most 8192 pixels on a side, not 0x100."#
        ),
        (
            #"{"action":"resize","text":"8193x100"}"#,
            #""text" must be a size such as 1280x720, at most 8192 pixels on a side, not 8193x100."#
        ),
        (
            #"{"action":"resize","text":"100"}"#,
            #""text" must be a size such as 1280x720, at most 8192 pixels on a side, not 100."#
        ),
        (#"{"action":"key_down","text":"a b"}"#, "Unknown key: a b"),
        ("", "The body is empty."), ("[]", "The body must be a JSON object."),
        ("null", "The body must be a JSON object."), ("3", "The body must be a JSON object."),
        (#""x""#, "The body must be a JSON object."), ("{", "The body is not valid JSON."),
        (#"{"action":"wait","#, "The body is not valid JSON."), (#"{"action" "wait"}"#, "The body is not valid JSON."),
    ])
    func namesWhatIsWrong(json: String, message: String) {
        #expect(refusal(json) == message)
    }

    @Test func takesTheLimitsThemselves() throws {
        func work(_ json: String) throws -> DesktopAction.Work { try decode(json).work }
        let a = try KeyCombination("a")
        #expect(try work(#"{"action":"wait","duration":60000}"#) == .wait(milliseconds: 60_000))
        #expect(try work(#"{"action":"hold_key","text":"a","duration":0}"#) == .driver(.hold(a, milliseconds: 0)))
        #expect(
            try work(#"{"action":"scroll","coordinate":[0,0],"scroll_amount":1000}"#)
                == .driver(.scroll(.down, steps: 1_000, at: DesktopPoint(x: 0, y: 0), modifiers: [])))
        #expect(try decode(#"{"action":"screenshot","scaled_width":8192,"scaled_height":1}"#).space.width == 8_192)
        #expect(
            try work(#"{"action":"mouse_move","coordinate":[-9223372036854775808,9223372036854775807]}"#)
                == .driver(.move(DesktopPoint(x: .min, y: .max))))
    }

    @Test func takesWhatOnlyOursHas() throws {
        let click = try decode(
            #"{"action":"left_click","coordinate":[1,1],"modifiers":["CTRL","shift","control"],"screenshot":true}"#)
        let at = DesktopPoint(x: 1, y: 1)
        #expect(click.work == .driver(.click(.left, times: 1, at: at, modifiers: [0xffe3, 0xffe1])))
        #expect(click.picture == Picture())
        let part = try decode(
            #"{"action":"left_click","coordinate":[1,1],"region":[1,2,3,4],"scale":2,"screenshot":true}"#)
        #expect(part.picture == Picture(region: DesktopRegion(x: 1, y: 2, width: 3, height: 4), scale: 2))
        let names = Array(repeating: "\"ctrl\"", count: DesktopLimits.modifiers)
        _ = try decode(#"{"action":"scroll","coordinate":[1,1],"modifiers":[\#(names.joined(separator: ","))]}"#)
        #expect(
            refusal(
                #"{"action":"scroll","coordinate":[1,1],"modifiers":[\#((names + names[..<1]).joined(separator: ","))]}"#
            )
                == "\"modifiers\" has at most 8 keys, not 9.")
        let still = try decode(#"{"action":"wait_stable","ms":60000,"timeout_ms":0}"#)
        #expect(still.work == .screen(.untilStill(nil, milliseconds: 60_000, timeoutMilliseconds: 0)))
        #expect(
            try decode(#"{"action":"resize","text":"8192X1"}"#).work
                == .driver(.resize(DesktopSize(width: 8_192, height: 1))))
        #expect(
            try decode(#"{"action":"screenshot","scale":0.05}"#).work == .driver(.picture(Picture(scale: 0.05))))
        #expect(try decode(#"{"action":"focus_window","id":4294967295}"#).work == .screen(.focus(.max)))
    }

    /// The body limits a text sooner, but not one that comes another way.
    @Test func limitsTheClipboard() throws {
        let text = String(repeating: "x", count: DesktopLimits.clipboardBytes)
        #expect(try decode(#"{"action":"clipboard_set","text":"\#(text)"}"#).work == .driver(.setClipboard(text)))
        #expect(
            refusal(#"{"action":"clipboard_set","text":"\#(text)y"}"#)
                == #""text" has 1048577 bytes; the clipboard takes 1048576."#)
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
        var result = ActionResult(output: "x")
        (result.desktopRestarted, result.met, result.windows) = (true, false, [])
        #expect(text(result) == #"{"desktop_restarted":true,"met":false,"output":"x","windows":[]}"#)
        let window = DesktopWindow(
            id: 7, title: "a\"b", className: "C", pid: nil, x: -1, y: 2, width: 3, height: 4, isFocused: true)
        result = ActionResult()
        result.windows = [window, window]
        let one = #"{"class":"C","focused":true,"h":4,"id":7,"pid":null,"title":"a\"b","w":3,"x":-1,"y":2}"#
        #expect(text(result) == #"{"windows":[\#(one),\#(one)]}"#)
    }
}
