/// The text in double quotes as Go's `%q` prints it, which several error texts of the wire
/// contracts contain.
public func goQuoted(_ text: String) -> String { goQuoted(utf8: text.utf8) }

/// As ``goQuoted(_:)``, of bytes: those that are not UTF-8 are printed as `\xff`.
public func goQuoted(utf8 bytes: some Sequence<UInt8>) -> String {
    let bytes = Array(bytes)
    var out = "\""
    var iterator = bytes.makeIterator()
    var parser = Unicode.UTF8.ForwardParser()
    var position = 0
    while true {
        switch parser.parseScalar(from: &iterator) {
        case .valid(let encoded):
            append(Unicode.UTF8.decode(encoded), to: &out)
            position += encoded.count
        case .error(let length):
            for byte in bytes[position..<position + length] { out += "\\x" + hexadecimal(UInt32(byte), digits: 2) }
            position += length
        case .emptyInput:
            return out + "\""
        }
    }
}

private func append(_ scalar: Unicode.Scalar, to out: inout String) {
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
