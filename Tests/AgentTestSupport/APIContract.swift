import Foundation

/// The documented HTTP API (docs/openapi.yaml), against which answers are held.
public struct APIContract: @unchecked Sendable {
    public typealias Object = [String: Any]

    /// As the daemon serves it.
    public static let documented: APIContract? = {
        let repository = URL(fileURLWithPath: #filePath).deletingLastPathComponent().path + "/../.."
        return FileManager.default.contents(atPath: "\(repository)/Sources/COpenAPI/openapi.json")
            .flatMap { APIContract($0) }
    }()

    // Never changed; JSONSerialization's values are not declared Sendable.
    public let document: Object
    private let paths: [(segments: [Substring], item: Object)]

    /// nil for what is no JSON object.
    public init?(_ json: Data) {
        guard let document = (try? JSONSerialization.jsonObject(with: json)) as? Object else { return nil }
        self.init(document)
    }

    public init(_ document: Object) {
        self.document = document
        paths = (document["paths"] as? [String: Object] ?? [:])
            .map { ($0.key.split(separator: "/", omittingEmptySubsequences: true), $0.value) }
            // Of several that match, the one with fewer parameters counts.
            .sorted { Self.parameters($0.0) < Self.parameters($1.0) }
    }

    private static func parameters(_ segments: [Substring]) -> Int { segments.count { $0.hasPrefix("{") } }

    private static let methods = ["get", "head", "post", "put", "patch", "delete", "options", "trace"]

    /// All operations as `METHOD /path`.
    public var operations: Set<String> {
        Set(
            (document["paths"] as? [String: Object] ?? [:]).flatMap { path, item in
                Self.methods.filter { item[$0] != nil }.map { "\($0.uppercased()) \(path)" }
            })
    }

    /// What of an answer the document does not have; empty when all is as it says.
    /// - Parameter hasBody: the body was read.
    public func problems(
        _ method: String, _ target: String, _ answer: RawConnection.Response, hasBody: Bool = true
    ) -> [String] {
        let local = target.replacingOccurrences(of: "^http://[^/]*", with: "", options: .regularExpression)
        let parts = local.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        let path = parts[0].split(separator: "/", omittingEmptySubsequences: true)
        // What no route has seen is refused for many reasons.
        let isRefusal = answer.status >= 400 && answer.status != 500
        guard let item = paths.first(where: { Self.matches($0.segments, path) })?.item else {
            return isRefusal ? [] : ["the path is not documented"]
        }
        guard let operation = item[method.lowercased()] as? Object else {
            return isRefusal ? [] : ["\(method) is not documented"]
        }
        var problems: [String] = []
        if answer.status < 400, parts.count > 1 {
            let known = parameters(item) + parameters(operation) + ["token"]
            for pair in parts[1].split(separator: "&") {
                let key = String(pair.prefix { $0 != "=" })
                if !known.contains(key) { problems.append("the query parameter \(key) is not documented") }
            }
        }
        let responses = operation["responses"] as? Object ?? [:]
        guard let response = (responses[String(answer.status)] as? Object).map(resolved) else {
            return problems + ["the status \(answer.status) is not documented"]
        }
        for (name, header) in response["headers"] as? [String: Object] ?? [:]
        where resolved(header)["required"] as? Bool == true && answer.headers[name.lowercased()] == nil {
            problems.append("the header \(name) is missing")
        }
        guard method != "HEAD", answer.status != 101 else { return problems }
        return problems + contentProblems(response["content"] as? [String: Object], answer, hasBody: hasBody)
    }

    private func contentProblems(
        _ content: [String: Object]?, _ answer: RawConnection.Response, hasBody: Bool
    ) -> [String] {
        let type = answer.headers["content-type"].map { String($0.prefix { $0 != ";" }) }
        guard let content else { return answer.body.isEmpty ? [] : ["no content is documented"] }
        guard let type else { return ["Content-Type is missing"] }
        guard let media = content[type] ?? content["*/*"] else { return ["the content type \(type) is not documented"] }
        // The documented ones of any other type are texts and bytes.
        guard hasBody, type == "application/json", let schema = media["schema"] as? Object, !schema.isEmpty else {
            return []
        }
        guard let value = try? JSONSerialization.jsonObject(with: answer.body, options: .fragmentsAllowed) else {
            return ["the body is no JSON"]
        }
        return SchemaCheck(document: document).problems(value, schema, "body")
    }

    private static func matches(_ template: [Substring], _ path: [Substring]) -> Bool {
        template.count == path.count && zip(template, path).allSatisfy { $0.hasPrefix("{") || $0 == $1 }
    }

    private func parameters(_ item: Object) -> [String] {
        (item["parameters"] as? [Object] ?? []).map(resolved).filter { $0["in"] as? String == "query" }
            .compactMap { $0["name"] as? String }
    }

    private func resolved(_ object: Object) -> Object { SchemaCheck(document: document).resolved(object) }
}

/// Holds JSON values against the part of JSON Schema that our document uses.
public struct SchemaCheck {
    public typealias Object = APIContract.Object

