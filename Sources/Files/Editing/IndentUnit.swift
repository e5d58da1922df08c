/// A lead that consists of tabs alone or of spaces alone.
struct Lead: Equatable {
    enum Blank: UInt8 {
        case tab = 0x09
        case space = 0x20
    }

    /// nil for an empty one.
    let blank: Blank?
    let count: Int

    /// nil when tabs and spaces are mixed.
    init?(_ bytes: ArraySlice<UInt8>) {
        guard bytes.allSatisfy({ $0 == bytes.first }) else { return nil }
        (blank, count) = (bytes.first.flatMap(Blank.init), bytes.count)
    }
}

/// What lines tell of the width of a level of indentation.
struct IndentUnit {
    /// Lines that are indented with them.
    private var tabs = 0
    private var spaces = 0
    /// Of the numbers of spaces; 0 without any.
    private(set) var divisor = 0
    /// The only number of blanks that indented lines have; nil when there are several.
    private(set) var onlyCount: Int?
    /// By how many spaces lines are indented more than the one before: how many lines for 1 to ``widest``.
    private var steps = [Int](repeating: 0, count: Self.widest + 1)
    private var previous: Int?

    /// Spaces of the widest level that is expected.
    static let widest = 8
    /// Steps from which a majority of them counts.
    private static let leastSteps = 3

    /// Lines without text tell nothing, and mixed leads as little.
    mutating func add(_ line: TextLine) {
        guard line.hasText else { return }
        let before = previous
        previous = nil
        guard let lead = Lead(line.lead) else { return }
        if lead.blank != .tab {
            if let before, (1...Self.widest).contains(lead.count - before) { steps[lead.count - before] += 1 }
            previous = lead.count
        }
        guard let blank = lead.blank else { return }
        switch blank {
        case .tab: tabs += 1
        case .space:
            spaces += 1
            divisor = greatestCommonDivisor(divisor, lead.count)
        }
        onlyCount = tabs + spaces == 1 || onlyCount == lead.count ? lead.count : nil
    }

    /// - Parameter lines: their first does not follow the last of those before.
    mutating func add(_ lines: TextLines) {
        previous = nil
        for index in 0..<lines.count { add(lines[index]) }
    }

    /// What most of the indented lines are indented with; nil when none is.
    var blank: Lead.Blank? { tabs == 0 && spaces == 0 ? nil : tabs >= spaces ? .tab : .space }

    /// Spaces of a level, at least 2: the step that most lines make, else the greatest common divisor; nil when that
    /// tells nothing.
    var width: Int? {
        let all = steps.reduce(0, +)
        if all >= Self.leastSteps, let step = steps.indices.first(where: { 2 * steps[$0] > all }), step > 1 {
            return step
        }
        return divisor > 1 ? divisor : nil
    }
}

func greatestCommonDivisor(_ a: Int, _ b: Int) -> Int {
    var (a, b) = (a, b)
    while b != 0 { (a, b) = (b, a % b) }
    return a
}
