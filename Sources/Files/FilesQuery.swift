import AgentCore
import AgentHTTP
import Hummingbird

/// The query of a file request. All that is wrong with it is told at once (docs/contracts/files.md#queries).
struct FilesQuery {
    private var values: [(key: String, value: String)] = []
    private var known: Set<String> = []
    private var problems: [HTTPProblem.Validation] = []

    init(_ request: Request) {
        for pair in (request.uri.query ?? "").utf8.split(separator: UInt8(ascii: "&")) {
            let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            guard let key = Self.decoded(parts[0]), let value = parts.count > 1 ? Self.decoded(parts[1]) : "" else {
                problem(String(Substring(parts[0])), "\"\(Substring(pair))\" has a % without two hexadecimal digits")
                known.insert(String(Substring(parts[0])))
                continue
            }
            values.append((key, value))
        }
    }

    /// What a form writes: "+" is a blank. Bytes that are no UTF-8 are kept as ``PathText`` has them.
    private static func decoded(_ text: Substring.UTF8View) -> String? {
        guard let bytes = PercentEncoding.bytes(text, plusIsBlank: true) else { return nil }
        // Text that has an escape's character stays as the client wrote it.
        return String(validating: bytes, as: UTF8.self) ?? PathText.text(bytes)
    }

    /// The value of a key; nil when it is absent or empty.
    mutating func text(_ key: String) -> String? {
        known.insert(key)
        let given = values.filter { $0.key == key }
        if given.count > 1 {
            problem(
                key,
                "Query param \"\(key)\" provided more than once, found \(given.count) times. "
                    + "Only provide 1 instance of this query param.")
            return nil
        }
        return given.first.flatMap { $0.value.isEmpty ? nil : $0.value }
    }

    /// As ``text(_:)``; its absence is a problem.
    mutating func required(_ key: String) -> String {
        let before = problems.count
        if let text = text(key) { return text }
        if problems.count == before { problem(key, "Query param \"\(key)\" is required and cannot be empty") }
        return ""
    }

    /// A whole number of at least 0.
    mutating func number(_ key: String, default: Int) -> Int {
        guard let text = text(key) else { return `default` }
        if let number = Int(text), number >= 0 { return number }
        let isNumber = text.utf8.drop { $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: "+") }
            .allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
        let reason =
            Int(text) != nil
            ? "value is negative"
            : "strconv.ParseInt: parsing \(goQuoted(text)): \(isNumber ? "value out of range" : "invalid syntax")"
        problem(key, "Query param \"\(key)\" must be a valid 64-bit positive integer: \(reason)")
        return `default`
    }

    mutating func flag(_ key: String, default: Bool) -> Bool {
        switch text(key) {
        case nil: return `default`
        case "true", "1": return true
        case "false", "0": return false
        case .some(let other):
            problem(key, "Query param \"\(key)\" must be true or false, not \"\(other)\"")
            return `default`
        }
    }

    mutating func problem(_ key: String, _ detail: String) { problems.append(.init(field: key, detail: detail)) }

    /// - Throws: ``HTTPProblem`` 400 for any key, where all is in the body.
    static func refuseAny(_ request: Request) throws {
        var query = FilesQuery(request)
        try query.check()
    }

    /// Called once all keys are read.
    /// - Throws: ``HTTPProblem`` 400.
    mutating func check() throws {
        var named: Set<String> = []
        for (key, _) in values where !known.contains(key) && named.insert(key).inserted {
            problem(key, "\"\(key)\" is not a valid query param")
        }
        guard problems.isEmpty else {
            throw HTTPProblem(.badRequest, "Query parameters have invalid values.", validations: problems)
        }
    }
}
