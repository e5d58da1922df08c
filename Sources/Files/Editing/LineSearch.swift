import AgentCore

/// The places of a text in another, from the left, without overlap.
struct Occurrences: Sequence, IteratorProtocol {
    let needle: [UInt8]
    let text: [UInt8]
    /// How many bytes at the end of one may be the beginning of the next.
    var shared = 0
    private var start = 0

    /// - Parameter needle: longer than `shared`.
    init(of needle: [UInt8], in text: [UInt8], shared: Int = 0) {
        (self.needle, self.text, self.shared) = (needle, text, shared)
    }

    mutating func next() -> Int? {
        guard let place = ByteScan.first(needle, in: text, from: start) else { return nil }
        start = place + needle.count - shared
        return place
    }

    /// How many there are.
    var count: Int { reduce(into: 0) { count, _ in count += 1 } }
}

/// Looks for whole lines without regard to what is at their ends.
///
/// Both texts are brought into a form in which lines that match are equal, each with a newline before and behind it.
/// Then the places of one in the other are whole lines, found in linear time and without a table of lines.
struct LineSearch: Sequence, IteratorProtocol {
    private var places: Occurrences
    private var line = 0
    /// Up to where the lines are counted.
    private var counted = 0

    /// - Parameters:
    ///   - start: where the text's first line begins.
    ///   - pass: not `.exact`.
    init(for search: [UInt8], in text: [UInt8], from start: Int = 0, _ pass: EditMatch.Pass) {
        places = Occurrences(of: Self.form(search, 0, pass), in: Self.form(text, start, pass), shared: 1)
    }

    /// How many matches there are, without overlap.
    var count: Int { places.count }

    /// The 0-based line where the next match begins.
    mutating func next() -> Int? {
        guard let place = places.next() else { return nil }
        line += ByteScan.count(newline, in: places.text, counted..<place)
        counted = place
        return line
    }

    private static func form(_ text: [UInt8], _ start: Int, _ pass: EditMatch.Pass) -> [UInt8] {
        // A line gets shorter or, at the end of the text, longer by its newline.
        [UInt8](unsafeUninitializedCapacity: text.count + 2) { out, count in
            out[0] = newline
            count = 1
            text.withUnsafeBufferPointer { text in
                var start = start
                while start < text.count {
                    let end = ByteScan.lineEnd(in: text, from: start)
                    let line = text[start..<end]
                    let kept =
                        pass == .indent ? Blanks.trimmed(line) : Blanks.withoutTrail(TextLine.withoutEnding(line))
                    count = out[count...].initialize(fromContentsOf: kept)
                    out[count] = newline
                    count += 1
                    start = end
                }
            }
        }
    }
}

/// Goes through the lines of a text, forwards.
struct LineCursor {
    let text: [UInt8]
    private(set) var line = 0
    /// Where the line begins.
    private(set) var place: Int

    /// - Parameter start: where the first line begins.
    init(_ text: [UInt8], from start: Int) { (self.text, place) = (text, start) }

    /// - Parameter line: not before the present one.
    mutating func advance(to line: Int) {
        while self.line < line {
            place = ByteScan.lineEnd(in: text, from: place)
            self.line += 1
        }
    }
}
