import Glibc

/// The terminal that a person types at.
final class Terminal {
    private let descriptor: CInt
    private let original: termios
    private(set) var isRaw = false

    /// - Returns: nil when the descriptor is no terminal.
    init?(_ descriptor: CInt) {
        var settings = termios()
        guard tcgetattr(descriptor, &settings) == 0 else { return nil }
        (self.descriptor, original) = (descriptor, settings)
    }

    deinit { restore() }

    /// Every key becomes bytes, Ctrl-C too, and nothing is echoed.
    func makeRaw() {
        var settings = original
        cfmakeraw(&settings)
        isRaw = true
        tcsetattr(descriptor, TCSADRAIN, &settings)
    }

    /// Back to what it was.
    func restore() {
        guard isRaw else { return }
        isRaw = false
        var settings = original
        tcsetattr(descriptor, TCSADRAIN, &settings)
    }

    /// Rows and columns of the first of these that is a terminal which knows its width.
    static func size(_ descriptors: CInt...) -> ProcessState.Size? {
        for descriptor in descriptors {
            var size = winsize()
            if ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 {
                return .init(rows: size.ws_row > 0 ? Int(size.ws_row) : 24, cols: Int(size.ws_col))
            }
        }
        return nil
    }
}

/// Which of a screen's modes a program has turned on, to turn them off when we leave it before it has ended.
struct ScreenModes {
    /// Cursor keys, the three kinds of alternate screen, mouse reports, focus reports, bracketed paste.
    private static let undone: Set<Int> = [1, 47, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1047, 1049, 2004]
    private static let cursor = 25

    private var on: Set<Int> = []
    private var isCursorHidden = false
    /// What came of a sequence `ESC [ ? NUMBER ; … h`.
    private var sequence: [UInt8] = []

    mutating func look(at bytes: [UInt8]) {
        for byte in bytes {
            if byte == 0x1B {
                sequence = [byte]
            } else if !sequence.isEmpty {
                take(byte)
            }
        }
    }

    private mutating func take(_ byte: UInt8) {
        let start: [UInt8] = [0x1B, UInt8(ascii: "["), UInt8(ascii: "?")]
        let isNumber = byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9") || byte == UInt8(ascii: ";")
        if sequence.count < start.count ? byte == start[sequence.count] : isNumber && sequence.count < 64 {
            sequence.append(byte)
            return
        }
        defer { sequence = [] }
        guard sequence.count > start.count, [UInt8(ascii: "h"), UInt8(ascii: "l")].contains(byte) else { return }
        let turnsOn = byte == UInt8(ascii: "h")
        for number in String(decoding: sequence.dropFirst(start.count), as: UTF8.self).split(separator: ";") {
            guard let mode = Int(number) else { continue }
            if mode == Self.cursor {
                isCursorHidden = !turnsOn
            } else if Self.undone.contains(mode) {
                if turnsOn { on.insert(mode) } else { on.remove(mode) }
            }
        }
    }

    /// What turns them off, colours too.
    var undoing: String {
        let modes = on.sorted { a, b in a < b }.map { "\u{1B}[?\($0)l" }.joined()
        return "\u{1B}[0m\(isCursorHidden ? "\u{1B}[?25h" : "")\(modes)"
    }
}

/// Finds Ctrl-P Ctrl-Q in what is typed.
struct DetachKeys {
    private static let first: UInt8 = 0x10
    private static let second: UInt8 = 0x11
    private var sawFirst = false

    /// - Returns: what to pass on, and whether both keys came. A Ctrl-P is held back until the next key.
    mutating func filter(_ typed: [UInt8]) -> (bytes: [UInt8], detach: Bool) {
        var bytes: [UInt8] = []
        for byte in typed {
            if sawFirst, byte == Self.second { return (bytes, true) }
            if sawFirst { bytes.append(Self.first) }
            sawFirst = byte == Self.first
            if !sawFirst { bytes.append(byte) }
        }
        return (bytes, false)
    }
}
