import AgentTestSupport
import Testing

@testable import Desktop

@Suite struct KeyboardPlanTests {
    @Test(
        arguments: [
            ("Return", [0xff0d]), ("return", [0xff0d]), ("ENTER", [0xff0d]), ("super", [0xffeb]), ("F5", [0xffc2]),
            ("f5", [0xffc2]), ("ctrl+shift+t", [0xffe3, 0xffe1, 0x54]), ("Control+c", [0xffe3, 0x63]), ("t", [0x74]),
            ("T", [0xffe1, 0x54]), ("ctrl+T", [0xffe3, 0x74]), ("CTRL+T", [0xffe3, 0x74]),
            ("CTRL+SHIFT+T", [0xffe3, 0xffe1, 0x54]), ("shift+T", [0xffe1, 0x54]), ("ctrl+É", [0xffe3, 0xe9]),
            ("numpad0", [0xffb0]), ("numpad_9", [0xffb9]), ("num5", [0xffb5]), ("ctrl_l", [0xffe3]),
            ("CTRL_R", [0xffe4]), ("shift_l", [0xffe1]), ("arrow_up", [0xff52]), ("numpad_enter", [0xff8d]),
            ("page_up", [0xff55]), ("+", [0x2b]), ("ctrl++", [0xffe3, 0x2b]),
            ("é", [0xe9]), ("É", [0xffe1, 0xc9]), ("€", [0x0100_20ac]), ("ж", [0x0100_0436]),
            ("Ж", [0xffe1, 0x0100_0416]), ("🙂", [0x0101_f642]), ("!", [0x21]), ("shift+1", [0xffe1, 0x21]),
            ("shift+Tab", [0xffe1, 0xff09]), ("alt+F4", [0xffe9, 0xffc1]), ("cmd+space", [0xffeb, 0x20]),
            ("Page_Up", [0xff55]), ("pageup", [0xff55]), ("PgDn", [0xff56]), ("Escape", [0xff1b]), ("esc", [0xff1b]),
            ("del", [0xffff]), ("Left", [0xff51]), ("left", [0xff51]), ("ArrowLeft", [0xff51]), (" ", [0x20]),
            ("ctrl + a", [0xffe3, 0x61]), ("KP_Enter", [0xff8d]), ("eacute", [0xe9]), ("\n", [0xff0d]),
            ("\t", [0xff09]),
            ("ctrl", [0xffe3]), ("Meta", [0xffeb]), ("win+e", [0xffeb, 0x65]), ("BackSpace", [0xff08]),
            ("XF86AudioMute", [0x1008_ff12]), ("ctrl+minus", [0xffe3, 0x2d]), ("shift+é", [0xffe1, 0xc9]),
        ] as [(String, [UInt32])])
    func readsCombinations(text: String, keysyms: [UInt32]) throws {
        #expect(try KeyCombination(text).keysyms() == keysyms)
    }

    @Test(arguments: [
        ("nosuch", "nosuch"), ("ctrl+nosuch", "nosuch"), ("", ""), ("ctrl+", "ctrl+"), ("++", "++"),
        ("NoSymbol", "NoSymbol"), ("VoidSymbol", "VoidSymbol"), ("a b", "a b"), ("ctrl+\u{1}", "\u{1}"),
        ("e\u{301}", "e\u{301}"),
        ("a\0", "a\0"),
    ])
    func namesKeysThatDoNotExist(text: String, name: String) {
        do {
            Issue.record("\(text): \(try KeyCombination(text))")
        } catch {
            #expect(error.code == .invalid)
            #expect(error.message == "Unknown key: \(name)")
        }
    }

