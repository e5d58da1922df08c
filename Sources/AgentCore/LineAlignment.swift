import Glibc

/// Which lines of two texts stand for one another, and which are deleted or added.
struct LineAlignment {
    /// Lines that are deleted and those that are added in their place, counted from the beginning of the ranges.
    struct Change: Equatable {
        var old: Range<Int>
        var new: Range<Int>
    }

    /// In order; between two there is at least one line that stays.
    let changes: [Change]

    /// - Parameters:
    ///   - limit: lines of both texts; more are taken for one change.
    ///   - work: steps of the alignment. For n lines that differ it is a shortest one while fewer than about
    ///     2 · work ÷ n of them are deleted or added.
    init(
        _ old: [UInt8], _ oldRange: Range<Int>, _ new: [UInt8], _ newRange: Range<Int>, limit: Int,
        work: Int = 1 << 26
    ) {
        let (oldCount, newCount) = (ByteScan.lines(in: old, oldRange), ByteScan.lines(in: new, newRange))
        guard oldCount + newCount <= limit else {
            changes = [Change(old: 0..<oldCount, new: 0..<newCount)]
            return
        }
        var numbers = Numbers(old, oldRange, oldCount, new, newRange)
        // What is on one side alone can't stay, and what is left is often equal then.
        var keepsOld = [Bool](repeating: false, count: oldCount)
        var keepsNew = [Bool](repeating: false, count: newCount)
        let oldPlaces = numbers.removeSingles(from: \.old, missingFrom: \.new)
        let newPlaces = numbers.removeSingles(from: \.new, missingFrom: \.old)
        var sequence = CommonSequence(numbers.old, numbers.new, work: work)
        sequence.find { first, second in
            keepsOld[Int(oldPlaces[first])] = true
            keepsNew[Int(newPlaces[second])] = true
        }
        changes = Self.changes(keepsOld, keepsNew)
    }

    private static func changes(_ keepsOld: [Bool], _ keepsNew: [Bool]) -> [Change] {
        var changes: [Change] = []
        var (old, new) = (0, 0)
        while old < keepsOld.count || new < keepsNew.count {
            let (oldStart, newStart) = (old, new)
            while old < keepsOld.count, !keepsOld[old] { old += 1 }
            while new < keepsNew.count, !keepsNew[new] { new += 1 }
            if old > oldStart || new > newStart { changes.append(Change(old: oldStart..<old, new: newStart..<new)) }
            (old, new) = (old + 1, new + 1)
        }
        return changes
    }

    /// The lines of two texts as numbers, equal for equal lines.
    private struct Numbers {
        var old: [Int32] = []
        var new: [Int32] = []
        private var count: Int32 = 0

        /// A line in memory that stays as long as the table.
        private struct Line: Hashable {
            let bytes: UnsafeRawBufferPointer

            static func == (a: Self, b: Self) -> Bool {
                guard a.bytes.count == b.bytes.count, let start = a.bytes.baseAddress, let other = b.bytes.baseAddress
                else { return false }
                return memcmp(start, other, a.bytes.count) == 0
            }

            func hash(into hasher: inout Hasher) { hasher.combine(bytes: bytes) }
        }

        init(
            _ oldText: [UInt8], _ oldRange: Range<Int>, _ oldCount: Int, _ newText: [UInt8], _ newRange: Range<Int>
        ) {
            oldText.withUnsafeBytes { oldBytes in
                newText.withUnsafeBytes { newBytes in
                    var table = [Line: Int32](minimumCapacity: oldCount)
                    old = Self.lines(oldText, oldRange).map { range in
                        let line = Line(bytes: UnsafeRawBufferPointer(rebasing: oldBytes[range]))
                        if let number = table[line] { return number }
                        let number = Int32(truncatingIfNeeded: table.count)
                        table[line] = number
                        return number
                    }
                    count = Int32(truncatingIfNeeded: table.count)
                    new = Self.lines(newText, newRange).map { range in
                        table[Line(bytes: UnsafeRawBufferPointer(rebasing: newBytes[range]))] ?? count
                    }
                }
            }
        }

        private static func lines(_ text: [UInt8], _ range: Range<Int>) -> some Sequence<Range<Int>> {
            sequence(state: range.lowerBound) { place in
                guard place < range.upperBound else { return nil }
                let start = place
                place = ByteScan.lineEnd(in: text, from: start)
                return start..<place
            }
        }

        /// Removes the lines of one text that the other doesn't have.
        /// - Returns: where those left were.
        mutating func removeSingles(
            from side: WritableKeyPath<Self, [Int32]>, missingFrom other: KeyPath<Self, [Int32]>
        ) -> [Int32] {
            var isThere = [Bool](repeating: false, count: Int(count) + 1)
            for number in self[keyPath: other] where number < count { isThere[Int(number)] = true }
            let lines = self[keyPath: side]
            var places: [Int32] = []
            for (place, number) in lines.enumerated() where isThere[Int(number)] {
                places.append(Int32(truncatingIfNeeded: place))
            }
            self[keyPath: side] = places.map { lines[Int($0)] }
            return places
        }
    }
}

/// A longest common subsequence of two lists of numbers, in linear space; a shorter one where that would take too
/// much work.
///
/// A part is split where a shortest path from its beginning and one from its end meet. When they haven't met after
/// ``cap`` deletions and additions each, it is split at the farthest point that was reached, so that the work is at
/// most in proportion to `cap` times the length.
struct CommonSequence {
    private let a: [Int32]
    private let b: [Int32]
    private let cap: Int
    /// How far (index in a) paths from the beginning, and from the end, got on each diagonal.
    private var forward: [Int]
    private var backward: [Int]

