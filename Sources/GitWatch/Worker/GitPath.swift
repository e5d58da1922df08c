/// A path as git has it: bytes, relative to the work tree, parts separated by `/`.
typealias GitPath = [UInt8]

extension GitPath {
    /// The directories above, outermost first: `a`, `a/b` of `a/b/c`.
    var parents: [GitPath] {
        indices.filter { self[$0] == UInt8(ascii: "/") }.map { Array(self[..<$0]) }
    }

    func isAtOrBelow(_ directory: GitPath) -> Bool {
        directory.isEmpty
            || starts(with: directory)
                && (count == directory.count || self[directory.count] == UInt8(ascii: "/"))
    }

    /// The last part.
    var name: ArraySlice<UInt8> {
        guard let slash = lastIndex(of: UInt8(ascii: "/")) else { return self[...] }
        return self[(slash + 1)...]
    }

    /// What the operating system takes.
    func below(_ root: String) -> [CChar] {
        var full = Array(root.utf8)
        if !isEmpty {
            full.append(UInt8(ascii: "/"))
            full += self
        }
        full.append(0)
        return full.map { CChar(bitPattern: $0) }
    }
}

/// Names as git prints them (quote.c, with core.quotePath on): in double quotes with escapes when a byte
/// is a control character, a quote, a backslash or not ASCII.
func gitQuoted(_ prefix: String, _ path: GitPath) -> [UInt8] {
    let name = Array(prefix.utf8) + path
    guard name.contains(where: { $0 < 0x20 || $0 >= 0x7F || $0 == UInt8(ascii: "\"") || $0 == UInt8(ascii: "\\") })
    else { return name }
    var out: [UInt8] = [UInt8(ascii: "\"")]
    for byte in name {
        switch byte {
        case 7: out += Array("\\a".utf8)
        case 8: out += Array("\\b".utf8)
        case 9: out += Array("\\t".utf8)
        case 10: out += Array("\\n".utf8)
        case 11: out += Array("\\v".utf8)
        case 12: out += Array("\\f".utf8)
        case 13: out += Array("\\r".utf8)
        case UInt8(ascii: "\""): out += Array("\\\"".utf8)
        case UInt8(ascii: "\\"): out += Array("\\\\".utf8)
        case 0x20..<0x7F: out.append(byte)
        default:
            out.append(UInt8(ascii: "\\"))
            for shift in [6, 3, 0] { out.append(UInt8(ascii: "0") + (byte >> UInt8(shift)) & 7) }
        }
    }
    out.append(UInt8(ascii: "\""))
    return out
}
