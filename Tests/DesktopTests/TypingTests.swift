import AgentTestSupport
import Foundation
import Testing

@testable import Desktop

/// What is typed arrives in programs: every character once, in order.
@Suite(.timeLimit(.minutes(15))) struct TypingTests {
    private func arrives(_ texts: [String], isFresh: Bool = true, arguments: [String] = []) async throws {
        try await withDesktop(isFresh: isFresh, arguments: arguments) { xvnc, driver in
            let terminal = try await xvnc.terminal()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[200,200]}"#)
            var all = ""
            for text in texts {
                try await driver.type(text)
                all += text
                try await terminal.receives(all.replacingOccurrences(of: "\r\n", with: "\n"))
            }
            try Self.capsLockIsOff(xvnc)
        }
    }

    static func capsLockIsOff(_ xvnc: Xvnc) throws {
        let leds = try xvnc.run("xset", "q").split(separator: "\n").first { $0.contains("Caps Lock") } ?? ""
        #expect(leds.contains("00: Caps Lock:   off"), "\(leds)")
    }

    @Test func latinCyrillicAndBeyond() async throws {
        try await arrives([
            "Hello, World!", "-rf --version", " Grüße, café Ñandú €5", "Привет МИР", "漢字かな", "🙂🚀", "e\u{301}x\n",
            "a\tb\r\nc\n\n",
        ])
    }

    @Test func twoThousandSymbols() async throws {
        let ascii = String(String.UnicodeScalarView((0x20...0x7e).compactMap { Unicode.Scalar($0) }))
        try await arrives([String(String(repeating: ascii, count: 22).prefix(2_000))])
    }

    /// The X server has 19 spare key codes.
    @Test func fourHundredDistinctCharacters() async throws {
        let han = String(String.UnicodeScalarView((0..<400).compactMap { Unicode.Scalar(0x4e00 + 7 * $0) }))
        try await arrives([han, "plain", "ÀÉß", String(han.unicodeScalars.reversed().map(Character.init).prefix(30))])
    }

    /// Mixed with the keyboard's own characters and line ends, twenty distinct ones at a time.
    @Test func mixedText() async throws {
        var random = SeededGenerator("typing")
        let alphabet = Array("aZ 9!-\\$éÉ龍ж🙂中文字符测试一二三四五六七八九十\n".unicodeScalars)
        let text = String(
            String.UnicodeScalarView(
                (0..<600).map { _ in alphabet.randomElement(using: &random) ?? "a" }))
        try await arrives([text, text])
    }

    /// The spare keycodes of a desktop that was used before are unknown.
    @Test func onADesktopThatIsNotFresh() async throws {
        try await arrives(["aé龍b", "ж", "\néx"], isFresh: false)
    }

    @Test func longerThanOnePaste() async throws {
        let line = String(repeating: "龍é", count: 4_000)
        try await arrives([line, "end"], isFresh: false)
    }

    @Test func throughXclipWhereTheServerHasNoClipboard() async throws {
        try await withDesktop(isFresh: false, commands: true, hasClipboard: false) { xvnc, driver in
            let terminal = try await xvnc.terminal()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[200,200]}"#)
            // A paste is fetched when the terminal gets to it; keys behind it would not wait for that.
            try await driver.type("a龍é")
            try await terminal.receives("a龍é")
            try await driver.type("-b")
            try await terminal.receives("a龍é-b")
        }
    }

    /// Caps Lock, Num Lock and other layouts change what keys mean, not what is typed.
    @Test func whateverTheKeyboardIsSetTo() async throws {
        try await withDesktop { xvnc, driver in
            let terminal = try await xvnc.terminal()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[200,200]}"#)
            let ascii = String(String.UnicodeScalarView((0x20...0x7e).compactMap { Unicode.Scalar($0) }))
            try await driver.perform(action("key", text: "Caps_Lock"))
            try await driver.type("aBé")
            try await terminal.receives("aBé")
            try await driver.perform(action("key", text: "Caps_Lock"))
            try await driver.perform(action("key", text: "numlock"))
            try xvnc.run("setxkbmap", "de")
            try await driver.type(ascii)
            try await terminal.receives("aBé" + ascii)
            try xvnc.run("setxkbmap", "fr")
            try await driver.type(ascii + "éßЖ")
            try await terminal.receives("aBé" + ascii + ascii + "éßЖ")
        }
    }

    @Test func reportsThatTheTextWasNotPasted() async throws {
        try await withDesktop(isFresh: false) { xvnc, driver in
            // Events go to a window that pastes nothing.
            let window = try await xvnc.events()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[100,100]}"#)
            await #expect(throws: DesktopError(.failed, "")) { try await driver.type("龍") }
            try await eventually("the keys") { window.keys("KeyRelease").contains("Insert") }
            #expect(window.keys("KeyPress").sorted() == ["Insert", "Shift_L"])
            #expect(window.keys("KeyRelease").sorted() == ["Insert", "Shift_L"])
            #expect(driver.isAlive)
        }
    }

    /// The server drops the key that it has no code for; what was pressed is what was answered with success,
    /// however many codes a viewer or an earlier connection has used up.
    @Test(arguments: [true, false]) func noKeyIsLostInSilence(viewerTypes: Bool) async throws {
        try await withDesktop(isFresh: viewerTypes) { xvnc, driver in
            let window = try await xvnc.events()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[100,100]}"#)
            let viewer = try await xvnc.driver()
            for key in ["é", "ж", "ab龍"] {
                try await viewer.perform(action(viewerTypes ? "type" : "key", text: String(key.suffix(1))))
            }
            if viewerTypes {
                driver.viewerCame()
                driver.viewerSentInput()
            }
            var sent: [String] = []
            var refused = 0
            for number in 0..<36 {
                let scalar = try #require(Unicode.Scalar(0x4e00 + number))
                let name = number % 3 == 2 ? "hold_key" : "key"
                do {
                    try await driver.perform(#"{"action":"\#(name)","text":"\#(scalar)","duration":1}"#)
                    sent.append("U\(String(scalar.value, radix: 16).uppercased())")
                } catch let error as DesktopError where error.code == .failed {
                    #expect(error.message.hasSuffix("has no code left for the key \(scalar); type can enter it."))
                    refused += 1
                }
            }
            #expect(sent.count + refused == 36 && sent.count >= 10 && refused >= 36 - DesktopLimits.spareKeycodes)
            // What has a code is pressed as often as wanted.
            for key in ["é", "\u{4e00}"] { try await driver.perform(action("key", text: key)) }
            try await driver.perform(action("key", text: "a"))
            try await eventually("the last key") { window.keys("KeyRelease").contains("a") }
            let pressed = window.keys("KeyPress").filter { $0.hasPrefix("U4E") }
            #expect(pressed == sent + ["U4E00"])
            await viewer.close()
        }
    }

    @Test func aKeyOfAnUnknownKeyboardIsRefused() async throws {
        try await withDesktop(isFresh: false, knowsDisplay: false) { _, driver in
            await #expect(throws: DesktopError(.failed, "")) {
                try await driver.perform(action("key", text: "é"))
            }
            try await driver.perform(action("key", text: "ctrl+a"))
        }
    }

    @Test func keysAndCombinations() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[100,100]}"#)
            var presses: [String] = []
            for (text, names) in [
                ("ctrl+shift+t", ["Control_L", "Shift_L", "T"]), ("Return", ["Return"]), ("super", ["Super_L"]),
                ("F5", ["F5"]), ("é", ["eacute"]), ("€", ["U20AC"]), ("T", ["Shift_L", "T"]), ("+", ["plus"]),
                ("alt+Tab", ["Alt_L", "Tab"]), ("ctrl+c", ["Control_L", "c"]), ("pageup", ["Prior"]),
                ("Ж", ["Shift_L", "U0416"]),
            ] {
                let result = try await driver.perform(action("key", text: text))
                #expect(result.output == "key action performed")
                presses += names
                try await eventually(text) { window.keys("KeyRelease").count >= presses.count }
                let found = window.keys("KeyPress")
                // The symbol `+` needs Shift, which the server presses itself.
                if text == "+" { presses = found } else { #expect(found == presses, "\(text)") }
            }
            try Self.capsLockIsOff(xvnc)
        }
    }

    @Test func keyDownStaysDown() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[100,100]}"#)
            try await driver.perform(#"{"action":"key_down","text":"ctrl"}"#)
            try await driver.perform(#"{"action":"key","text":"a"}"#)
            try await driver.perform(#"{"action":"key","text":"ctrl+b"}"#)
            try await eventually("the keys") { window.keys("KeyRelease") == ["a", "b"] }
            #expect(window.keys("KeyPress") == ["Control_L", "a", "b"])
            try await driver.perform(#"{"action":"key_up","text":"ctrl"}"#)
            try await eventually("the release") { window.keys("KeyRelease") == ["a", "b", "Control_L"] }
            try await driver.perform(#"{"action":"key_down","text":"ctrl+shift+x"}"#)
            await driver.releaseAll()
            try await eventually("all released") { window.keys("KeyRelease").count == 6 }
            #expect(window.keys("KeyRelease").suffix(3) == ["X", "Shift_L", "Control_L"])
        }
    }

    @Test func holdsAKeyAndRepeats() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[100,100]}"#)
            let clock = ContinuousClock()
            let took = try await clock.measure {
                try await driver.perform(#"{"action":"hold_key","text":"b","duration":3000}"#)
            }
            #expect(took >= .seconds(3))
            try await driver.perform(#"{"action":"hold_key","text":"c","duration":0}"#)
            // Nothing of the key before it comes later.
            try await eventually("the release") { window.keys("KeyRelease").last == "c" }
            #expect(window.keys("KeyRelease").contains("b"))
            // One press, then 30 a second but for the first half second; a busy machine sends fewer.
            let presses = window.keys("KeyPress").count { $0 == "b" }
            #expect(presses >= 2 && presses <= 77, "\(presses)")
        }
    }

    @Test func releasesTheKeysOfACancelledActionAtOnce() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[100,100]}"#)
            let hold = Task { try await driver.perform(#"{"action":"hold_key","text":"ctrl+k","duration":60000}"#) }
            try await eventually("the press") { window.keys("KeyPress").contains("k") }
            // Those behind it wait, but not for whether the server answers.
            try await driver.probe(within: .seconds(20))
            let queued = Task { try await driver.perform(#"{"action":"key","text":"q"}"#) }
            let dropped = Task { try await driver.perform(#"{"action":"key","text":"d"}"#) }
            dropped.cancel()
            await #expect(throws: CancellationError.self) { try await dropped.value }
            hold.cancel()
            await #expect(throws: CancellationError.self) { try await hold.value }
            _ = try await queued.value
            try await eventually("the releases") { window.keys("KeyRelease").contains("q") }
            // A key that is held long enough repeats, which X tells as releases, too.
            #expect(Set(window.keys("KeyRelease").prefix { $0 != "q" }) == ["k", "Control_L"])
            #expect(!window.keys("KeyPress").contains("d"))
        }
    }
}
