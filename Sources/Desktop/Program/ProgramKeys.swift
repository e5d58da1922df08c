import CDesktop

extension Keysym {
    static let programShift = "shift"

    /// X keysym names: the program silently ignores names that it does not know.
    static func names(_ keysyms: [UInt32]) throws -> [String] { try keysyms.map { try name($0) } }

    /// The X name; for Shift and Control the program's own names.
    /// - Throws: ``DesktopError`` `.failed` when libxkbcommon is missing and the keysym is no plain character.
    static func name(_ keysym: UInt32) throws -> String {
        if let scalar = scalar(keysym), scalar.isASCII, scalar.properties.isAlphabetic || ("0"..."9").contains(scalar) {
            return String(scalar)
        }
        switch keysym {
        case shift: return programShift
        case control: return "ctrl"
        default: break
        }
        try DesktopLibrary.xkbCommon.load()
        var name = [CChar](repeating: 0, count: 64)
        guard wd_keysym_name(keysym, &name, name.count) else {
            throw DesktopError(.invalid, "Unknown key: keysym \(keysym)")
        }
        return name.text
    }
}

enum ProgramText {
    /// The text in pieces that the program can type within its time, with line ends as LF.
    static func pieces(_ text: String) -> [String] {
        var pieces: [String] = []
        var piece = String.UnicodeScalarView()
        var count = 0
        var previous: Unicode.Scalar?
        for scalar in text.unicodeScalars {
            defer { previous = scalar }
            if scalar == "\n", previous == "\r" { continue }
            piece.append(scalar == "\r" ? "\n" : scalar)
            count += 1
            if count == DesktopLimits.programTypes {
                pieces.append(String(piece))
                (piece, count) = (.init(), 0)
            }
        }
        if !piece.isEmpty { pieces.append(String(piece)) }
        return pieces
    }
}
