/// Columns of text on a terminal.
enum TextTable {
    /// The lines, whose last column is cut, as is a line that is too long without it.
    /// - Parameter width: columns of the terminal; nil cuts nothing.
    static func lines(_ rows: [[String]], width: Int? = nil) -> [String] {
        var widths: [Int] = []
        for row in rows {
            for (column, cell) in row.enumerated() {
                if column == widths.count { widths.append(0) }
                widths[column] = max(widths[column], columns(of: cell))
            }
        }
        return rows.map { row in
            var line = ""
            for (column, cell) in row.enumerated() {
                line += cell
                if column < row.count - 1 {
                    line += String(repeating: " ", count: widths[column] - columns(of: cell) + 2)
                }
            }
            return width.map { cut(line, to: $0) } ?? line
        }
    }

    /// Control characters, and those that turn the writing direction, become a visible sign each.
    static func harmless(_ text: String) -> String {
        var out = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            switch scalar.value {
            case 0x20..<0x7F, 0xA0..<0x200B: out.append(scalar)
            case 0x0A, 0x09: out.append(" ")
            case 0..<0x20: out.append(Unicode.Scalar(0x2400 + scalar.value) ?? "\u{FFFD}")
            default: out.append(scalar.isHarmless ? scalar : "\u{FFFD}")
            }
        }
        return String(out)
    }

    static func columns(of text: String) -> Int { text.unicodeScalars.reduce(0) { $0 + columns(of: $1) } }

    private static func cut(_ line: String, to width: Int) -> String {
        guard columns(of: line) > width else { return line }
        var out = String.UnicodeScalarView()
        var used = 0
        for scalar in line.unicodeScalars {
            used += columns(of: scalar)
            if used > width - 1 { break }
            out.append(scalar)
        }
        return width > 0 ? String(out) + "…" : ""
    }

    /// The blocks of characters that take two columns, besides those shown as pictures.
    private static let wide: [ClosedRange<UInt32>] = [
        0x1100...0x115F, 0x2E80...0x303E, 0x3041...0x4DBF, 0x4E00...0xA4CF, 0xA960...0xA97F, 0xAC00...0xD7A3,
        0xF900...0xFAFF, 0xFE30...0xFE6F, 0xFF01...0xFF60, 0xFFE0...0xFFE6, 0x20000...0x3FFFD,
    ]

    private static func columns(of scalar: Unicode.Scalar) -> Int {
        if scalar.isASCII { return 1 }
        if [.nonspacingMark, .enclosingMark].contains(scalar.properties.generalCategory) { return 0 }
        return scalar.properties.isEmojiPresentation || wide.contains { $0.contains(scalar.value) } ? 2 : 1
    }
}
