import AgentCore

/// What may be wrong with a search that isn't in the text.
struct EditHints {
    private static let hints = 3
    private static let lines = 5

    private let search: [UInt8]
    private let replace: [UInt8]
    private let content: [UInt8]

    init(_ search: [UInt8], _ replace: [UInt8], in content: [UInt8]) {
        (self.search, self.replace, self.content) = (search, replace, content)
    }

    /// One or more sentences without the last full stop; nil when nothing is known.
    var text: String? { miscount ?? inversion }

    // MARK: Swapped

    private var inversion: String? {
        guard !replace.isEmpty else { return nil }
        var lines = NumberList()
        var line = 1
        var counted = 0
        for place in Occurrences(of: replace, in: content) {
            line += ByteScan.count(newline, in: content, counted..<place)
            counted = place
            lines.add(line)
        }
        for pass in [EditMatch.Pass.trailing, .indent] where lines.count == 0 {
            for line in LineSearch(for: replace, in: content, pass) { lines.add(line + 1) }
        }
        guard lines.count > 0 else { return nil }
        return "Did you swap \"search\" and \"replace\"? Your replace string appears at line \(lines.text)"
    }

    /// The first numbers of a list, and how many there are.
    private struct NumberList {
        private(set) var count = 0
        private var shown: [Int] = []
        private var last: Int?

        mutating func add(_ number: Int) {
            guard number != last else { return }
            last = number
            count += 1
            if shown.count < EditHints.lines { shown.append(number) }
        }

        var text: String {
            shown.map(String.init).joined(separator: ", ")
                + (count > shown.count ? " and \(count - shown.count) more" : "")
        }
    }

    // MARK: Miscounted

    /// A character of a search line of which file lines have another number.
    private struct Miscount {
        let character: UInt32
        /// In the search line.
        let count: Int
        private var places: [(count: Int, line: Int)] = []
        private var more = 0

        init(character: UInt32, count: Int) { (self.character, self.count) = (character, count) }

        /// - Parameters:
        ///   - difference: how many more the search line has.
        ///   - line: of the file.
        mutating func add(_ difference: Int, line: Int) {
            let found = count - difference
            // Lines that have one and none are different lines rather than miscounted ones.
            guard max(count, found) >= 2 else { return }
            if places.count < EditHints.lines { places.append((found, line)) } else { more += 1 }
        }

        var isEmpty: Bool { places.isEmpty }

        var text: String {
            let scalar = Unicode.Scalar(character) ?? "\u{FFFD}"
            let digits = String(character, radix: 16, uppercase: true)
            let code = String(repeating: "0", count: max(0, 4 - digits.count)) + digits
            let shown = places.map { "\($0.count) at line \($0.line)" }.joined(separator: ", ")
            return "Your search has \(count) \(goQuoted(String(scalar))) (U+\(code)); the file has \(shown)"
                + (more > 0 ? " and \(more) more" : "")
        }
    }

    /// Looks at a bounded part of the search and only at files of a bounded size, as every line is compared with
    /// every line.
    private var miscount: String? {
        guard content.count <= FilesLimits.editHintBytes else { return nil }
        var wanted: [SearchLine] = []
        forEachLineWithText(search) { line, _ in
            guard wanted.count < FilesLimits.editHintLines else { return }
            let letters = LetterCount(line)
            if !wanted.contains(where: { $0.letters == letters }) { wanted.append(SearchLine(line, letters)) }
        }
        forEachLineWithText(content) { line, number in
            let letters = LetterCount(line)
            for index in wanted.indices { wanted[index].compare(letters, line: number) }
        }
        let all = wanted.flatMap(\.miscounts)
        guard !all.isEmpty else { return nil }
        return all.prefix(Self.hints).map(\.text).joined(separator: ". ")
            + (all.count > Self.hints ? ". and \(all.count - Self.hints) more" : "")
    }

    private struct SearchLine {
        private let text: ArraySlice<UInt8>
        let letters: LetterCount
        private(set) var miscounts: [Miscount] = []

        init(_ text: ArraySlice<UInt8>, _ letters: LetterCount) { (self.text, self.letters) = (text, letters) }

        /// - Parameter other: of a line of the file.
        mutating func compare(_ other: LetterCount, line: Int) {
            guard let (character, more) = letters.onlyDifference(from: other) else { return }
            if let place = miscounts.firstIndex(where: { $0.character == character }) {
                miscounts[place].add(more, line: line)
            } else {
                let letters = String(decoding: text, as: UTF8.self).unicodeScalars
                var miscount = Miscount(character: character, count: letters.count { $0.value == character })
                miscount.add(more, line: line)
                if !miscount.isEmpty { miscounts.append(miscount) }
            }
        }
    }

    /// Calls the body with each line that isn't only white space, without its ending, and its 1-based number.
    private func forEachLineWithText(_ text: [UInt8], _ body: (ArraySlice<UInt8>, Int) -> Void) {
        var (start, number) = (0, 0)
        while start < text.count {
            let end = ByteScan.lineEnd(in: text, from: start)
            number += 1
            let line = text[start..<end]
            if !Blanks.trimmed(line).isEmpty { body(TextLine.withoutEnding(line), number) }
            start = end
        }
    }
}

/// How often each character (Unicode scalar) is in a line, as far as it takes to compare two lines in a moment.
private struct LetterCount: Equatable {
    private let count: Int
    /// Of the characters' numbers. If two lines differ in one character alone, the difference is a multiple of it.
    private let sum: UInt64
    /// Of the hashes of the characters: equal for lines with the same characters and, as no client knows the seed, for
    /// no others.
    private let hash: UInt64

    private static let seed = UInt64.random(in: .min ... .max)

    init(_ line: ArraySlice<UInt8>) {
        var (count, sum, hash) = (0, UInt64(0), UInt64(0))
        func add(_ letter: UInt32) {
            count += 1
            sum &+= UInt64(letter)
            hash &+= Self.hash(letter)
        }
        if line.allSatisfy({ $0 < 0x80 }) {
            for byte in line { add(UInt32(byte)) }
        } else {
            // What is no UTF-8 counts as U+FFFD.
            for scalar in String(decoding: line, as: UTF8.self).unicodeScalars { add(scalar.value) }
        }
        (self.count, self.sum, self.hash) = (count, sum, hash)
    }

    /// The only character of which two lines have different numbers, and how many more this one has; nil when there
    /// are more such characters, or none.
    func onlyDifference(from other: Self) -> (character: UInt32, more: Int)? {
        let more = Int64(count - other.count)
        let distance = Int64(bitPattern: sum &- other.sum)
        guard more != 0, let letter = UInt32(exactly: distance / more),
            hash &- other.hash == UInt64(bitPattern: more) &* Self.hash(letter)
        else { return nil }
        return (letter, Int(more))
    }

    // The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
    private static func hash(_ letter: UInt32) -> UInt64 {
        var z = seed &+ UInt64(letter) &* 0x9e37_79b9_7f4a_7c15
        z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
        return z ^ (z >> 31)
    }
}