    /// Those that are looked at, and those that only explain; the document has no others.
    public static let keywords: Set<String> = [
        "$ref", "type", "enum", "const", "required", "properties", "additionalProperties", "unevaluatedProperties",
        "items", "allOf", "anyOf", "minimum", "maximum", "minItems", "maxItems", "pattern", "format", "default",
        "description", "minLength", "maxLength", "contentEncoding", "contentMediaType",
    ]

    let document: Object

    public init(document: Object) { self.document = document }

    /// Follows `$ref` within the document.
    func resolved(_ object: Object) -> Object {
        var object = object
        while let reference = object["$ref"] as? String {
            var found: Any? = document
            for part in reference.split(separator: "/").dropFirst() { found = (found as? Object)?[String(part)] }
            object = found as? Object ?? [:]
        }
        return object
    }

    /// What of the value the schema does not allow, with the place of each.
    public func problems(_ value: Any, _ schema: Object, _ place: String) -> [String] {
        let schema = resolved(schema)
        var problems = typeProblems(value, schema, place)
        for part in schema["allOf"] as? [Object] ?? [] { problems += self.problems(value, part, place) }
        if let choices = schema["anyOf"] as? [Object],
            !choices.contains(where: { self.problems(value, $0, place).isEmpty })
        {
            problems.append("\(place) is none of what it may be")
        }
        if let object = value as? Object { problems += objectProblems(object, schema, place) }
        if let array = value as? [Any] {
            if let most = schema["maxItems"] as? Int, array.count > most {
                problems.append("\(place) has over \(most)")
            }
            if let least = schema["minItems"] as? Int, array.count < least {
                problems.append("\(place) has under \(least)")
            }
            // The first thousand: some directories have a hundred thousand entries.
            for (index, element) in array.prefix(1_000).enumerated() {
                problems += self.problems(element, schema["items"] as? Object ?? [:], "\(place)[\(index)]")
            }
        }
        return problems
    }

    private func typeProblems(_ value: Any, _ schema: Object, _ place: String) -> [String] {
        var problems: [String] = []
        let types = schema["type"] as? [String] ?? (schema["type"] as? String).map { [$0] } ?? []
        let type = Self.type(of: value)
        if !types.isEmpty, !types.contains(type), !(type == "integer" && types.contains("number")) {
            problems.append("\(place) is \(type), not \(types.joined(separator: " or "))")
        }
        let fixed = schema["enum"] as? [Any] ?? schema["const"].map { [$0] }
        if let fixed, !fixed.contains(where: { "\($0)" == "\(value)" && Self.type(of: $0) == type }) {
            problems.append("\(place) is \(value), which is not documented")
        }
        if let number = value as? NSNumber, type == "integer" || type == "number" {
            if let least = schema["minimum"] as? NSNumber, number.doubleValue < least.doubleValue {
                problems.append("\(place) is \(number), under \(least)")
            }
            if let most = schema["maximum"] as? NSNumber, number.doubleValue > most.doubleValue {
                problems.append("\(place) is \(number), over \(most)")
            }
        }
        if let text = value as? String, let pattern = schema["pattern"] as? String,
            text.range(of: pattern, options: .regularExpression) == nil
        {
            problems.append("\(place) does not match \(pattern)")
        }
        return problems
    }

    private func objectProblems(_ object: Object, _ schema: Object, _ place: String) -> [String] {
        var problems: [String] = []
        for name in schema["required"] as? [String] ?? [] where object[name] == nil {
            problems.append("\(place).\(name) is missing")
        }
        let properties = schema["properties"] as? [String: Object] ?? [:]
        for (name, value) in object {
            if let property = properties[name] {
                problems += self.problems(value, property, "\(place).\(name)")
            } else if let others = schema["additionalProperties"] as? Object {
                problems += self.problems(value, others, "\(place).\(name)")
            }
        }
        let isClosed = ["additionalProperties", "unevaluatedProperties"].contains { schema[$0] as? Bool == false }
        if isClosed {
            let known = names(schema)
            problems += object.keys.filter { !known.contains($0) }.map { "\(place).\($0) is not documented" }
        }
        return problems
    }

    /// The properties of a schema and of those that it is made of.
    private func names(_ schema: Object) -> Set<String> {
        let schema = resolved(schema)
        let parts = (schema["allOf"] as? [Object] ?? []).map { names($0) }
        return parts.reduce(Set((schema["properties"] as? Object ?? [:]).keys)) { $0.union($1) }
    }

    private static func type(of value: Any) -> String {
        switch value {
        case is NSNull: "null"
        case is String: "string"
        case is [Any]: "array"
        case is Object: "object"
        case let number as NSNumber:
            // What JSONSerialization makes of true and false is one byte long.
            switch String(cString: number.objCType) {
            case "c", "B": "boolean"
            case "d", "f": number.doubleValue == number.doubleValue.rounded() ? "integer" : "number"
            default: "integer"
            }
        default: "unknown"
        }
    }
}
