import FoundationEssentials

/// Any JSON value. Objects keep no order.
indirect enum JSONValue: Codable, Equatable {
    case null
    case bool(Bool)
    case number(Double)
    case string(String)
    case array([JSONValue])
    case object([String: JSONValue])

    init(from decoder: any Decoder) throws {
        guard decoder.codingPath.count <= SimulatorLimits.manifestDepth else {
            throw SimulatorError(.manifest, "the JSON is nested more than \(SimulatorLimits.manifestDepth) deep")
        }
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Double.self) {
            self = .number(value)
        } else if let value = try? container.decode(String.self) {
            self = .string(value)
        } else if let values = try? decoder.unkeyedContainer() {
            var values = values
            var array: [JSONValue] = []
            while !values.isAtEnd { array.append(try values.decode(JSONValue.self)) }
            self = .array(array)
        } else {
            self = .object(try container.decode([String: JSONValue].self))
        }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .bool(let value): try container.encode(value)
        case .number(let value):
            // Protobuf's whole numbers must not turn into `3.0`.
            if let whole = Int64(exactly: value) { try container.encode(whole) } else { try container.encode(value) }
        case .string(let value): try container.encode(value)
        case .array(let values): try container.encode(values)
        case .object(let fields): try container.encode(fields)
        }
    }

    var kind: String {
        switch self {
        case .null: "null"
        case .bool: "a boolean"
        case .number: "a number"
        case .string: "a string"
        case .array: "an array"
        case .object: "an object"
        }
    }
}

