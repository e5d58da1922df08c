/// A pattern as the places that one can be at while a path is read. Each unit of the path costs at most one look at
/// each place, whatever the pattern and the path: nothing is tried again.
struct GlobAutomaton: Sendable {
    /// What one place takes.
    enum Step: Sendable {
        case unit(GlobUnit)
        /// All but a slash.
        case any
        /// Slashes too.
        case anything
        /// Never a slash.
        case oneOf(GlobClass)
    }

    indirect enum Node: Sendable {
        case step(Step)
        /// None or more in a row.
        case repeated(Step)
        /// One of these.
        case either([[Node]])
    }

    /// A set of places; the last place is the end of the pattern.
    struct Places: Sendable, Equatable {
        // Most patterns have fewer than 64 places and need no array.
        fileprivate var first: UInt64 = 0
        fileprivate var rest: [UInt64] = []

        fileprivate init(words: Int) { if words > 1 { rest = Array(repeating: 0, count: words - 1) } }

        var isEmpty: Bool { first == 0 && rest.allSatisfy { $0 == 0 } }

        fileprivate mutating func insert(_ place: Int) {
            if place < 64 { first |= 1 << UInt64(place) } else { rest[place / 64 - 1] |= 1 << UInt64(place % 64) }
        }

        fileprivate func contains(_ place: Int) -> Bool {
            (place < 64 ? first : rest[place / 64 - 1]) & 1 << UInt64(place % 64) != 0
        }

        fileprivate mutating func formUnion(_ other: Places) {
            first |= other.first
            for index in rest.indices { rest[index] |= other.rest[index] }
        }
    }

    private var steps: [Step] = []
    /// Where one can be after each place has taken a unit.
    private var follow: [Places] = []
    private(set) var start: Places
    private let byCharacter: Bool
    /// How many places there are but for the end.
    var count: Int { steps.count }
    private var end: Int { steps.count }
    private var words: Int { start.rest.count + 1 }

    /// - Parameter byCharacter: whether the path is read by characters, else by bytes.
    init(_ nodes: [Node], byCharacter: Bool) {
        self.byCharacter = byCharacter
        let count = Self.count(nodes)
        start = Places(words: count / 64 + 1)
        steps.reserveCapacity(count)
        follow = Array(repeating: start, count: count)
        var entries = Entries(places: [], none: true)
        add(nodes, &entries)
        finish(entries)
    }

    /// The places after the bytes were read too.
    func advance(_ places: Places, _ bytes: UnsafeRawBufferPointer) -> Places {
        var places = places
        var index = 0
        while index < bytes.count, !places.isEmpty {
            let unit: GlobUnit
            if byCharacter {
                unit = GlobUnit.next(bytes, &index)
            } else {
                unit = GlobUnit(byte: bytes[index], isCharacter: true)
                index += 1
            }
            places = advance(places, unit)
        }
        return places
    }

    func advance(_ places: Places, _ unit: GlobUnit) -> Places {
        guard words > 1 else {
            var (result, left) = (Places(words: 1), places.first)
            while left != 0 {
                let place = left.trailingZeroBitCount
                left &= left - 1
                if place < end, takes(place, unit) { result.first |= follow[place].first }
            }
            return result
        }
        var result = Places(words: words)
        for word in 0..<words {
            var left = word == 0 ? places.first : places.rest[word - 1]
            while left != 0 {
                let place = word * 64 + left.trailingZeroBitCount
                left &= left - 1
                if place < end, takes(place, unit) { result.formUnion(follow[place]) }
            }
        }
        return result
    }

    /// Whether what was read so far matches the whole pattern.
    func isMatch(_ places: Places) -> Bool { places.contains(end) }

    /// Whether more could follow that matches.
    func canGoOn(_ places: Places) -> Bool {
        var others = Places(words: words)
        others.insert(end)
        return !places.isEmpty && places != others
    }

    @inline(__always)
    private func takes(_ place: Int, _ unit: GlobUnit) -> Bool {
        switch steps[place] {
        case .unit(let own): own == unit
        case .any: unit != "/"
        case .anything: true
        case .oneOf(let units): unit != "/" && units.contains(unit)
        }
    }

    // MARK: - Making

    /// The places from which the next node is entered.
    private struct Entries {
        var places: Set<Int>
        /// Whether the pattern's beginning is one of them.
        var none: Bool
    }

    private static func count(_ nodes: [Node]) -> Int {
        nodes.reduce(0) { sum, node in
            if case .either(let choices) = node { sum + choices.reduce(0) { $0 + count($1) } } else { sum + 1 }
        }
    }

    /// Adds the nodes behind the entries; afterwards the entries are those of what comes next.
    private mutating func add(_ nodes: [Node], _ entries: inout Entries) {
        for node in nodes {
            switch node {
            case .step(let step): entries = Entries(places: [add(step, entries)], none: false)
            case .repeated(let step):
                let place = add(step, entries)
                follow[place].insert(place)
                entries.places.insert(place)
            case .either(let choices):
                var all = Entries(places: [], none: false)
                for choice in choices {
                    var own = entries
                    add(choice, &own)
                    all.places.formUnion(own.places)
                    all.none = all.none || own.none
                }
                entries = all
            }
        }
    }

    private mutating func add(_ step: Step, _ entries: Entries) -> Int {
        let place = steps.count
        steps.append(step)
        link(place, entries)
        return place
    }

    private mutating func finish(_ entries: Entries) { link(end, entries) }

    private mutating func link(_ place: Int, _ entries: Entries) {
        for entry in entries.places { follow[entry].insert(place) }
        if entries.none { start.insert(place) }
    }
}
