import AgentCore
import Foundation
import HTTPTypes
import Hummingbird
import NIOCore
import NIOPosix
import Testing

@testable import AgentHTTP

@Suite struct JSONBodyTests {
    private struct Body: Decodable, Equatable {
        var command: String?
        var env: [String: String]?
        var count: WholeNumber?
        var sizes: [WholeNumber]?
    }

    private func decode(_ bytes: [UInt8], contentType: String? = "application/json") async throws -> Body {
        var head = HTTPRequest(method: .post, scheme: "http", authority: "localhost", path: "/")
        if let contentType { head.headerFields[.contentType] = contentType }
        let request = Request(head: head, body: RequestBody(buffer: ByteBuffer(bytes: bytes)))
        return try await request.decodeJSON(Body.self)
    }

    private func problem(_ text: String) async -> HTTPProblem? {
        do {
            _ = try await decode(Array(text.utf8))
            return nil
        } catch {
            return error as? HTTPProblem
        }
    }

    @Test(arguments: [
        "", " ", "{", "}", "nul", "{\"a\":}", "{\"a\":1,}", "[1,2", "{\"command\":\"x\" \"y\"}", "{'command':'x'}",
        "\u{FEFF}{}x", "{\"command\":\"\u{1}\"}", "{\"command\":\"\\x\"}", "{\"command\":\"\\ud800\"}", "{} {}", "01",
    ]) func malformedIs400(text: String) async {
        #expect(await problem(text)?.status == .badRequest, "\(text)")
        #expect(await problem(text)?.message == "Request body must be valid JSON.")
    }

    @Test func wrongTypesNameTheField() async {
        #expect(await problem("{\"command\":5}")?.validations == [.init(field: "command", detail: "must be a string")])
        #expect(await problem("{\"env\":{\"A\":1}}")?.validations.first?.field == "env.A")
        #expect(await problem("{\"env\":[]}")?.validations.first?.field == "env")
        #expect(await problem("{\"count\":\"1\"}")?.validations.first?.detail == "must be a whole number")
    }

    @Test(arguments: ["1.5", "1e30", "-1e30", "9223372036854775808", "1e400", "0.1e-1"])
    func numbersThatAreNotWholeNameTheField(number: String) async {
        let whole = "must be a whole number"
        #expect(await problem("{\"count\":\(number)}")?.validations == [.init(field: "count", detail: whole)])
        #expect(await problem("{\"sizes\":[1,\(number)]}")?.validations.first?.detail == whole)
        // Nothing wants a number there.
        #expect(await problem("{\"other\":\(number)}") == nil)
    }

    @Test(arguments: ["[]", "\"x\"", "5", "null", "true", " [{}]", "nope"])
    func onlyObjects(text: String) async {
        #expect(await problem(text)?.status == .badRequest)
        #expect(await problem(text)?.message == "Request body must be valid JSON.")
        #expect(await problem(text)?.detail == "The body must be a JSON object.")
    }

    @Test func byteOrderMarksAreIgnored() async throws {
        #expect(try await decode([0xEF, 0xBB, 0xBF] + Array(" {\"command\":\"x\"}".utf8)) == Body(command: "x"))
    }

    @Test func invalidUTF8() async {
        for bytes: [UInt8] in [[0xFF], Array("{\"command\":\"".utf8) + [0xC3] + Array("\"}".utf8), [0xED, 0xA0, 0x80]] {
            await #expect(throws: HTTPProblem.self) { try await decode(bytes) }
        }
    }

    @Test func nestingAtBelowAndAbove() async {
        func nested(_ depth: Int) -> String {
            "{\"x\":" + String(repeating: "[", count: depth - 1) + String(repeating: "]", count: depth - 1) + "}"
        }
        #expect(await problem(nested(HTTPLimits.jsonDepth - 1)) == nil)
        #expect(await problem(nested(HTTPLimits.jsonDepth)) == nil)
        #expect(await problem(nested(HTTPLimits.jsonDepth + 1))?.status == .badRequest)
        #expect(await problem(String(repeating: "[", count: 1_000_000))?.status == .badRequest)
        // Brackets inside strings do not count.
        let text = "{\"command\":\"" + String(repeating: "[\\\"", count: 200) + "\"}"
        #expect(await problem(text) == nil)
    }

