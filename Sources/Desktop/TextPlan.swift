/// A key that is pressed and released.
struct KeyStroke: Sendable, Equatable {
    var keysym: UInt32
    /// Whether Shift is held meanwhile.
    var shift: Bool
}

/// How a text is typed: as keys where the keyboard has them or has a spare keycode for them, and through the
/// clipboard otherwise.
struct TextPlan: Sendable, Equatable {
    enum Step: Sendable, Equatable {
        case keys([KeyStroke])
        /// At most ``DesktopLimits/pasteBytes`` of UTF-8, no line end and no tab in it.
        case paste(String)
    }

    /// In order; together they are the text, every character once.
    private(set) var steps: [Step] = []
    /// Keysyms that take a spare keycode.
    private(set) var learnt: Set<UInt32> = []

    /// - Parameters:
    ///   - known: keysyms outside the layout that have a keycode already.
    ///   - spare: how many more keycodes are free.
    init(_ text: String, known: Set<UInt32> = [], spare: Int = DesktopLimits.spareKeycodes) {
        var keys = Set<UInt32>()
        var line: [Unicode.Scalar] = []
        var previous: Unicode.Scalar?
        // The first new characters get the spare keycodes.
        for scalar in text.unicodeScalars where !Self.isOnLayout(scalar) {
            guard let keysym = Keysym.of(scalar) else { continue }
            if known.contains(keysym) {
                keys.insert(keysym)
            } else if learnt.count < spare {
                learnt.insert(keysym)
            }
        }
        keys.formUnion(learnt)
        for scalar in text.unicodeScalars {
            // CR LF is one line end.
            if scalar == "\n", previous == "\r" {
                previous = scalar
                continue
            }
            previous = scalar
            if scalar.value >= 0x20 && scalar.value != 0x7f {
                line.append(scalar)
                continue
            }
            add(line, keys)
            line.removeAll(keepingCapacity: true)
            if let keysym = Keysym.of(scalar) { add(KeyStroke(keysym: keysym, shift: false)) }
        }
        add(line, keys)
    }

    /// The layout of an X server without a configured keyboard (us); other layouts have these characters, too.
    static func isOnLayout(_ scalar: Unicode.Scalar) -> Bool { scalar.value <= 0x7f }

    private mutating func add(_ line: [Unicode.Scalar], _ keys: Set<UInt32>) {
        func isKey(_ scalar: Unicode.Scalar) -> Bool {
            Self.isOnLayout(scalar) || Keysym.of(scalar).map(keys.contains) ?? false
        }
        // From the first to the last character without a key, so that a sentence is pasted at once.
        let first = line.firstIndex { !isKey($0) } ?? line.endIndex
        let last = line.lastIndex { !isKey($0) } ?? first
        for scalar in line[..<first] { add(Self.stroke(scalar)) }
        guard first < line.endIndex else { return }
        var piece = String.UnicodeScalarView()
        var bytes = 0
        for scalar in line[first...last] {
            let width = UTF8.width(scalar)
            if bytes + width > DesktopLimits.pasteBytes {
                steps.append(.paste(String(piece)))
                piece = .init()
                bytes = 0
            }
            piece.append(scalar)
            bytes += width
        }
        steps.append(.paste(String(piece)))
        for scalar in line[(last + 1)...] { add(Self.stroke(scalar)) }
    }

    private mutating func add(_ stroke: KeyStroke?) {
        guard let stroke else { return }
        if case .keys(var strokes) = steps.last {
            // Removed first, so that the array is not copied when it grows.
            steps.removeLast()
            strokes.append(stroke)
            steps.append(.keys(strokes))
        } else {
            steps.append(.keys([stroke]))
        }
    }

    private static func stroke(_ scalar: Unicode.Scalar) -> KeyStroke? {
        // The server presses Shift for symbols itself; a bare uppercase letter would leave Caps Lock on.
        Keysym.of(scalar).map { KeyStroke(keysym: $0, shift: Keysym.isUppercase(scalar)) }
    }
}
