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