    @Test func valuesAtBelowAndAbove() async {
        func list(_ count: Int) -> String {
            "{\"x\":[" + String(repeating: "1,", count: count - 1) + "1]}"
        }
        // Brackets and commas: the object, the list and each number but the first come on top of one.
        let most = HTTPLimits.jsonValues - 2
        #expect(await problem(list(most - 1)) == nil)
        #expect(await problem(list(most)) == nil)
        let refusal = await problem(list(most + 1))
        #expect(refusal?.status == .contentTooLarge)
        #expect(refusal?.detail == "The body has more than \(HTTPLimits.jsonValues) values.")
        let empty = "{\"argv\":[" + String(repeating: "\"\",", count: 1_000_000) + "\"\"]}"
        #expect(await problem(empty)?.status == .contentTooLarge)
        // Commas inside strings do not count.
        #expect(await problem("{\"command\":\"" + String(repeating: ",", count: most + 9) + "\"}") == nil)
    }

    /// What is large is neither decoded nor looked through on the event loop.
    @Test func largeBodiesLeaveTheLoop() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        func isOnLoop(_ bytes: Int) async throws -> Bool {
            let text = "{\"x\":\"" + String(repeating: "y", count: bytes - 8) + "\"}"
            #expect(text.utf8.count == bytes)
            let head = HTTPRequest(method: .post, scheme: "http", authority: "localhost", path: "/")
            let request = Request(head: head, body: RequestBody(buffer: ByteBuffer(string: text)))
            return try await Task(executorPreference: EventLoopTaskExecutor(loop)) {
                try await request.decodeJSON(Body.self) { _ in loop.inEventLoop }
            }.value
        }
        #expect(try await isOnLoop(HTTPLimits.inlineJSONBytes - 1))
        #expect(try await isOnLoop(HTTPLimits.inlineJSONBytes))
        #expect(try await !isOnLoop(HTTPLimits.inlineJSONBytes + 1))
        try await group.shutdownGracefully()
    }

    @Test func contentTypes() async throws {
        let body = Array("{\"command\":\"x\"}".utf8)
        for type in [nil, "application/json", "application/json; charset=utf-8", "Application/JSON"] {
            #expect(try await decode(body, contentType: type) == Body(command: "x"))
        }
        for type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
            do {
                _ = try await decode(body, contentType: type)
                Issue.record("took \(type)")
            } catch {
                #expect((error as? HTTPProblem)?.status == .unsupportedMediaType)
            }
        }
    }
}

@Suite struct QueryTests {
    private func query(_ path: String, _ allowed: Set<String>) throws -> Query {
        let head = HTTPRequest(method: .get, scheme: "http", authority: "localhost", path: path)
        return try Query(Request(head: head, body: RequestBody(buffer: ByteBuffer())), allowed: allowed)
    }

    @Test func knownKeysAlone() throws {
        #expect(throws: HTTPProblem.self) { try query("/?x=1", []) }
        #expect(throws: HTTPProblem.self) { try query("/?wait=true&x=1", ["wait"]) }
        #expect(throws: HTTPProblem.self) { try query("/?wait=true&wait=true", ["wait"]) }
        #expect(try query("/?wait=true", ["wait"]).bool("wait") == true)
        #expect(try query("/", ["wait"]).bool("wait") == nil)
        #expect(try query("/?", []).bool("wait") == nil)
    }

