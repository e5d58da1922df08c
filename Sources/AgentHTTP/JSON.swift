import AgentCore
import FoundationEssentials
import HTTPTypes
import Hummingbird
import NIOCore

extension Response {
    /// A JSON answer. Keys are in alphabetical order, so that equal answers are equal bytes.
    public static func json(_ value: some Encodable, status: HTTPResponse.Status = .ok) -> Response {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        do {
            let data = try encoder.encode(value)
            return .json(bytes: ByteBuffer(bytes: data), status: status)
        } catch {
            // Only a value that JSON cannot hold (an infinite number) gets here, and none of ours does.
            let text = #"{"message":"The answer could not be encoded."}"#
            return .json(bytes: ByteBuffer(string: text), status: .internalServerError)
        }
    }

    /// An answer of bytes that are JSON already.
    public static func json(bytes: ByteBuffer, status: HTTPResponse.Status = .ok) -> Response {
        Response(
            status: status, headers: [.contentType: "application/json; charset=utf-8"],
            body: ResponseBody(byteBuffer: bytes))
    }
}

extension Request {
    /// Decodes the JSON body.
    /// - Parameter invalid: the message of the 400 for anything that is not the expected JSON.
    /// - Throws: ``HTTPProblem``: 415 for another content type, 413 for more than ``HTTPLimits/jsonValues``, 400 for
    ///   malformed JSON (invalid UTF-8, nesting beyond ``HTTPLimits/jsonDepth`` and NUL in a string included), naming
    ///   the field where one can be named.
    public func decodeJSON<T: Decodable & Sendable>(
        _ type: T.Type, invalid: String = "Request body must be valid JSON."
    ) async throws -> T {
        try await decodeJSON(type, invalid: invalid) { $0 }
    }

    /// As ``decodeJSON(_:invalid:)``, and makes something of the body where it is decoded: not on the event loop if the
    /// body is large.
    /// - Parameter transform: its errors are thrown as they are.
    public func decodeJSON<T: Decodable & SendableMetatype, R: Sendable>(
        _ type: T.Type, invalid: String = "Request body must be valid JSON.",
        _ transform: @escaping @Sendable (T) throws -> R
    ) async throws -> R {
        try requireJSON()
        // The connection collected the body before the request was dispatched.
        let buffer = try await body.collect(upTo: .max)
        return try await JSONWork.run(bytes: buffer.readableBytes) {
            try transform(Self.decoded(T.self, buffer, invalid))
        }
    }

    private static func decoded<T: Decodable>(_ type: T.Type, _ buffer: ByteBuffer, _ invalid: String) throws -> T {
        let data = buffer.getData(at: buffer.readerIndex, length: buffer.readableBytes) ?? Data()
        do {
            try JSONShape.check(data)
            return try JSONDecoder().decode(T.self, from: data)
        } catch let error as DecodingError {
            throw problem(invalid, error)
        } catch let error as JSONShape.Failure {
            throw HTTPProblem(error.isTooLarge ? .contentTooLarge : .badRequest, invalid, detail: error.detail)
        } catch {
            throw HTTPProblem(.badRequest, invalid, cause: error)
        }
    }

    /// Refuses a body with another content type, such as that of a web page's form.
    /// - Throws: ``HTTPProblem`` 415.
    public func requireJSON() throws {
        guard let contentType = headers[.contentType], !Self.isJSON(contentType) else { return }
        throw HTTPProblem(
            .unsupportedMediaType, "Content-Type must be application/json.", detail: "Got \"\(contentType)\".")
    }

    private static func isJSON(_ contentType: String) -> Bool {
        if contentType == "application/json" { return true }
        let type = contentType.prefix { $0 != ";" }
        return type.lowercased().filter { $0 != " " && $0 != "\t" } == "application/json"
    }

    private static func problem(_ message: String, _ error: DecodingError) -> HTTPProblem {
        func at(_ context: DecodingError.Context, _ what: String) -> HTTPProblem {
            let field = context.codingPath.map(\.stringValue).joined(separator: ".")
            guard !field.isEmpty else { return HTTPProblem(.badRequest, message, detail: what) }
            return HTTPProblem(.badRequest, message, validations: [.init(field: field, detail: what)])
        }
        return switch error {
        case .typeMismatch(let type, let context): at(context, "must be \(name(of: type))")
        case .valueNotFound(let type, let context): at(context, "must be \(name(of: type)), not null")
        case .keyNotFound(let key, _): HTTPProblem.invalid(key.stringValue, "is required", message: message)
        case .dataCorrupted(let context): at(context, context.debugDescription)
        @unknown default: HTTPProblem(.badRequest, message)
        }
    }