    /// The least cap: changes of fewer than that are always minimal.
    private static let leastCap = 64

    init(_ a: [Int32], _ b: [Int32], work: Int) {
        (self.a, self.b) = (a, b)
        let length = a.count + b.count
        cap = min(max(Self.leastCap, work / max(1, length)), length / 2 + 1)
        forward = [Int](repeating: 0, count: 2 * cap + 3)
        backward = forward
    }

    private struct Part {
        var a: Range<Int>
        var b: Range<Int>
    }

    /// Calls the body with the indices of each pair, in no particular order.
    mutating func find(_ body: (Int, Int) -> Void) {
        var parts = [Part(a: 0..<a.count, b: 0..<b.count)]
        while let part = parts.popLast() {
            var (aStart, aEnd) = (part.a.lowerBound, part.a.upperBound)
            var (bStart, bEnd) = (part.b.lowerBound, part.b.upperBound)
            while aStart < aEnd, bStart < bEnd, a[aStart] == b[bStart] {
                body(aStart, bStart)
                (aStart, bStart) = (aStart + 1, bStart + 1)
            }
            while aStart < aEnd, bStart < bEnd, a[aEnd - 1] == b[bEnd - 1] {
                (aEnd, bEnd) = (aEnd - 1, bEnd - 1)
                body(aEnd, bEnd)
            }
            guard aStart < aEnd, bStart < bEnd else { continue }
            let (aSplit, bSplit) = split(Part(a: aStart..<aEnd, b: bStart..<bEnd))
            parts.append(Part(a: aStart..<aSplit, b: bStart..<bSplit))
            parts.append(Part(a: aSplit..<aEnd, b: bSplit..<bEnd))
        }
    }

    /// A point of a shortest path, neither its beginning nor its end.
    /// - Parameter part: both sides have elements, and differ in their first and in their last.
    private mutating func split(_ part: Part) -> (Int, Int) {
        // The diagonal d of the point (x, y), both counted from the part's beginning, is x - y. Backward paths
        // count from the diagonal of the end.
        let (n, m) = (part.a.count, part.b.count)
        let delta = n - m
        let middle = cap + 1
        (forward[middle], backward[middle]) = (0, n)
        for steps in 1...cap {
            for diagonal in stride(from: -steps, through: steps, by: 2) {
                let x = advance(part, steps, diagonal)
                forward[middle + diagonal] = x
                let opposite = diagonal - delta
                // Those of the backward paths with one step fewer.
                if delta % 2 != 0, abs(opposite) <= steps - 1, x >= 0, backward[middle + opposite] <= x {
                    return (part.a.lowerBound + x, part.b.lowerBound + x - diagonal)
                }
            }
            for diagonal in stride(from: -steps, through: steps, by: 2) {
                let x = retreat(part, steps, diagonal, delta)
                backward[middle + diagonal] = x
                let opposite = diagonal + delta
                if delta % 2 == 0, abs(opposite) <= steps, x <= n, forward[middle + opposite] >= x {
                    return (part.a.lowerBound + x, part.b.lowerBound + x - opposite)
                }
            }
        }
        return farthest(part, delta)
    }

    /// The farthest point of forward paths on a diagonal; -1 when there is none within the part.
    private func advance(_ part: Part, _ steps: Int, _ diagonal: Int) -> Int {
        let (n, m, middle) = (part.a.count, part.b.count, cap + 1)
        var x = -1
        if diagonal > -steps {
            let before = forward[middle + diagonal - 1]
            if before >= 0, before < n { x = before + 1 }
        }
        if diagonal < steps {
            let above = forward[middle + diagonal + 1]
            if above > x, above - diagonal <= m { x = above }
        }
        guard x >= 0 else { return -1 }
        let shift = part.b.lowerBound - diagonal
        while x < n, x - diagonal < m, a[part.a.lowerBound + x] == b[shift + x] { x += 1 }
        return x
    }

    /// The farthest point of backward paths on a diagonal; beyond the part's end when there is none within it.
    private func retreat(_ part: Part, _ steps: Int, _ diagonal: Int, _ delta: Int) -> Int {
        let (n, middle) = (part.a.count, cap + 1)
        var x = n + 1
        if diagonal < steps {
            let behind = backward[middle + diagonal + 1]
            if behind <= n, behind > 0 { x = behind - 1 }
        }
        if diagonal > -steps {
            let below = backward[middle + diagonal - 1]
            if below < x, below - diagonal - delta >= 0 { x = below }
        }
        guard x <= n else { return n + 1 }
        let shift = part.b.lowerBound - diagonal - delta
        while x > 0, x - diagonal - delta > 0, a[part.a.lowerBound + x - 1] == b[shift + x - 1] { x -= 1 }
        return x
    }

    /// Where the most of both sides lies behind a path from the beginning, or before one from the end.
    private func farthest(_ part: Part, _ delta: Int) -> (Int, Int) {
        let (n, m, middle) = (part.a.count, part.b.count, cap + 1)
        var best = (progress: -1, x: 0, y: 0)
        for diagonal in stride(from: -cap, through: cap, by: 2) {
            let ahead = forward[middle + diagonal]
            if ahead >= 0, 2 * ahead - diagonal > best.progress {
                best = (2 * ahead - diagonal, ahead, ahead - diagonal)
            }
            let back = backward[middle + diagonal]
            let progress = n + m - (2 * back - diagonal - delta)
            if back <= n, progress > best.progress { best = (progress, back, back - diagonal - delta) }
        }
        return (part.a.lowerBound + best.x, part.b.lowerBound + best.y)
    }
}