    /// As Go, Python and browsers write a query.
    @Test func aPlusIsABlank() throws {
        for (text, value) in [
            ("a+b", "a b"), ("a%20b", "a b"), ("a%2Bb", "a+b"), ("%2b+", "+ "), ("=+=", "= ="), ("", ""),
            ("%E5%A5%BD", "好"),
        ] {
            #expect(try query("/?x=\(text)", ["x"])["x"] == value, "\(text)")
        }
        // In keys as well.
        #expect(try query("/?a+b=1&c%64=2", ["a b", "cd"])["a b"] == "1")
        #expect(throws: HTTPProblem.self) { try query("/?%78=1&x=2", ["x"]) }
        for text in ["%", "%4", "%zz", "100%", "%FF"] {
            #expect(throws: HTTPProblem.self, "\(text)") { try query("/?x=\(text)", ["x"]) }
        }
    }

    @Test func values() throws {
        for (text, value) in [("true", true), ("1", true), ("false", false), ("0", false)] {
            #expect(try query("/?b=\(text)", ["b"]).bool("b") == value)
        }
        for text in ["", "yes", "TRUE", "2"] {
            #expect(throws: HTTPProblem.self) { try query("/?b=\(text)", ["b"]).bool("b") }
        }
        for (text, good) in [
            ("0", false), ("1", true), ("5", true), ("6", false), ("-1", false), ("x", false), ("", false),
        ] {
            let parsed = try? query("/?n=\(text)", ["n"]).int("n", in: 1...5)
            #expect((parsed != nil) == good, "\(text)")
        }
        #expect(throws: HTTPProblem.self) { try query("/?n=99999999999999999999", ["n"]).int("n", in: 0...Int.max) }
    }
}

@Suite struct PathTests {
    @Test func escapesThatNeedNoneAreRemoved() {
        for (target, normalized) in [
            ("/%70rocesses/%7E%2d", "/processes/~-"), ("/a%2Fb%20c", "/a%2Fb%20c"), ("/%61?x=%61", "/a?x=%61"),
            ("/%", "/%"), ("/%7", "/%7"), ("/%zz%61", "/%zza"), ("/%25%36%31", "/%2561"), ("/好%61", "/好a"), ("*", "*"),
        ] {
            #expect(PercentEncoding.normalized(target: target) == normalized, "\(target)")
            #expect(PercentEncoding.normalized(target: normalized) == normalized, "once is enough")
        }
    }
}

@Suite struct RouteTableTests {
    private let table = RouteTable(entries: [
        .init(path: "/api/{id}/output", method: .get, bodyLimit: 1),
        .init(path: "/api/{id}/output", method: .post, bodyLimit: 9),
        .init(path: "/api/start", method: .post, bodyLimit: 8 << 20), .init(path: "/", method: .get, bodyLimit: 1),
        .init(path: "/up/load", method: .put, streamsBody: true),
        .init(path: "/ws", method: .get, isWebSocket: true),
    ])

    private func plan(_ method: HTTPRequest.Method, _ path: String) -> RoutePlan {
        table.plan(HTTPRequest(method: method, scheme: nil, authority: nil, path: path))
    }

    @Test func methodsAndLimitsByPath() {
        #expect(table.methods(of: "/api/7/output?x=1") == ["GET", "POST"])
        #expect(table.methods(of: "/") == ["GET"])
        #expect(table.methods(of: "/api") == [])
        #expect(plan(.post, "/api/start") == RoutePlan(bodyLimit: 8 << 20, changes: true))
        #expect(plan(.get, "/api/start") == RoutePlan(bodyLimit: 8 << 20), "a path's limit, whatever the method")
        #expect(plan(.get, "/api/7/output?x=1") == RoutePlan(bodyLimit: 9))
        #expect(plan(.get, "/other") == RoutePlan())
        #expect(plan(.put, "/up/load") == RoutePlan(streamsBody: true, changes: true))
        #expect(plan(.post, "/up/load") == RoutePlan())
        #expect(plan(.get, "/ws") == RoutePlan(isWebSocket: true))
    }
}