/// What a field of the manifest's JSON form may hold: finds mistakes with the path of the field, and
/// turns UUID text into the base64 that protobuf's JSON form wants.
indirect enum JSONShape: Sendable {
    case string
    case bool
    /// A whole number in the range.
    case int(ClosedRange<Int64>)
    /// `10s`, `1.5s`, `-2s`.
    case duration
    /// Base64.
    case bytes
    /// 16 bytes: a UUID's text, or base64.
    case uuid
    /// A name, or its number.
    case enumeration([String])
    case list(JSONShape)
    case map(JSONShape)
    /// Any object: its content is opaque.
    case anything
    case message([String: JSONShape])

    /// Checks a value and gives it back as protobuf's JSON form.
    func convert(_ value: JSONValue, at path: String) throws(SimulatorError) -> JSONValue {
        // In protobuf's JSON form null is the default of every field.
        if value == .null { return value }
        switch (self, value) {
        case (.string, .string), (.bool, .bool), (.anything, .object):
            return value
        case (.int(let range), .number(let number)):
            guard let whole = Int64(exactly: number), range.contains(whole) else {
                throw Self.problem(path, "must be a whole number from \(range.lowerBound) to \(range.upperBound)")
            }
            return value
        case (.duration, .string(let text)):
            guard Self.isDuration(text) else {
                throw Self.problem(path, "\"\(text)\" is not a duration; write seconds with an s: \"10s\" or \"1.5s\"")
            }
            return value
        case (.bytes, .string(let text)):
            guard Self.base64(text) != nil else { throw Self.problem(path, "is not base64") }
            return value
        case (.uuid, .string(let text)):
            if text.isEmpty { return value }
            if let uuid = UUID(uuidString: text) { return .string(uuid.data.base64EncodedString()) }
            guard let data = Self.base64(text), data.count == 16 else {
                throw Self.problem(path, "\"\(text)\" is neither a UUID nor the base64 of 16 bytes")
            }
            return .string(data.base64EncodedString())
        case (.enumeration(let names), .string(let name)):
            guard names.contains(name) else {
                throw Self.problem(path, "\"\(name)\" is none of \(names.joined(separator: ", "))")
            }
            return value
        case (.enumeration(let names), .number(let number)):
            guard let index = Int(exactly: number), names.indices.contains(index) else {
                throw Self.problem(path, "must be a name or a number from 0 to \(names.count - 1)")
            }
            return value
        case (.list(let shape), .array(let values)):
            var converted: [JSONValue] = []
            for (index, value) in values.enumerated() {
                guard value != .null else { throw Self.problem("\(path)[\(index)]", "must not be null") }
                converted.append(try shape.convert(value, at: "\(path)[\(index)]"))
            }
            return .array(converted)
        case (.map(let shape), .object(let fields)):
            var converted: [String: JSONValue] = [:]
            for (name, value) in fields {
                guard value != .null else { throw Self.problem("\(path).\(name)", "must not be null") }
                converted[name] = try shape.convert(value, at: "\(path).\(name)")
            }
            return .object(converted)
        case (.message(let shapes), .object(let fields)):
            return .object(try Self.convert(fields, shapes, at: path))
        default:
            throw Self.problem(path, "must be \(expectation), not \(value.kind)")
        }
    }

    private static func convert(
        _ fields: [String: JSONValue], _ shapes: [String: JSONShape], at path: String
    ) throws(SimulatorError) -> [String: JSONValue] {
        var converted: [String: JSONValue] = [:]
        // Sorted, so that of many mistakes the same one is named each time.
        for (name, value) in fields.sorted(by: { $0.key < $1.key }) {
            let inner = path.isEmpty ? name : "\(path).\(name)"
            let known = shapes[name] != nil ? name : camelCase(name)
            guard let shape = shapes[known] else {
                throw problem(inner, "no such field; there are \(shapes.keys.sorted().joined(separator: ", "))")
            }
            guard converted.updateValue(try shape.convert(value, at: inner), forKey: known) == nil else {
                throw problem(inner, "is given twice")
            }
        }
        return converted
    }

    private var expectation: String {
        switch self {
        case .string: "a string"
        case .bool: "true or false"
        case .int: "a whole number"
        case .duration: "a duration such as \"10s\""
        case .bytes: "a string of base64"
        case .uuid: "a UUID as text"
        case .enumeration(let names): "one of \(names.joined(separator: ", "))"
        case .list: "an array"
        case .map, .anything, .message: "an object"
        }
    }

    private static func problem(_ path: String, _ text: String) -> SimulatorError {
        SimulatorError(.manifest, path.isEmpty ? "the manifest \(text)" : "\(path): \(text)")
    }

    /// Protobuf's JSON form takes the names of the .proto file, too.
    private static func camelCase(_ name: String) -> String {
        let parts = name.split(separator: "_", omittingEmptySubsequences: false)
        return (parts.first.map(String.init) ?? "")
            + parts.dropFirst().map { $0.prefix(1).uppercased() + $0.dropFirst() }.joined()
    }

    private static func isDuration(_ text: String) -> Bool {
        guard text.hasSuffix("s") else { return false }
        var digits = text.dropLast()
        if digits.hasPrefix("-") { digits = digits.dropFirst() }
        let parts = digits.split(separator: ".", omittingEmptySubsequences: false)
        let isNumber = parts.allSatisfy { !$0.isEmpty && $0.utf8.allSatisfy { (48...57).contains($0) } }
        guard isNumber, parts.count <= 2, let whole = parts.first.flatMap({ Int64($0) }) else { return false }
        // The range of protobuf's Duration.
        return whole <= 315_576_000_000 && (parts.count == 1 || parts[1].count <= 9)
    }

    /// Standard or URL-safe, padded or not.
    private static func base64(_ text: String) -> Data? {
        var standard = String(text.map { $0 == "-" ? "+" : $0 == "_" ? "/" : $0 })
        while standard.utf8.count % 4 != 0, standard.utf8.count % 4 != 1 { standard.append("=") }
        return Data(base64Encoded: standard)
    }
}

extension UUID {
    /// The 16 bytes, as the wire has them.
    package var data: Data { withUnsafeBytes(of: uuid) { Data($0) } }

    /// A UUID of 16 bytes; nil for another count.
    package init?(data: Data) {
        guard data.count == 16 else { return nil }
        var bytes: uuid_t = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        _ = withUnsafeMutableBytes(of: &bytes) { data.copyBytes(to: $0) }
        self.init(uuid: bytes)
    }
}