    @Test(
        arguments: [
            ("ctrl+c ctrl+v", ["ctrl+c", "ctrl+v"]), ("a", ["a"]), (" ", [" "]), ("  ", ["  "]),
            ("a  b", ["a", "b"]), ("ctrl + a", ["ctrl+a"]), ("ctrl+ a", ["ctrl+a"]), ("ctrl +a", ["ctrl+a"]),
            ("+ a", ["+", "a"]), ("ctrl++ a", ["ctrl++", "a"]), ("ctrl + + a", ["ctrl++", "a"]),
            ("Tab Tab Return", ["Tab", "Tab", "Return"]), ("CTRL+A DELETE", ["ctrl+a", "Delete"]),
        ] as [(String, [String])])
    func readsSequences(text: String, parts: [String]) throws {
        do {
            #expect(try KeyCombination.sequence(text) == parts.map { try KeyCombination($0) })
        } catch let error as DesktopError {
            #expect(text == "  " && error.message == "Unknown key:   ", "\(text): \(error)")
        }
    }

    @Test func takesAsManyCombinationsAsTheLimit() throws {
        let limit = DesktopLimits.combinations
        #expect(try KeyCombination.sequence(Array(repeating: "a", count: limit).joined(separator: " ")).count == limit)
        #expect(throws: DesktopError(.invalid, "")) {
            try KeyCombination.sequence(Array(repeating: "a", count: limit + 1).joined(separator: " "))
        }
    }

    @Test func heldShiftMakesUppercase() throws {
        #expect(try KeyCombination("a").keysyms(shiftIsHeld: true) == [0x41])
        #expect(try KeyCombination("1").keysyms(shiftIsHeld: true) == [0x21])
    }

    @Test func takesAsManyKeysAsTheLimit() throws {
        let limit = DesktopLimits.combinationKeys
        #expect(try KeyCombination(Array(repeating: "a", count: limit).joined(separator: "+")).keysyms().count == limit)
        #expect(throws: DesktopError(.invalid, "")) {
            try KeyCombination(Array(repeating: "a", count: limit + 1).joined(separator: "+"))
        }
    }

    private func strokes(_ text: String) -> [KeyStroke] {
        text.unicodeScalars.map { KeyStroke(keysym: Keysym.of($0) ?? 0, shift: Keysym.isUppercase($0)) }
    }

    @Test func typesLettersWithShiftAndSymbolsBare() {
        #expect(
            TextPlan("aT!É").steps == [
                .keys([
                    KeyStroke(keysym: 0x61, shift: false), KeyStroke(keysym: 0x54, shift: true),
                    KeyStroke(keysym: 0x21, shift: false), KeyStroke(keysym: 0xc9, shift: true),
                ])
            ])
        #expect(TextPlan("").steps == [])
        // Uppercase without a lowercase of one character, and symbols that Unicode calls uppercase.
        #expect(!Keysym.isUppercase("ß" as Unicode.Scalar) && !Keysym.isUppercase("1" as Unicode.Scalar))
    }

    @Test func endsLinesOnce() {
        let end = KeyStroke(keysym: 0xff0d, shift: false)
        let a = KeyStroke(keysym: 0x61, shift: false)
        #expect(TextPlan("a\r\na\na\ra\n\n").steps == [.keys([a, end, a, end, a, end, a, end, end])])
        #expect(TextPlan("\t").steps == [.keys([KeyStroke(keysym: 0xff09, shift: false)])])
    }

    @Test func pastesFromTheTwentiethNewCharacterOn() {
        let nineteen = String(String.UnicodeScalarView((0..<19).compactMap { Unicode.Scalar(0x4e00 + $0) }))
        let plan = TextPlan(nineteen)
        #expect(plan.steps == [.keys(strokes(nineteen))])
        #expect(plan.learnt.count == 19)
        #expect(
            TextPlan(nineteen + "a龍b龍c").steps == [.keys(strokes(nineteen + "a")), .paste("龍b龍"), .keys(strokes("c"))])
        // A character keeps its keycode.
        let later = TextPlan("a" + nineteen + "龍", known: plan.learnt, spare: 0)
        #expect(later.steps == [.keys(strokes("a" + nineteen)), .paste("龍")])
        #expect(later.learnt.isEmpty)
        let none = TextPlan("é x\né\ty", spare: 0)
        #expect(
            none.steps == [
                .paste("é"), .keys(strokes(" x\n")), .paste("é"), .keys(strokes("\ty")),
            ])
    }

    @Test func cutsWhatIsPastedAtTheLimit() {
        // Three bytes each.
        let fits = DesktopLimits.pasteBytes / 3
        for (count, pieces) in [(fits - 1, 1), (fits, 1), (fits + 1, 2), (3 * fits + 1, 4)] {
            let text = String(repeating: "龍", count: count)
            let found = TextPlan(text, spare: 0).steps.compactMap { step -> String? in
                if case .paste(let piece) = step { piece } else { nil }
            }
            #expect(found.joined() == text)
            #expect(found.count == pieces)
            #expect(found.allSatisfy { $0.utf8.count <= DesktopLimits.pasteBytes })
        }
    }

    /// Whatever the text, the steps together are it.
    @Test func losesNothing() {
        var random = SeededGenerator("plan")
        let alphabet = Array("aZ !é龍🙂ж\n\tÉ".unicodeScalars)
        for _ in 0..<500 {
            let scalars = (0..<Int.random(in: 0...60, using: &random)).map { _ in
                alphabet.randomElement(using: &random) ?? "a"
            }
            let text = String(String.UnicodeScalarView(scalars))
            let plan = TextPlan(text, spare: Int.random(in: 0...4, using: &random))
            var back: [UInt32] = []
            for step in plan.steps {
                switch step {
                case .keys(let strokes): back += strokes.map(\.keysym)
                case .paste(let piece): back += piece.unicodeScalars.map { Keysym.of($0) ?? 0 }
                }
            }
            #expect(back == scalars.map { Keysym.of($0) ?? 0 }, "\(text.debugDescription)")
        }
    }
}

