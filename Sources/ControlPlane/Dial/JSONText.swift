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
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        text = (try? encoder.encode(value)).map { String(decoding: $0, as: UTF8.self) }
    }

    private indirect enum Value: Codable, Equatable {
        case null
        case bool(Bool)
        case whole(Int64)
        case number(Double)
        case string(String)
        case array([Value])
        case object([String: Value])

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
