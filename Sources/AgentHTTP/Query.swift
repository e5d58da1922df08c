import HTTPTypes
import Hummingbird

/// The query of a request, without unknown keys, which are 400 (docs/contracts/http-api.md#queries).
public struct Query: Sendable {
    private var values: [String: String] = [:]

    /// - Parameters:
    ///   - request: the request.
    ///   - allowed: the keys that the route knows; for a WebSocket route `token` is one of them.
    /// - Throws: ``HTTPProblem`` 400 that names an unknown or repeated key.
    public init(_ request: Request, allowed: Set<String>) throws {
        for (key, value) in PercentEncoding.pairs(ofQuery: request.uri.query ?? "") {
            guard let key, let value else {
                throw HTTPProblem(
                    .badRequest, "The query is not valid percent-encoded UTF-8.",
                    detail: "Write a percent sign as %25.")
            }
            guard allowed.contains(key) else {
                let known = allowed.isEmpty ? "none" : allowed.sorted().joined(separator: ", ")
                throw HTTPProblem(
                    .badRequest, "Unknown query parameter \"\(key)\".", detail: "Known here: \(known).")
            }
            guard values.updateValue(value, forKey: key) == nil else {
                throw HTTPProblem(.badRequest, "Query parameter \"\(key)\" is given twice.")
            }
        }
    }

    public subscript(_ key: String) -> String? { values[key] }

    /// `true` or `false`; nil when absent.
    public func bool(_ key: String) throws -> Bool? {
        switch values[key] {
        case nil: nil
        case "true", "1": true
        case "false", "0": false
        case .some(let other): throw HTTPProblem.invalid(key, "must be true or false, not \"\(other)\"")
        }
    }

    /// A whole number in the range; nil when absent.
    public func int(_ key: String, in range: ClosedRange<Int>) throws -> Int? {
        guard let text = values[key] else { return nil }
        guard let number = Int(text), range.contains(number) else {
            let bound =
                range.upperBound == .max
                ? "of at least \(range.lowerBound)" : "from \(range.lowerBound) to \(range.upperBound)"
            throw HTTPProblem.invalid(key, "must be a whole number \(bound), not \"\(text)\"")
        }
        return number
    }
}

extension AgentRequestContext {
    /// A parameter of the route's path, percent-decoded.
    public func pathParameter(_ name: String) throws -> String {
        let raw = try parameters.require(name)
        guard raw.contains("%") else { return raw }
        guard let decoded = PercentEncoding.decode(raw) else {
            throw HTTPProblem(.badRequest, "The path is not valid percent-encoded UTF-8.")
        }
        return decoded
    }
}

/// Escapes of a request's target (RFC 3986 section 2.1).
public enum PercentEncoding {
    /// The bytes that a text stands for; nil when an escape is broken.
    /// - Parameter plusIsBlank: as in a form, and so in a query: what Go, Python and browsers write.
    public static func bytes(_ text: Substring.UTF8View, plusIsBlank: Bool = false) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count)
        var rest = text
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "+") where plusIsBlank: bytes.append(UInt8(ascii: " "))
            case UInt8(ascii: "%"):
                guard let value = escaped(&rest) else { return nil }
                bytes.append(value)
            default: bytes.append(byte)
            }
        }
        return bytes
    }

    /// nil when an escape is broken or the bytes are not UTF-8.
    static func decode(_ text: some StringProtocol, plusIsBlank: Bool = false) -> String? {
        bytes(Substring(text).utf8, plusIsBlank: plusIsBlank).flatMap { String(validating: $0, as: UTF8.self) }
    }

    /// The keys and values of a query in their order, decoded; nil in the place of one that is not valid.
    static func pairs(ofQuery query: String) -> [(key: String?, value: String?)] {
        query.utf8.split(separator: UInt8(ascii: "&")).map { pair in
            let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            return (
                decode(Substring(parts[0]), plusIsBlank: true),
                parts.count > 1 ? decode(Substring(parts[1]), plusIsBlank: true) : ""
            )
        }
    }

    /// A target whose path has no escape where none is needed: letters, digits, `-`, `.`, `_` and `~` mean the same
    /// with and without (RFC 3986 section 6.2.2.2). Access rules, limits and routes all see this form.
    static func normalized(target: String) -> String {
        let path = target.utf8.prefix { $0 != UInt8(ascii: "?") }
        guard path.contains(UInt8(ascii: "%")) else { return target }
        var result: [UInt8] = []
        result.reserveCapacity(target.utf8.count)
        var rest = path
        while let byte = rest.popFirst() {
            var after = rest
            if byte == UInt8(ascii: "%"), let value = escaped(&after), isUnreserved(value) {
                result.append(value)
                rest = after
            } else {
                result.append(byte)
            }
        }
        result.append(contentsOf: target.utf8[path.endIndex...])
        return String(decoding: result, as: UTF8.self)
    }

    /// Removes the two digits after a percent sign.
    private static func escaped(_ rest: inout Substring.UTF8View) -> UInt8? {
        func digit(_ byte: UInt8) -> UInt8? { Character(Unicode.Scalar(byte)).hexDigitValue.map(UInt8.init) }
        guard let high = rest.popFirst().flatMap(digit), let low = rest.popFirst().flatMap(digit) else { return nil }
        return high << 4 | low
    }

    private static func isUnreserved(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
            UInt8(ascii: "~"):
            true
        default: false
        }
    }
}