@Suite struct DesktopGeometryTests {
    @Test func mapsAsTheContractSays() {
        // round((c + 0.5) · 1920 / 1280 − 0.5)
        #expect([0, 1, 2, 640, 1279].map { DesktopGeometry.map($0, from: 1280, to: 1920) } == [0, 2, 3, 960, 1919])
        #expect(
            [-1, -1_000, 1280, Int.max].map { DesktopGeometry.map($0, from: 1280, to: 1920) } == [0, 0, 1919, 1919])
        #expect(
            [-5, 0, 1919, 1920, Int.max, Int.min].map { DesktopGeometry.map($0, from: 1920, to: 1920) } == [
                0, 0, 1919, 1919, 1919, 0,
            ])
        #expect(DesktopGeometry.map(0, from: 1, to: 1920) == 960)
        #expect(DesktopGeometry.map(1919, from: 1920, to: 1) == 0)
    }

    @Test func keepsOrderAndComesBack() {
        var random = SeededGenerator("geometry")
        for _ in 0..<500 {
            let declared = Int.random(in: 1...8_192, using: &random)
            let native = Int.random(in: 1...8_192, using: &random)
            var previous = 0
            for _ in 0..<50 {
                let value = Int.random(in: 0..<declared, using: &random)
                let mapped = DesktopGeometry.map(value, from: declared, to: native)
                #expect(mapped >= 0 && mapped < native)
                // The contract's formula in whole numbers: halves away from zero.
                let exact = ((2 * value + 1) * native - declared)
                let expected =
                    exact >= 0 ? (exact + declared) / (2 * declared) : -((-exact + declared) / (2 * declared))
                #expect(mapped == min(max(expected, 0), native - 1), "\(value) of \(declared) to \(native)")
                let back = DesktopGeometry.map(mapped, from: native, to: declared)
                // Down and up again a pixel may move by half of what it covers.
                #expect(abs(back - value) <= (native >= declared ? 0 : declared / native / 2 + 1))
                previous = max(previous, mapped)
            }
            #expect(DesktopGeometry.map(0, from: declared, to: native) <= previous)
        }
    }
}
