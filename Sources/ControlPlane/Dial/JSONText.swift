import FoundationEssentials

/// Any JSON value, of which only its text is wanted.
struct JSONText: Decodable {
    /// With sorted keys; nil for `null`, and for a value that is nested too deep to be of use.
    let text: String?

    init(from decoder: any Decoder) throws {
        guard let value = try? Value(from: decoder), value != .null else {
            text = nil
            return
        }
        text = value.json
    }

    /// A value inside of a JSON text, by names of fields and numbers of elements with dots between: a string as it is,
    /// another value as JSON. nil where there is none, or `null`.
    static func field(_ path: String, in text: String) -> String? {
        guard var value = try? JSONDecoder().decode(Value.self, from: Data(text.utf8)) else { return nil }
        for name in path.split(separator: ".", omittingEmptySubsequences: false) {
            switch value {
            case .object(let fields):
                guard let field = fields[String(name)] else { return nil }
                value = field
            case .array(let values):
                guard let index = Int(name), values.indices.contains(index) else { return nil }
                value = values[index]
            default: return nil
            }
        }
        switch value {
        case .null: return nil
        case .string(let text): return text
        default: return value.json
        }
    }

    private indirect enum Value: Codable, Equatable {
        case null
        case bool(Bool)
        case whole(Int64)
        case number(Double)
        case string(String)
        case array([Value])
        case object([String: Value])

        var json: String? {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
            return (try? encoder.encode(self)).map { String(decoding: $0, as: UTF8.self) }
        }

        init(from decoder: any Decoder) throws {
            guard decoder.codingPath.count <= DialLimits.jsonDepth else { throw TooDeep() }
            let container = try decoder.singleValueContainer()
            if container.decodeNil() {
                self = .null
            } else if let value = try? container.decode(Bool.self) {
                self = .bool(value)
            } else if let value = try? container.decode(Int64.self) {
                self = .whole(value)
            } else if let value = try? container.decode(Double.self) {
                self = .number(value)
            } else if let value = try? container.decode(String.self) {
                self = .string(value)
            } else if var values = try? decoder.unkeyedContainer() {
                var array: [Value] = []
                while !values.isAtEnd { array.append(try values.decode(Value.self)) }
                self = .array(array)
            } else {
                self = .object(try container.decode([String: Value].self))
            }
        }

        func encode(to encoder: any Encoder) throws {
            var container = encoder.singleValueContainer()
            switch self {
            case .null: try container.encodeNil()
            case .bool(let value): try container.encode(value)
            case .whole(let value): try container.encode(value)
            case .number(let value): try container.encode(value)
            case .string(let value): try container.encode(value)
            case .array(let values): try container.encode(values)
            case .object(let fields): try container.encode(fields)
            }
        }
    }

    private struct TooDeep: Error {}
}
