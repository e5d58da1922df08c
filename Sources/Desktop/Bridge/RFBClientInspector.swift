/// Follows the events that a viewer sends to a VNC server, without I/O (RFC 6143 section 7.5 and the
/// extensions of the community's rfbproto).
///
/// It never changes or holds back a byte. An unknown message ends the inspection, since its length and so the start
/// of the next message are unknown.
struct RFBClientInspector {
    private enum Phase: Equatable {
        /// `RFB 003.00x\n`.
        case version
        case security
        case clientInit
        case type
        /// The fixed part of a message of this type, and its bytes in all.
        case fixed(UInt8, Int)
        /// Bytes that are not inspected.
        case skip(Int)
        case unknown
    }

    private var phase = Phase.version
    private var held: [UInt8] = []
    /// The client supports extended mouse buttons, so that its pointer events may have 7 bytes.
    private var mayExtendButtons = false

    /// The buttons that are held, bit 0 the left one (RFC 6143 section 7.5.5).
    private(set) var mask: UInt8 = 0
    private(set) var x: UInt16 = 0
    private(set) var y: UInt16 = 0
    /// Events of the pointer and the keyboard so far.
    private(set) var events = 0
    /// How often a button was pressed while none was held.
    private(set) var presses = 0

    /// Whether all messages so far were known.
    var isInspecting: Bool { phase != .unknown }
    /// Whether a message of ours may be inserted here.
    var isAtBoundary: Bool { phase == .type }
    /// Whether a button is held, or may be.
    var mayHoldButtons: Bool { mask != 0 || !isInspecting }

    /// The pointer event that releases the held buttons at the last position; nil when none is held, or no message
    /// may be inserted.
    var releasingEvent: [UInt8]? {
        guard mask != 0, isAtBoundary else { return nil }
        return [5, 0, UInt8(x >> 8), UInt8(x & 0xFF), UInt8(y >> 8), UInt8(y & 0xFF)]
    }

    mutating func consume(_ bytes: UnsafeRawBufferPointer) {
        var rest = bytes[...]
        while !rest.isEmpty {
            switch phase {
            case .unknown: return
            case .skip(let count):
                let taken = min(count, rest.count)
                rest = rest.dropFirst(taken)
                phase = count == taken ? .type : .skip(count - taken)
            case .version: if take(12, &rest) { versionCame() }
            case .security: if take(1, &rest) { securityCame() }
            case .clientInit: if take(1, &rest) { begin(.type) }
            case .type: if take(1, &rest) { typeCame() }
            case .fixed(let type, let count): if take(count, &rest) { fixedCame(type) }
            }
        }
    }

    /// Moves bytes to `held` until it has `count` of them.
    private mutating func take(_ count: Int, _ rest: inout Slice<UnsafeRawBufferPointer>) -> Bool {
        let part = rest.prefix(count - held.count)
        held.append(contentsOf: part)
        rest = rest.dropFirst(part.count)
        return held.count == count
    }

    private mutating func begin(_ phase: Phase) {
        held.removeAll(keepingCapacity: true)
        self.phase = phase == .skip(0) ? .type : phase
    }

    private mutating func versionCame() {
        // Before 3.7 the server chooses the security type, and the client sends nothing.
        let version = String(decoding: held, as: UTF8.self)
        switch version {
        case "RFB 003.003\n", "RFB 003.005\n": begin(.clientInit)
        case "RFB 003.007\n", "RFB 003.008\n": begin(.security)
        default: begin(.unknown)
        }
    }

    private mutating func securityCame() {
        // Other types than None continue with messages of their own.
        begin(held.first == 1 ? .clientInit : .unknown)
    }

    /// Bytes of the fixed part of each message, its type included.
    private mutating func typeCame() {
        let type = held.first ?? 0
        let count: Int? =
            switch type {
            case 0: 20  // SetPixelFormat
            case 2: 4  // SetEncodings
            case 3: 10  // FramebufferUpdateRequest
            case 4: 8  // KeyEvent
            case 5: 6  // PointerEvent
            case 6: 8  // ClientCutText
            case 150: 10  // EnableContinuousUpdates
            case 248: 9  // ClientFence
            case 250: 4  // xvp
            case 251: 8  // SetDesktopSize
            case 255: 4  // QEMU: its second byte says which
            default: nil
            }
        // The fixed part includes the type, so `held` is kept.
        if let count { phase = .fixed(type, count) } else { begin(.unknown) }
    }

    private mutating func fixedCame(_ type: UInt8) {
        switch type {
        case 2:
            // The list of encodings follows.
            let count = Int(word16(2))
            begin(count == 0 ? .type : .fixed(Self.encodingList, count * 4))
        case Self.encodingList:
            // 0xFFFFFEC4: -316, ExtendedMouseButtons.
            mayExtendButtons = stride(from: 0, to: held.count, by: 4).contains { word32($0) == 0xFFFF_FEC4 }
            begin(.type)
        case 4:
            events &+= 1
            begin(.type)
        case 5: pointerCame()
        case 6:
            // A negative length is that of an extended message.
            begin(.skip(Int(Int32(bitPattern: word32(4)).magnitude)))
        case 248: begin(.skip(Int(held[8])))
        case 251: begin(.skip(Int(held[6]) * 16))
        case 255: qemuCame()
        default: begin(.type)
        }
    }

    // No message has this type; it stands for the list in SetEncodings.
    private static let encodingList: UInt8 = 1

    private mutating func pointerCame() {
        let buttons = held[1]
        if mayExtendButtons && buttons & 0x80 != 0 {
            // Another byte follows if the server supports the extension, which only its own messages show.
            mask = buttons
            return begin(.unknown)
        }
        if mask == 0, buttons != 0 { presses &+= 1 }
        (mask, x, y) = (buttons, word16(2), word16(4))
        events &+= 1
        begin(.type)
    }

    private mutating func qemuCame() {
        switch held[1] {
        case 0:
            // An extended key event: 12 bytes in all.
            events &+= 1
            begin(.skip(8))
        case 1: begin(word16(2) == 2 ? .skip(6) : .type)  // audio: only the format has more
        default: begin(.unknown)
        }
    }

    private func word16(_ at: Int) -> UInt16 { UInt16(held[at]) << 8 | UInt16(held[at + 1]) }
    private func word32(_ at: Int) -> UInt32 { UInt32(word16(at)) << 16 | UInt32(word16(at + 2)) }
}
