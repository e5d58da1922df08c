import AgentCore
import Glibc

/// How far a zone's wall clock is ahead of UTC at any time.
///
/// The local zone is asked of the C library. It can use one zone only and environment variables cannot be
/// changed under running threads, so a named zone is read from its TZif file (RFC 8536); beyond its last
/// transition (2037 on Debian) that one's offset stays.
struct TimeZoneOffsets: Sendable, Equatable {
    private static let directory = "/usr/share/zoneinfo"

    /// A clock on the wall.
    struct Wall: Equatable {
        var year: Int64
        var month: Int
        var day: Int
        /// 0 is Sunday.
        var weekday: Int
        var secondOfDay: Int

        var hour: Int { secondOfDay / 3600 }
        var minute: Int { secondOfDay / 60 % 60 }
        var second: Int { secondOfDay % 60 }
    }

    private struct Transition: Equatable {
        var from: Int64
        var offset: Int64
    }

    /// nil is the local zone; else in order of time, the first since ever.
    private let transitions: [Transition]?

    private init(transitions: [Transition]?) { self.transitions = transitions }

    static let local: TimeZoneOffsets = {
        tzset()
        return TimeZoneOffsets(transitions: nil)
    }()

    /// - Parameter name: of the system's database (`Europe/Berlin`), or `UTC` or `Local`.
    init?(_ name: String) {
        switch name {
        case "Local": self = .local
        case "UTC": self.init(transitions: [Transition(from: .min, offset: 0)])
        default:
            let isPlain = name.utf8.allSatisfy { byte in
                (byte | 0x20 >= 0x61 && byte | 0x20 <= 0x7a) || (byte >= 0x30 && byte <= 0x39)
                    || "/_+-".utf8.contains(byte)
            }
            guard isPlain, !name.isEmpty, !name.hasPrefix("/"),
                let bytes = readFile("\(Self.directory)/\(name)"), let transitions = Self.parse(bytes)
            else { return nil }
            self.init(transitions: transitions)
        }
    }

    func offset(_ time: Int64) -> Int64 {
        guard let transitions else {
            var seconds = time_t(time)
            var parts = tm()
            return localtime_r(&seconds, &parts) == nil ? 0 : Int64(parts.tm_gmtoff)
        }
        var (low, high) = (0, transitions.count)
        while low + 1 < high {
            let middle = (low + high) / 2
            if transitions[middle].from <= time { low = middle } else { high = middle }
        }
        return transitions[low].offset
    }

    func wall(_ time: Int64) -> Wall {
        let local = time + offset(time)
        let secondOfDay = ((local % 86_400) + 86_400) % 86_400
        let days = (local - secondOfDay) / 86_400
        let (year, month, day) = Self.civil(days)
        return Wall(
            year: year, month: month, day: day, weekday: Int(((days + 4) % 7 + 7) % 7),
            secondOfDay: Int(secondOfDay))
    }

    /// Goes ahead by so many seconds of the wall, at most to where the next offset begins, and never back.
    func advance(_ time: Int64, by seconds: Int64) -> Int64 {
        let before = offset(time)
        if offset(time + seconds) == before { return time + seconds }
        // The first second with another offset is where the wall is to be looked at again.
        var (same, other) = (time, time + seconds)
        while same + 1 < other {
            let middle = same + (other - same) / 2
            if offset(middle) == before { same = middle } else { other = middle }
        }
        return other
    }

    /// Whether the wall showed this time before, because it was set back within the last three hours.
    func isRepeat(_ time: Int64) -> Bool {
        let now = offset(time)
        let back = offset(time - 3 * 3600) - now
        return back > 0 && offset(time - back) == now + back
    }

    // Days since 1970-01-01 as a date of the Gregorian calendar (Howard Hinnant, chrono-compatible
    // low-level date algorithms).
    private static func civil(_ days: Int64) -> (year: Int64, month: Int, day: Int) {
        let shifted = days + 719_468
        let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        let day = Int(dayOfYear - (153 * shiftedMonth + 2) / 5 + 1)
        let month = Int(shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9)
        return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, day)
    }

    /// The second block of a TZif file, whose times have 64 bits.
    private static func parse(_ bytes: [UInt8]) -> [Transition]? {
        func number(_ at: Int, _ count: Int) -> Int64? {
            guard at >= 0, at + count <= bytes.count else { return nil }
            var value: UInt64 = 0
            for byte in bytes[at..<at + count] { value = value << 8 | UInt64(byte) }
            return count == 4 ? Int64(Int32(truncatingIfNeeded: value)) : Int64(bitPattern: value)
        }
        func counts(_ at: Int) -> [Int]? {
            guard bytes.count >= at + 44, bytes[at..<at + 4].elementsEqual("TZif".utf8) else { return nil }
            let counts = (0..<6).compactMap { number(at + 20 + $0 * 4, 4).map(Int.init) }
            return counts.count == 6 && counts.allSatisfy { 0...100_000 ~= $0 } ? counts : nil
        }
        guard let first = counts(0), bytes[4] >= UInt8(ascii: "2") else { return nil }
        let start = 44 + first[3] * 5 + first[4] * 6 + first[5] + first[2] * 8 + first[1] + first[0]
        guard let second = counts(start) else { return nil }
        let (times, types) = (second[3], second[4])
        let timesAt = start + 44
        let indexAt = timesAt + times * 8
        let typesAt = indexAt + times
        guard types > 0, typesAt + types * 6 <= bytes.count else { return nil }
        func offset(_ type: Int) -> Int64? { type < types ? number(typesAt + type * 6, 4) : nil }
        guard let initial = offset(0) else { return nil }
        var result = [Transition(from: .min, offset: initial)]
        for index in 0..<times {
            guard let time = number(timesAt + index * 8, 8), let offset = offset(Int(bytes[indexAt + index])) else {
                return nil
            }
            result.append(Transition(from: time, offset: offset))
        }
        return result
    }
}
