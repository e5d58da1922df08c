import Glibc
import Logging
import NIOCore

/// How a log line looks: `time LEVEL message key=value …`, or one JSON object.
enum LogFormat {
    static func timestamp() -> String {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        return timestampText(seconds: Int64(now.tv_sec), nanoseconds: Int32(now.tv_nsec))
    }

    static func human(
        _ time: String, _ level: Logger.Level, _ message: String, _ fields: [(key: String, value: String)]
    ) -> String {
        var line = "\(time) \(name(level)) \(oneLine(message))"
        for (key, value) in fields { line += " \(key)=\(quoted(value))" }
        return line + "\n"
    }

    static func json(
        _ time: String, _ level: Logger.Level, _ message: String, _ fields: [(key: String, value: String)]
    ) -> String {
        var line = ByteBuffer(string: "{\"ts\":\"\(time)\",\"level\":\"\(level.rawValue)\",\"msg\":")
        JSONString.write(message, into: &line, escaping: .allControls)
        for (key, value) in fields {
            line.writeStaticString(",")
            JSONString.write(key, into: &line, escaping: .allControls)
            line.writeStaticString(":")
            JSONString.write(value, into: &line, escaping: .allControls)
        }
        line.writeStaticString("}\n")
        return String(buffer: line)
    }

    private static func name(_ level: Logger.Level) -> String {
        switch level {
        case .trace: "TRACE"
        case .debug: "DEBUG"
        case .info: "INFO "
        case .notice: "NOTE "
        case .warning: "WARN "
        case .error: "ERROR"
        case .critical: "FATAL"
        }
    }

    private static func quoted(_ value: String) -> String {
        let plain = !value.isEmpty && !value.unicodeScalars.contains { $0 == " " || $0 == "\"" || isControl($0) }
        return plain ? value : jsonString(value)
    }

    // Text from outside must not be able to fake a line of its own, or command the terminal that shows it.
    private static func oneLine(_ text: String) -> String {
        guard text.unicodeScalars.contains(where: isControl) else { return text }
        return String(jsonString(text).dropFirst().dropLast())
    }

    /// C0, DEL and C1: a terminal obeys U+009B as it obeys ESC [.
    private static func isControl(_ scalar: Unicode.Scalar) -> Bool {
        scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value)
    }

    private static func jsonString(_ text: String) -> String {
        var out = ByteBuffer()
        JSONString.write(text, into: &out, escaping: .allControls)
        return String(buffer: out)
    }
}

/// The moment that a text in RFC 3339 names, since 1970; nil for any other text. A leap second is none.
public func timestamp(fromRFC3339 text: String) -> timespec? {
    var rest = Array(text.utf8)[...]
    func number(_ digits: Int, _ range: ClosedRange<Int>) -> Int? {
        let part = rest.prefix(digits)
        guard part.count == digits, part.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        rest = rest.dropFirst(digits)
        return Int(String(decoding: part, as: UTF8.self)).flatMap { range.contains($0) ? $0 : nil }
    }
    func next(_ wanted: String) -> UInt8? { wanted.utf8.first { $0 == rest.first }.flatMap { _ in rest.popFirst() } }

    var parts = tm()
    guard let year = number(4, 0...9999), next("-") != nil, let month = number(2, 1...12), next("-") != nil,
        let day = number(2, 1...31), next("Tt") != nil, let hour = number(2, 0...23), next(":") != nil,
        let minute = number(2, 0...59), next(":") != nil, let second = number(2, 0...59)
    else { return nil }
    (parts.tm_year, parts.tm_mon, parts.tm_mday) = (CInt(year - 1900), CInt(month - 1), CInt(day))
    (parts.tm_hour, parts.tm_min, parts.tm_sec) = (CInt(hour), CInt(minute), CInt(second))
    var nanoseconds = 0
    if next(".") != nil {
        let digits = rest.prefix { (0x30...0x39).contains($0) }
        guard !digits.isEmpty else { return nil }
        rest = rest.dropFirst(digits.count)
        for index in 0..<9 {
            nanoseconds = nanoseconds * 10 + (index < digits.count ? Int(digits[digits.startIndex + index] - 0x30) : 0)
        }
    }
    var offset = 0
    if next("Zz") == nil {
        guard let sign = next("+-"), let hours = number(2, 0...23), next(":") != nil, let minutes = number(2, 0...59)
        else { return nil }
        offset = (hours * 60 + minutes) * (sign == UInt8(ascii: "-") ? -60 : 60)
    }
    let seconds = timegm(&parts)
    // The C library would make the 31st of February the 3rd of March.
    guard rest.isEmpty, parts.tm_mday == CInt(day) else { return nil }
    return timespec(tv_sec: seconds - offset, tv_nsec: nanoseconds)
}

/// A moment since 1970 as RFC 3339 writes it: UTC, with milliseconds.
public func timestampText(seconds: Int64, nanoseconds: Int32 = 0) -> String {
    var seconds = time_t(seconds)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    func pad(_ value: Int, _ width: Int) -> String {
        let text = String(value)
        return String(repeating: "0", count: max(0, width - text.utf8.count)) + text
    }
    let date = "\(1900 + Int(parts.tm_year))-\(pad(Int(parts.tm_mon) + 1, 2))-\(pad(Int(parts.tm_mday), 2))"
    let time = "\(pad(Int(parts.tm_hour), 2)):\(pad(Int(parts.tm_min), 2)):\(pad(Int(parts.tm_sec), 2))"
    return "\(date)T\(time).\(pad(Int(nanoseconds) / 1_000_000, 3))Z"
}
