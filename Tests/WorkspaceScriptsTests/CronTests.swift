import AgentTestSupport
import Testing

@testable import WorkspaceScripts

@Suite struct CronTests {
    /// Seconds since 1970 of a UTC date.
    private func utc(_ year: Int, _ month: Int, _ day: Int, _ hour: Int = 0, _ minute: Int = 0, _ second: Int = 0)
        -> Int64
    {
        var days = 0
        func isLeap(_ year: Int) -> Bool { year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) }
        for year in 1970..<year { days += isLeap(year) ? 366 : 365 }
        let months = [31, isLeap(year) ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        days += months[..<(month - 1)].reduce(0, +) + day - 1
        return Int64(days * 86_400 + hour * 3600 + minute * 60 + second)
    }

    private func next(_ text: String, _ after: Int64) throws -> Int64? { try CronSchedule(text).next(after: after) }

    @Test func fieldsFindTheirTimes() throws {
        let start = utc(2026, 3, 14, 15, 9, 26)  // a Saturday
        let expected: [(String, Int64)] = [
            ("* * * * *", utc(2026, 3, 14, 15, 10)), ("* * * * * *", start + 1),
            ("*/5 * * * *", utc(2026, 3, 14, 15, 10)),
            ("30 9 15 * * *", utc(2026, 3, 15, 15, 9, 30) - 86_400), ("0 0 * * *", utc(2026, 3, 15)),
            ("15 14 1 * *", utc(2026, 4, 1, 14, 15)), ("0 22 * * 1-5", utc(2026, 3, 16, 22)),
            ("0 0 * * 7", utc(2026, 3, 15)), ("0 0 * * sun", utc(2026, 3, 15)), ("0 0 1 JAN ?", utc(2027, 1, 1)),
            ("0 0 29 2 *", utc(2028, 2, 29)), ("5/20 * * * *", utc(2026, 3, 14, 15, 25)),
            ("1-10/3 16 * * *", utc(2026, 3, 14, 16, 1)), ("0 0 20 * MON", utc(2026, 3, 16)),
            ("0 0 31 4,5 *", utc(2026, 5, 31)), ("@hourly", utc(2026, 3, 14, 16)), ("@daily", utc(2026, 3, 15)),
            ("@midnight", utc(2026, 3, 15)), ("@weekly", utc(2026, 3, 15)), ("@monthly", utc(2026, 4, 1)),
            ("@yearly", utc(2027, 1, 1)), ("@annually", utc(2027, 1, 1)),
        ]
        for (text, time) in expected { #expect(try next("TZ=UTC \(text)", start) == time, "\(text)") }
        #expect(try next("@every 1h30m5s", start) == start + 5405)
        #expect(try next("CRON_TZ=UTC */15 9-17 * * mon-fri", start) == utc(2026, 3, 16, 9))
    }

    @Test(arguments: [
        "", "* * * *", "* * * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *", "a * * * *", "5-1 * * * *", "1,,2 * * * *", "-1 * * * *", "+1 * * * *", "1- * * * *",
        "1-2-3 * * * *", "*/2/3 * * * *", "@never", "@daily x", "@every", "@every 0s", "@every 5", "@every -1s",
        "@every 1d",
        "0 0 30 2 *", "0 0 31 2,4,6,9,11 ?", "TZ=Nowhere/At_All * * * * *", "TZ=../../etc/passwd * * * * *", "TZ=UTC",
        "99999999999999999999 * * * *", "* * * * MONDAY", "@every 99999999999999999999s",
    ])
    func refuses(_ text: String) { #expect(throws: ManifestError.self) { _ = try CronSchedule(text) } }

    @Test func aSkippedHourDoesNotHappen() throws {
        // Berlin: 2026-03-29 02:00 becomes 03:00.
        let before = utc(2026, 3, 28, 12)
        #expect(try next("TZ=Europe/Berlin 30 2 * * *", before) == utc(2026, 3, 30, 0, 30))
        #expect(try next("TZ=Europe/Berlin 30 3 * * *", before) == utc(2026, 3, 29, 1, 30))
        #expect(try next("TZ=Europe/Berlin 0 * * * *", utc(2026, 3, 29, 0)) == utc(2026, 3, 29, 1))
    }

    @Test func aRepeatedHourHappensOnceUnlessTheHourIsFree() throws {
        // Berlin: 2026-10-25 03:00 becomes 02:00.
        let fixed = try CronSchedule("TZ=Europe/Berlin 30 2 * * *")
        #expect(fixed.next(after: utc(2026, 10, 24, 12)) == utc(2026, 10, 25, 0, 30))
        #expect(fixed.next(after: utc(2026, 10, 25, 0, 30)) == utc(2026, 10, 26, 1, 30))
        let free = try CronSchedule("TZ=Europe/Berlin 30 * * * *")
        #expect(free.next(after: utc(2026, 10, 25, 0, 30)) == utc(2026, 10, 25, 1, 30))
        // Lord Howe goes back by half an hour: 2026-04-05 02:00 becomes 01:30.
        let half = try CronSchedule("TZ=Australia/Lord_Howe 45 1 * * *")
        let first = try #require(half.next(after: utc(2026, 4, 4)))
        #expect(try #require(half.next(after: first)) - first == 86_400 + 1800)
    }

    @Test func theLocalZoneIsTheCLibrarys() throws {
        let now = utc(2026, 7, 1)
        let local = TimeZoneOffsets.local
        let next = try #require(try CronSchedule("0 12 * * *").next(after: now))
        #expect(local.wall(next).hour == 12 && local.wall(next).minute == 0)
    }

    @Test func neverSkipsNorInventsATime() async throws {
        var random = SeededGenerator("Cron")
        func field(_ range: ClosedRange<Int>) -> String {
            switch Int.random(in: 0..<5, using: &random) {
            case 0, 1: return "*"
            case 2: return "\(Int.random(in: range, using: &random))"
            case 3: return "*/\(Int.random(in: 1...20, using: &random))"
            default:
                let low = Int.random(in: range, using: &random)
                return "\(low)-\(Int.random(in: low...range.upperBound, using: &random)),\(range.lowerBound)"
            }
        }
        // Around changes of the clock, whole, half and none.
        let zones = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo"]
        let moments = [
            utc(2026, 3, 29), utc(2026, 10, 25), utc(2026, 3, 8, 6), utc(2026, 4, 4, 14), utc(2018, 11, 4),
            utc(2026, 1, 31),
        ]
        for _ in 0..<100 {
            // Others wait for the thread.
            await Task.yield()
            let zone = zones.randomElement(using: &random) ?? "UTC"
            let text =
                "TZ=\(zone) \(field(0...59)) \(field(0...59)) \(field(0...23)) \(field(1...28)) \(field(1...12)) \(field(0...6))"
            let schedule = try CronSchedule(text)
            guard case .fields(let fields) = schedule.rule else { continue }
            let offsets = try #require(TimeZoneOffsets(zone))
            let start = (moments.randomElement(using: &random) ?? 0) + Int64.random(in: -7200...7200, using: &random)
            let window: Int64 = 5 * 3600
            let brute = (start + 1...start + window).first { time in
                let wall = offsets.wall(time)
                let fits =
                    fields.fits(month: wall.month, day: wall.day, weekday: wall.weekday)
                    && fields.hours & 1 << wall.hour != 0 && fields.minutes & 1 << wall.minute != 0
                    && fields.seconds & 1 << wall.second != 0
                guard fits, !fields.goesOnThroughRepeats else { return fits }
                return !(1...10_800).contains { offsets.wall(time - $0) == wall }
            }
            let found = schedule.next(after: start)
            #expect((found ?? .max) > start)
            if let brute {
                #expect(found == brute, "\(text) after \(start)")
            } else {
                #expect((found ?? .max) > start + window, "\(text) after \(start)")
            }
        }
    }

    @Test func datesAreThoseOfTheCalendar() throws {
        let zone = try #require(TimeZoneOffsets("UTC"))
        for (time, date) in [
            (utc(1970, 1, 1), (1970, 1, 1, 4)), (utc(2000, 2, 29), (2000, 2, 29, 2)),
            (utc(2026, 11, 22), (2026, 11, 22, 0)),
            (utc(2100, 3, 1), (2100, 3, 1, 1)),
        ] as [(Int64, (Int64, Int, Int, Int))] {
            let wall = zone.wall(time)
            #expect((wall.year, wall.month, wall.day, wall.weekday) == date)
        }
        #expect(zone.wall(-1).secondOfDay == 86_399)
    }
}
