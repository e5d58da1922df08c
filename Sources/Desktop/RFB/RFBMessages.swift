/// The messages of a client to a VNC server, as bytes (RFC 6143, 7.5; fences and the extended clipboard
/// from the RFB community's protocol description). Integers are big-endian.
enum RFBMessage {
    static func key(_ keysym: UInt32, down: Bool, to bytes: inout [UInt8]) {
        bytes += [4, down ? 1 : 0, 0, 0]
        append(keysym, to: &bytes)
    }

    /// - Parameter buttons: bit 0 is the left one, 1 the middle, 2 the right, 3...6 the wheel up, down,
    ///   left and right.
    static func pointer(_ point: DesktopPoint, buttons: UInt8, to bytes: inout [UInt8]) {
        bytes += [5, buttons]
        for side in [point.x, point.y] {
            let value = UInt16(clamping: side)
            bytes += [UInt8(value >> 8), UInt8(truncatingIfNeeded: value)]
        }
    }

    /// A fence, which the server answers when it has processed everything before it.
    static func fence(_ number: UInt32) -> [UInt8] {
        var bytes: [UInt8] = [248, 0, 0, 0, 0x80, 0, 0, 1, 4]
        append(number, to: &bytes)
        return bytes
    }

    private static let text: UInt32 = 1
    private static let supportedActions: UInt32 = 1 << 24 | 1 << 25 | 1 << 26 | 1 << 27 | 1 << 28

    /// Our clipboard capabilities: text, of which the server shall send 0 bytes unsolicited.
    static let clipboardCapabilities: [UInt8] = clipboard(text | supportedActions, [0, 0, 0, 0])

    /// Announces that we have a text.
    static let clipboardNotify: [UInt8] = clipboard(text | 1 << 27, [])

    /// Requests the text that the server announced.
    static let clipboardRequest: [UInt8] = clipboard(text | 1 << 25, [])

    /// Requests another size of the desktop, which has one screen.
    /// - Parameters:
    ///   - id: that the server gave the screen.
    ///   - flags: the screen's, as the server sent them.
    static func desktopSize(_ size: DesktopSize, screen id: UInt32, flags: UInt32) -> [UInt8] {
        let (width, height) = (UInt16(clamping: size.width), UInt16(clamping: size.height))
        var bytes: [UInt8] = [251, 0]
        append(UInt32(width) << 16 | UInt32(height), to: &bytes)
        bytes += [1, 0]
        // At 0, 0.
        for value in [id, 0, UInt32(width) << 16 | UInt32(height), flags] { append(value, to: &bytes) }
        return bytes
    }

    /// Sends the text.
    static func clipboardProvide(_ string: String) -> [UInt8] {
        // NUL-terminated, with CR LF line ends.
        var utf8: [UInt8] = []
        utf8.reserveCapacity(string.utf8.count + 1)
        for byte in string.utf8 {
            if byte == UInt8(ascii: "\n"), utf8.last != UInt8(ascii: "\r") { utf8.append(UInt8(ascii: "\r")) }
            utf8.append(byte)
        }
        utf8.append(0)
        var plain: [UInt8] = []
        append(UInt32(clamping: utf8.count), to: &plain)
        plain += utf8
        return clipboard(text | 1 << 28, zlibStored(plain))
    }

    private static func clipboard(_ flags: UInt32, _ content: [UInt8]) -> [UInt8] {
        var bytes: [UInt8] = [6, 0, 0, 0]
        // Negative: the extended format.
        append(UInt32(bitPattern: -Int32(clamping: content.count + 4)), to: &bytes)
        append(flags, to: &bytes)
        return bytes + content
    }

    /// A zlib stream (RFC 1950) of stored blocks (RFC 1951): on loopback compression saves nothing.
    static func zlibStored(_ plain: [UInt8]) -> [UInt8] {
        var bytes: [UInt8] = [0x78, 0x01]
        var rest = plain[...]
        repeat {
            let block = rest.prefix(0xffff)
            rest = rest.dropFirst(block.count)
            let length = UInt16(block.count)
            bytes.append(rest.isEmpty ? 1 : 0)
            for value in [length, ~length] { bytes += [UInt8(truncatingIfNeeded: value), UInt8(value >> 8)] }
            bytes += block
        } while !rest.isEmpty
        var a: UInt32 = 1
        var b: UInt32 = 0
        for byte in plain {
            a = (a + UInt32(byte)) % 65_521
            b = (b + a) % 65_521
        }
        append(b << 16 | a, to: &bytes)
        return bytes
    }

    private static func append(_ value: UInt32, to bytes: inout [UInt8]) {
        for shift in [24, 16, 8, 0] as [UInt32] { bytes.append(UInt8(truncatingIfNeeded: value >> shift)) }
    }
}
