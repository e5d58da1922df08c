import AgentCore
import Glibc

/// Paths as text. A path is bytes; JSON and URLs carry text. Each byte that is not part of valid UTF-8 is written as
/// the character U+10FE00 + the byte (of the private use plane 16), and so is each byte of a name that really has one
/// of these characters, so that every name has exactly one text and comes back as it was.
public enum PathText {
    private static let escapes: ClosedRange<UInt32> = 0x10FE80...0x10FEFF
    /// With what the UTF-8 of plane 16 begins.
    private static let lead: UInt8 = 0xF4

    /// The text of a name or path.
    public static func text(_ bytes: some Collection<UInt8>) -> String {
        if let text = String(validating: bytes, as: UTF8.self), !needsEscape(text) { return text }
        var text = String.UnicodeScalarView()
        var rest = Array(bytes)[...]
        while !rest.isEmpty {
            var iterator = rest.makeIterator()
            var parser = Unicode.UTF8.ForwardParser()
            let count: Int
            switch parser.parseScalar(from: &iterator) {
            case .valid(let encoded):
                let scalar = Unicode.UTF8.decode(encoded)
                count = encoded.count
                if escapes.contains(scalar.value) { escape(rest.prefix(count), &text) } else { text.append(scalar) }
            case .error(let length):
                count = length
                escape(rest.prefix(count), &text)
            case .emptyInput: count = rest.count
            }
            rest = rest.dropFirst(count)
        }
        return String(text)
    }

    /// The bytes that ``text(_:)`` was made from.
    public static func bytes(_ text: String) -> [UInt8] {
        guard needsEscape(text) else { return Array(text.utf8) }
        var bytes: [UInt8] = []
        for scalar in text.unicodeScalars {
            if escapes.contains(scalar.value) {
                bytes.append(UInt8(truncatingIfNeeded: scalar.value))
            } else {
                bytes.append(contentsOf: UTF8.encode(scalar) ?? UTF8.encodedReplacementCharacter)
            }
        }
        return bytes
    }

    private static func needsEscape(_ text: String) -> Bool {
        text.utf8.contains(lead) && text.unicodeScalars.contains { escapes.contains($0.value) }
    }

    private static func escape(_ bytes: ArraySlice<UInt8>, _ text: inout String.UnicodeScalarView) {
        for byte in bytes { text.append(Unicode.Scalar(0x10FE00 + UInt32(byte)) ?? "\u{FFFD}") }
    }
}

/// Lends the path to a system call, as ``withName(_:_:)``.
func withPath(_ path: String, _ call: (UnsafePointer<CChar>) -> CInt) -> CInt { withName(PathText.bytes(path), call) }

/// Lends bytes to a system call as a path.
/// - Parameter call: returns a non-negative number, or -1 with errno set, or -errno.
/// - Returns: what the call returned, or -errno; -EINVAL for bytes with NUL in them.
func withName(_ bytes: [UInt8], _ call: (UnsafePointer<CChar>) -> CInt) -> CInt {
    guard !bytes.contains(0) else { return -EINVAL }
    let result = (bytes + [0]).withUnsafeBytes { area in
        area.baseAddress.map { call($0.assumingMemoryBound(to: CChar.self)) } ?? -EINVAL
    }
    return result == -1 ? -errno : result
}
