/// The text in double quotes as Go's `%q` prints it, which several error texts of the wire
/// contracts contain.
public func goQuoted(_ text: String) -> String {
    var out = "\""
    for scalar in text.unicodeScalars {
        switch scalar {
        case "\"": out += "\\\""
        case "\\": out += "\\\\"
        case "\u{07}": out += "\\a"
        case "\u{08}": out += "\\b"
        case "\u{0C}": out += "\\f"
        case "\n": out += "\\n"
        case "\r": out += "\\r"
        case "\t": out += "\\t"
        case "\u{0B}": out += "\\v"
        case _ where isPrintable(scalar): out.unicodeScalars.append(scalar)
        case _ where scalar.value < 0x20 || scalar.value == 0x7F: out += "\\x" + hexadecimal(scalar.value, digits: 2)
        case _ where scalar.value < 0x10000: out += "\\u" + hexadecimal(scalar.value, digits: 4)
        default: out += "\\U" + hexadecimal(scalar.value, digits: 8)
        }
    }
    return out + "\""
}

/// What Go prints as it is: letters, marks, numbers, punctuation, symbols and the ASCII space.
private func isPrintable(_ scalar: Unicode.Scalar) -> Bool {
    if scalar.isASCII { return (0x20..<0x7F).contains(scalar.value) }
    switch scalar.properties.generalCategory {
    case .control, .format, .surrogate, .privateUse, .unassigned, .spaceSeparator, .lineSeparator,
        .paragraphSeparator:
        return false
    default: return true
    }
}

private func hexadecimal(_ value: UInt32, digits: Int) -> String {
    let text = String(value, radix: 16)
    return String(repeating: "0", count: max(0, digits - text.count)) + text
}