    private static func name(of type: any Any.Type) -> String {
        switch type {
        case is String.Type: "a string"
        case is Bool.Type: "true or false"
        case is Int.Type, is Int64.Type: "a whole number"
        case is [String].Type: "an array"
        case is [String: String].Type, is [String: any Any].Type: "an object"
        default: "another type"
        }
    }
}

/// A whole number in a JSON body. The decoder calls a number that is no `Int` (1.5, 1e30) corrupt data, without
/// saying where it is; this names its field. Body types use it in place of `Int`.
public struct WholeNumber: Decodable, Sendable, Equatable {
    public var value: Int

    public init(_ value: Int) { self.value = value }

    public init(from decoder: any Decoder) throws {
        do {
            value = try decoder.singleValueContainer().decode(Int.self)
        } catch {
            throw DecodingError.typeMismatch(Int.self, .init(codingPath: decoder.codingPath, debugDescription: ""))
        }
    }
}

/// Where JSON of clients is decoded: small texts on the event loop, others one after the other on a thread of their own.
/// A thread, so that they hold up neither a loop nor starts; one, since they need the processor alone.
public enum JSONWork {
    private static let pool = BlockingPool("json", threads: 1)

    /// - Parameter bytes: of the text; up to ``HTTPLimits/inlineJSONBytes`` the body runs right here.
    public static func run<T: Sendable>(bytes: Int, _ body: @escaping @Sendable () throws -> T) async throws -> T {
        try await bytes <= HTTPLimits.inlineJSONBytes ? body() : pool.run(body)
    }
}

/// Checks of a body before it is decoded, for what the decoder accepts or finds only by recursion.
public enum JSONShape {
    /// Why the bytes are refused.
    public struct Failure: Error {
        public var detail: String
        /// The JSON may be right, there is too much of it.
        public var isTooLarge = false
    }

    /// - Parameter mustBeObject: other JSON is refused.
    /// - Throws: ``Failure`` for an empty body, invalid UTF-8, other JSON than an object, nesting beyond
    ///   ``HTTPLimits/jsonDepth``, more values than ``HTTPLimits/jsonValues`` and trailing commas.
    public static func check(_ data: Data, mustBeObject: Bool = true) throws(Failure) {
        guard !data.isEmpty else { throw Failure(detail: "The body is empty.") }
        guard String(validating: data, as: UTF8.self) != nil else {
            throw Failure(detail: "The body is not valid UTF-8.")
        }
        // The decoder's error would name Swift types. A byte order mark may be ignored (RFC 8259 section 8.1).
        let text = data.starts(with: [0xEF, 0xBB, 0xBF]) ? data.dropFirst(3) : data
        guard !mustBeObject || text.first(where: { !isSpace($0) }) == UInt8(ascii: "{") else {
            throw Failure(detail: "The body must be a JSON object.")
        }
        var depth = 0
        var values = 1
        var inString = false
        var escaped = false
        var previous: UInt8 = 0
        for byte in data {
            if inString {
                if escaped {
                    escaped = false
                } else if byte == UInt8(ascii: "\\") {
                    escaped = true
                } else if byte == UInt8(ascii: "\"") {
                    inString = false
                }
                continue
            }
            switch byte {
            case UInt8(ascii: "\""): inString = true
            case UInt8(ascii: "["), UInt8(ascii: "{"):
                depth += 1
                try count(&values)
                if depth > HTTPLimits.jsonDepth {
                    throw Failure(detail: "The body is nested more than \(HTTPLimits.jsonDepth) levels deep.")
                }
            case UInt8(ascii: "]"), UInt8(ascii: "}"):
                depth -= 1
                // The decoder takes a trailing comma, RFC 8259 does not.
                if previous == UInt8(ascii: ",") { throw Failure(detail: "The body has a trailing comma.") }
            case UInt8(ascii: ","): try count(&values)
            case _ where isSpace(byte): continue
            default: break
            }
            previous = byte
        }
    }

    /// Each is an object of its own in memory, however short it is.
    private static func count(_ values: inout Int) throws(Failure) {
        values += 1
        guard values <= HTTPLimits.jsonValues else {
            throw Failure(detail: "The body has more than \(HTTPLimits.jsonValues) values.", isTooLarge: true)
        }
    }

    private static func isSpace(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") || byte == UInt8(ascii: "\n")
            || byte == UInt8(ascii: "\r")
    }
}
