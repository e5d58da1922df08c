import CDesktop

/// A key and the keys that are held while it is pressed, such as `ctrl+shift+t`.
///
/// Names are those of X (xkbcommon's `xkb_keysym_from_name`), single characters, and the aliases of
/// docs/contracts/desktop.md#keys; names are taken in any case where no exact one exists.
package struct KeyCombination: Sendable, Equatable {
    private let keys: [UInt32]

    /// - Throws: ``DesktopError`` `.invalid` that names the key which does not exist.
    init(_ text: String) throws(DesktopError) {
        let parts = Self.split(text)
        guard parts.count <= DesktopLimits.combinationKeys else {
            throw DesktopError(
                .invalid, "A combination has at most \(DesktopLimits.combinationKeys) keys, not \(parts.count).")
        }
        var keys: [UInt32] = []
        for part in parts {
            guard let keysym = try Self.keysym(named: part) else {
                throw DesktopError(.invalid, "Unknown key: \(part.isEmpty ? text : part)")
            }
            // `CTRL+T` is ctrl+t: a letter in a combination is a key, and only one that stands alone is a capital.
            // Not where Shift would not make it the capital again, as of ẞ.
            let lowered = Keysym.lowered(keysym)
            let isKey =
                parts.count > 1 && part.unicodeScalars.count == 1 && Keysym.shifted(lowered) == Keysym.shifted(keysym)
            keys.append(isKey ? lowered : keysym)
        }
        self.keys = keys
    }

    /// X keysyms in the order in which they are pressed; released the other way round. Never empty.
    /// - Parameter shiftIsHeld: Shift is down already, so that `t` means `T`.
    func keysyms(shiftIsHeld: Bool = false) -> [UInt32] {
        var shift = shiftIsHeld
        var pressed: [UInt32] = []
        for key in keys {
            if Keysym.isShift(key) { shift = true }
            let keysym = shift ? Keysym.shifted(key) : key
            // A bare uppercase letter would turn Caps Lock on and leave it on.
            if !shift, Keysym.isUppercase(keysym) {
                pressed.append(Keysym.shift)
                shift = true
            }
            pressed.append(keysym)
        }
        return pressed
    }

    /// Combinations that are pressed one after the other, separated by spaces: `ctrl+a ctrl+c`. Spaces around a `+`
    /// belong to one combination; a space alone is the space bar.
    /// - Throws: as ``init(_:)``, and when they are too many.
    static func sequence(_ text: String) throws(DesktopError) -> [KeyCombination] {
        var joined: [String] = []
        var joinsNext = false
        for word in text.split(separator: " ").map(String.init) {
            // A `+` alone is the key, unless something is on both sides of it.
            let isPlus = word.allSatisfy { $0 == "+" }
            if joinsNext || word.hasPrefix("+") && !joined.isEmpty, let last = joined.popLast() {
                joined.append(last + word)
            } else {
                joined.append(word)
            }
            joinsNext = word.hasSuffix("+") && (isPlus ? !joinsNext && joined.last != word : !word.hasSuffix("++"))
        }
        guard !joined.isEmpty else { return [try KeyCombination(text)] }
        guard joined.count <= DesktopLimits.combinations else {
            throw DesktopError(
                .invalid, "At most \(DesktopLimits.combinations) combinations are pressed at once, not \(joined.count)."
            )
        }
        var combinations: [KeyCombination] = []
        for text in joined { combinations.append(try KeyCombination(text)) }
        return combinations
    }

    /// Splits at `+`. Where a name is missing, as in `+` and `ctrl++`, the `+` is the key itself.
    private static func split(_ text: String) -> [String] {
        var parts: [String] = []
        var part = ""
        var rest = Substring(text)
        while let character = rest.popFirst() {
            // `+` at the start of a part is the key; `ctrl+` has an empty last part, which is refused.
            if character == "+", !part.isEmpty {
                parts.append(part)
                part = ""
                if rest.isEmpty { parts.append("") }
            } else {
                part.append(character)
            }
        }
        if !part.isEmpty || parts.isEmpty { parts.append(part) }
        // Spaces around a name are trimmed; a space alone is the space bar.
        return parts.map { part in
            guard part.unicodeScalars.count > 1 else { return part }
            var trimmed = Substring(part)
            while trimmed.first == " " { trimmed.removeFirst() }
            while trimmed.last == " " { trimmed.removeLast() }
            return String(trimmed)
        }
    }

    /// nil when there is no such key.
    private static func keysym(named name: String) throws(DesktopError) -> UInt32? {
        guard !name.isEmpty, !name.utf8.contains(0) else { return nil }
        let scalars = name.unicodeScalars
        if let scalar = scalars.first, scalars.count == 1 { return Keysym.of(scalar) }
        try DesktopLibrary.xkbCommon.load()
        return valid(wd_keysym_from_name(name, false)) ?? aliases[name.lowercased()]
            ?? valid(wd_keysym_from_name(name, true))
    }

    /// nil for NoSymbol and VoidSymbol, which no key has.
    private static func valid(_ keysym: UInt32) -> UInt32? { keysym == 0 || keysym == 0xff_ffff ? nil : keysym }

    /// In lower case. Other names of X are found in any case by xkbcommon.
    private static let aliases: [String: UInt32] = {
        var all = names
        for digit in 0...9 as ClosedRange<UInt32> {
            for name in ["numpad", "numpad_", "num"] { all["\(name)\(digit)"] = 0xffb0 + digit }
        }
        return all
    }()

    private static let names: [String: UInt32] = [
        "ctrl": 0xffe3, "control": 0xffe3, "shift": Keysym.shift,
        "alt": 0xffe9, "option": 0xffe9, "altgr": 0xfe03,
        "super": 0xffeb, "meta": 0xffeb, "cmd": 0xffeb, "command": 0xffeb, "win": 0xffeb, "windows": 0xffeb,
        "enter": Keysym.enter, "return": Keysym.enter, "esc": Keysym.escape, "del": Keysym.delete,
        "ins": Keysym.insert, "bksp": Keysym.backspace, "spacebar": 0x20,
        "pgup": 0xff55, "pageup": 0xff55, "pgdn": 0xff56, "pgdown": 0xff56, "pagedown": 0xff56,
        "arrowup": 0xff52, "arrowdown": 0xff54, "arrowleft": 0xff51, "arrowright": 0xff53,
        "capslock": 0xffe5, "caps": 0xffe5, "numlock": 0xff7f, "scrolllock": 0xff14,
        "arrow_up": 0xff52, "arrow_down": 0xff54, "arrow_left": 0xff51, "arrow_right": 0xff53,
        "ctrl_l": Keysym.control, "ctrl_r": Keysym.control + 1, "cmd_l": 0xffeb, "cmd_r": 0xffec,
        "win_l": 0xffeb, "win_r": 0xffec, "option_l": 0xffe9, "option_r": 0xffea,
        "numpad_enter": 0xff8d, "numpad_add": 0xffab, "numpad_subtract": 0xffad, "numpad_multiply": 0xffaa,
        "numpad_divide": 0xffaf, "numpad_decimal": 0xffae,
        "page_dn": 0xff56, "pg_up": 0xff55, "pg_dn": 0xff56, "back_space": Keysym.backspace,
        "print_screen": 0xff61, "caps_lock": 0xffe5, "num_lock": 0xff7f, "scroll_lock": 0xff14,
        "printscreen": 0xff61, "prtsc": 0xff61, "contextmenu": 0xff67, "apps": 0xff67,
    ]
}

