import AgentCore

/// The six fields of a schedule, each a set of bits.
struct CronFields: Sendable, Equatable {
    struct Invalid: Error {
        var reason: String
    }

    private struct Range {
        var name: String
        var bounds: ClosedRange<Int>
        var names: [String] = []
    }

    private static let ranges = [
        Range(name: "second", bounds: 0...59), Range(name: "minute", bounds: 0...59),
        Range(name: "hour", bounds: 0...23), Range(name: "day of the month", bounds: 1...31),
        Range(
            name: "month", bounds: 1...12,
            names: ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]),
        Range(name: "day of the week", bounds: 0...7, names: ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]),
    ]
    /// Days of each month in a leap year.
    private static let longest = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]

    var seconds: UInt64
    var minutes: UInt64
    var hours: UInt64
    var days: UInt64
    var months: UInt64
    /// Sunday is bit 0.
    var weekdays: UInt64
    /// Both day fields are restricted: either will do.
    var eitherDay: Bool
    /// The hour is `*`, so that an hour which the clock passes twice is gone through twice.
    var goesOnThroughRepeats: Bool

    init(_ words: [String]) throws(Invalid) {
        var sets: [UInt64] = []
        for (word, range) in zip(words, Self.ranges) { sets.append(try Self.parse(word, range)) }
        guard sets.count == 6 else { throw Invalid(reason: "it has \(sets.count) fields instead of 6") }
        (seconds, minutes, hours, days, months) = (sets[0], sets[1], sets[2], sets[3], sets[4])
        weekdays = (sets[5] | sets[5] >> 7) & 0x7f
        let isFree = words.map { $0.hasPrefix("*") || $0.hasPrefix("?") }
        eitherDay = !isFree[3] && !isFree[5]
        goesOnThroughRepeats = isFree[2]
        guard canHappen else {
            throw Invalid(reason: "none of its months has one of its days, so it would never run")
        }
    }

    private var canHappen: Bool {
        if eitherDay { return true }
        return (1...12).contains { month in
            months & 1 << month != 0 && days & ((1 << (Self.longest[month - 1] + 1)) - 1) != 0
        }
    }

    private static func parse(_ word: String, _ range: Range) throws(Invalid) -> UInt64 {
        var set: UInt64 = 0
        for part in word.split(separator: ",", omittingEmptySubsequences: false) {
            let pieces = part.split(separator: "/", omittingEmptySubsequences: false)
            guard let body = pieces.first, pieces.count <= 2 else { throw invalid(part, range) }
            var step = 1
            if pieces.count == 2 {
                guard let value = number(pieces[1]), value > 0 else { throw invalid(part, range) }
                step = value
            }
            let ends = try bounds(of: body, hasStep: pieces.count == 2, range, part)
            for value in stride(from: ends.lowerBound, through: ends.upperBound, by: step) { set |= 1 << value }
        }
        return set
    }

    private static func bounds(
        of body: Substring, hasStep: Bool, _ range: Range, _ part: Substring
    ) throws(Invalid) -> ClosedRange<Int> {
        // 7 is another name for Sunday; `*` has it once.
        let all = range.bounds.lowerBound...min(range.bounds.upperBound, range.bounds.upperBound == 7 ? 6 : 59)
        if body == "*" || body == "?" { return all }
        let ends = body.split(separator: "-", omittingEmptySubsequences: false)
        guard ends.count <= 2, let low = ends.first.flatMap({ value($0, range) }) else { throw invalid(part, range) }
        guard ends.count == 2 else { return hasStep ? low...max(low, all.upperBound) : low...low }
        guard let high = value(ends[1], range), low <= high else { throw invalid(part, range) }
        return low...high
    }

    private static func value(_ text: Substring, _ range: Range) -> Int? {
        if let index = range.names.firstIndex(of: text.uppercased()) { return index + range.bounds.lowerBound }
        return number(text).flatMap { range.bounds.contains($0) ? $0 : nil }
    }

    /// Digits only: `Int` would take signs.
    private static func number(_ text: Substring) -> Int? {
        guard !text.isEmpty, text.utf8.count <= 4, text.utf8.allSatisfy({ $0 >= 0x30 && $0 <= 0x39 }) else {
            return nil
        }
        return Int(text)
    }

    private static func invalid(_ part: Substring, _ range: Range) -> Invalid {
        Invalid(
            reason: "\(goQuoted(String(part))) is no \(range.name) of "
                + "\(range.bounds.lowerBound) to \(range.bounds.upperBound)")
    }

    /// Whether a day of the calendar fits.
    func fits(month: Int, day: Int, weekday: Int) -> Bool {
        guard months & 1 << month != 0 else { return false }
        let (byDay, byWeekday) = (days & 1 << day != 0, weekdays & 1 << weekday != 0)
        return eitherDay ? byDay || byWeekday : byDay && byWeekday
    }

    /// How far ahead is looked: 29 February comes after 8 years at most, and on a given weekday after 40.
    private static let horizonSeconds: Int64 = 41 * 366 * 86_400

    /// The first matching second after `start`. Goes ahead in jumps that never pass over a match.
    func next(after start: Int64, zone: TimeZoneOffsets) -> Int64? {
        var time = start + 1
        while time - start < Self.horizonSeconds {
            let wall = zone.wall(time)
            if !fits(month: wall.month, day: wall.day, weekday: wall.weekday) {
                time = zone.advance(time, by: 86_400 - Int64(wall.secondOfDay))
            } else if hours & 1 << wall.hour == 0 {
                time = zone.advance(time, by: Int64(3600 - wall.secondOfDay % 3600))
            } else if minutes & 1 << wall.minute == 0 || !goesOnThroughRepeats && zone.isRepeat(time) {
                time += Int64(60 - wall.second)
            } else if case let left = seconds >> wall.second, left != 0 {
                return time + Int64(left.trailingZeroBitCount)
            } else {
                time += Int64(60 - wall.second)
            }
        }
        return nil
    }
}
