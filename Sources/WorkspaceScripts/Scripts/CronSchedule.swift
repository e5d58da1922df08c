import AgentCore

/// When a script with `cron` runs (docs/contracts/control-plane.md#scripts): five fields, or six with seconds in
/// front, or one of the `@` names.
///
/// Fields are minute, hour, day of the month, month, day of the week (0 and 7 are Sunday): `*`, `?`, lists,
/// ranges, steps (`*/5`, `3/10`, `1-9/2`), and the English three-letter names of months and days. When
/// both day fields are given (neither begins with `*` or `?`), a day that fits either counts, as in
/// cron(8). `TZ=Zone` or `CRON_TZ=Zone` in front names another time zone than the local one.
///
/// Times are those of the wall. One that the clock skips in spring does not happen that day; one that it
/// passes twice in autumn happens at the first passing, unless the hour is free (`*`), as in "each ten
/// minutes": that goes on through both.
package struct CronSchedule: Sendable, Equatable {
    enum Rule: Sendable, Equatable {
        /// Every so many seconds.
        case every(Int64)
        case fields(CronFields)
    }

    let rule: Rule
    let zone: TimeZoneOffsets

    /// - Throws: ``ManifestError``, naming what is wrong with it.
    package init(_ text: String) throws(ManifestError) {
        var words = text.split { $0 == " " || $0 == "\t" }
        if let first = words.first, let prefix = ["TZ=", "CRON_TZ="].first(where: { first.hasPrefix($0) }) {
            let name = String(first.dropFirst(prefix.count))
            words.removeFirst()
            guard let zone = TimeZoneOffsets(name) else {
                throw Self.error(text, "there is no time zone \(goQuoted(name)) on this machine")
            }
            self.zone = zone
        } else {
            zone = .local
        }
        guard let first = words.first else { throw Self.error(text, "it is empty") }
        if first == "@every" {
            guard words.count == 2, let seconds = Self.everySeconds(words[1]) else {
                throw Self.error(text, "@every takes one duration such as 90s, 5m or 1h30m, a second at least")
            }
            rule = .every(seconds)
            return
        }
        if first.hasPrefix("@") {
            guard words.count == 1, let fields = Self.names[String(first)] else {
                throw Self.error(text, "\(goQuoted(String(first))) is not a schedule")
            }
            words = fields.split(separator: " ")
        }
        guard words.count == 5 || words.count == 6 else {
            throw Self.error(text, "it has \(words.count) fields; give 5, or 6 with seconds first")
        }
        if words.count == 5 { words.insert("0", at: 0) }
        do {
            rule = .fields(try CronFields(words.map(String.init)))
        } catch {
            throw Self.error(text, error.reason)
        }
    }

    private static let names = [
        "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
        "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
    ]

    private static func error(_ text: String, _ reason: String) -> ManifestError {
        ManifestError("the cron schedule \(goQuoted(String(text.prefix(200)))) is not valid: \(reason)")
    }

    /// Go-style durations of whole seconds: `1h30m`, `90s`.
    private static func everySeconds(_ text: Substring) -> Int64? {
        let units: [Character: Int64] = ["h": 3600, "m": 60, "s": 1]
        var total: Int64 = 0
        var number = ""
        for character in text {
            if character.isASCII, character.isNumber {
                number.append(character)
                continue
            }
            guard let unit = units[character], let value = Int64(number), value <= 1 << 32 else { return nil }
            total += value * unit
            number = ""
            guard total <= 1 << 40 else { return nil }
        }
        return number.isEmpty && total > 0 ? total : nil
    }

    /// The first time after this one, in seconds since 1970; nil when there is none within 41 years.
    package func next(after seconds: Int64) -> Int64? {
        switch rule {
        case .every(let period): seconds + period
        case .fields(let fields): fields.next(after: seconds, zone: zone)
        }
    }
}