/// X keysyms (X11/keysymdef.h): Latin-1 as they are, other characters 0x01000000 and the code point.
enum Keysym {
    static let shift: UInt32 = 0xffe1
    static let control: UInt32 = 0xffe3
    static let backspace: UInt32 = 0xff08
    static let tab: UInt32 = 0xff09
    static let enter: UInt32 = 0xff0d
    static let escape: UInt32 = 0xff1b
    static let insert: UInt32 = 0xff63
    static let delete: UInt32 = 0xffff

    /// nil for a control character that no key stands for.
    static func of(_ scalar: Unicode.Scalar) -> UInt32? {
        switch scalar.value {
        case 0x20...0x7e, 0xa0...0xff: scalar.value
        case 0x08: backspace
        case 0x09: tab
        case 0x0a, 0x0d: enter
        case 0x1b: escape
        case 0x7f: delete
        case 0..<0xa0: nil
        default: 0x0100_0000 + scalar.value
        }
    }

    /// The character of a keysym that stands for one.
    static func scalar(_ keysym: UInt32) -> Unicode.Scalar? {
        switch keysym {
        case 0x20...0x7e, 0xa0...0xff: Unicode.Scalar(keysym)
        case 0x0100_0100...0x0110_ffff: Unicode.Scalar(keysym - 0x0100_0000)
        // The legacy keysyms of Cyrillic, Greek and so on, which only a name produces.
        case 0x100..<0xfd00: legacy(keysym)
        default: nil
        }
    }

    private static func legacy(_ keysym: UInt32) -> Unicode.Scalar? {
        guard (try? DesktopLibrary.xkbCommon.load()) != nil else { return nil }
        let value = wd_keysym_to_scalar(keysym)
        return value == 0 ? nil : Unicode.Scalar(value)
    }

    /// Shift, Control, Lock, Meta, Alt, Super and Hyper of both sides, and AltGr.
    static func isModifier(_ keysym: UInt32) -> Bool { (0xffe1...0xffee).contains(keysym) || keysym == 0xfe03 }

    static func isShift(_ keysym: UInt32) -> Bool { keysym == shift || keysym == shift + 1 }

    /// Whether it needs Shift. Only letters do: the server presses Shift for symbols itself.
    static func isUppercase(_ keysym: UInt32) -> Bool { scalar(keysym).map(isUppercase) ?? false }

    static func isUppercase(_ scalar: Unicode.Scalar) -> Bool {
        guard scalar.properties.isUppercase else { return false }
        let lower = scalar.properties.lowercaseMapping.unicodeScalars
        return lower.count == 1 && lower.first != scalar
    }

    /// The keysym of the key with Shift; the same when Shift changes nothing.
    static func shifted(_ keysym: UInt32) -> UInt32 {
        if let symbol = shiftedSymbols[keysym] { return symbol }
        guard let scalar = scalar(keysym), scalar.properties.isLowercase else { return keysym }
        let upper = scalar.properties.uppercaseMapping.unicodeScalars
        guard upper.count == 1, let first = upper.first else { return keysym }
        return of(first) ?? keysym
    }

    /// The keysym of a capital's key without Shift; the same for everything else.
    static func lowered(_ keysym: UInt32) -> UInt32 {
        guard let scalar = scalar(keysym), isUppercase(scalar) else { return keysym }
        return scalar.properties.lowercaseMapping.unicodeScalars.first.flatMap(of) ?? keysym
    }

    /// The layout of an X server without a configured keyboard (us).
    private static let shiftedSymbols: [UInt32: UInt32] = {
        let plain = "`1234567890-=[]\\;',./".unicodeScalars.map(\.value)
        let shifted = "~!@#$%^&*()_+{}|:\"<>?".unicodeScalars.map(\.value)
        return Dictionary(uniqueKeysWithValues: zip(plain, shifted))
    }()
}
