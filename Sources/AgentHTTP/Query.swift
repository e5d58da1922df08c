import HTTPTypes
import Hummingbird

/// The query of a request, without unknown keys (spec: they are 400).
public struct Query: Sendable {
    private var values: [String: String] = [:]

    /// - Parameters:
    ///   - request: the request.
    ///   - allowed: the keys that the route knows; for a WebSocket route `token` is one of them.
    /// - Throws: ``HTTPProblem`` 400 that names an unknown or repeated key.
    public init(_ request: Request, allowed: Set<String>) throws {
        for (key, value) in request.uri.queryParameters {
            let key = String(key)
            guard allowed.contains(key) else {
                let known = allowed.isEmpty ? "none" : allowed.sorted().joined(separator: ", ")
                throw HTTPProblem(
                    .badRequest, "Unknown query parameter \"\(key)\".", detail: "Known here: \(known).")
            }
            guard values.updateValue(String(value), forKey: key) == nil else {
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

enum PercentEncoding {
    /// nil when an escape is broken or the bytes are not UTF-8 (RFC 3986 section 2.1).
    static func decode(_ text: String) -> String? {
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            let digits = String(decoding: rest.prefix(2), as: UTF8.self)
            guard digits.utf8.count == 2, digits.allSatisfy(\.isHexDigit), let value = UInt8(digits, radix: 16) else {
                return nil
            }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return String(validating: bytes, as: UTF8.self)
    }
}
