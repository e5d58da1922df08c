import AgentTestSupport
import Foundation
import Testing

/// docs/openapi.yaml and the daemon say the same. That answers are as it says is checked where they are got:
/// ``RawConnection`` holds each one against it.
@Suite(.blocking) struct OpenAPITests {
    @Test func everyRouteIsDocumentedAndEveryDocumentedRouteIsThere() async throws {
        let contract = try #require(APIContract.documented)
        let daemon = try DaemonProcess(logLevel: "trace")
        let line = try #require(daemon.log.split(separator: "\n").first { $0.contains(" routes ") })
        let pattern = /(GET|HEAD|POST|PUT|PATCH|DELETE) \/[^ ,"]*/
        let served = Set(line.matches(of: pattern).map { String($0.output.0) })
        try #require(served.count > 30)
        #expect(served.subtracting(contract.operations) == [], "not in docs/openapi.yaml")
        #expect(contract.operations.subtracting(served) == [], "not in the daemon")
        #expect(try await daemon.stop() == 0)
    }

    @Test func theDaemonServesTheDocument() async throws {
        let daemon = try DaemonProcess()
        let answer = try daemon.connect().request("GET", "/openapi.json")
        #expect(answer.status == 200)
        #expect(answer.headers["content-type"] == "application/json; charset=utf-8")
        let served = try #require(APIContract(answer.body))
        #expect(served.operations == APIContract.documented?.operations)
        #expect(answer.json["openapi"] as? String == "3.1.0")
        #expect(try await daemon.stop() == 0)
    }

    /// The check of schemas knows every keyword that the document uses, so that none is passed over in silence.
    @Test func everyKeywordOfTheSchemasIsChecked() throws {
        let contract = try #require(APIContract.documented)
        var found: Set<String> = []
        func schema(_ value: Any) {
            guard let object = value as? [String: Any] else { return }
            found.formUnion(object.keys)
            for (_, property) in object["properties"] as? [String: Any] ?? [:] { schema(property) }
            for part in (object["allOf"] as? [Any] ?? []) + (object["anyOf"] as? [Any] ?? []) { schema(part) }
            if let items = object["items"] { schema(items) }
            if let others = object["additionalProperties"] { schema(others) }
        }
        func walk(_ value: Any) {
            if let array = value as? [Any] { array.forEach(walk) }
            guard let object = value as? [String: Any] else { return }
            for (key, value) in object { key == "schema" ? schema(value) : walk(value) }
        }
        walk(contract.document)
        let schemas = (contract.document["components"] as? [String: Any])?["schemas"] as? [String: Any] ?? [:]
        schemas.values.forEach(schema)
        #expect(found.count > 10)
        #expect(found.subtracting(SchemaCheck.keywords) == [])
    }

    /// A document that lacks something must be noticed.
    @Test(arguments: [
        (["paths", "/healthz"], "the path is not documented"),
        (["paths", "/healthz", "get"], "GET is not documented"),
        (["paths", "/healthz", "get", "responses", "200"], "the status 200 is not documented"),
        (["components", "schemas", "Health", "properties", "reasons"], "body.reasons is not documented"),
    ])
    func whatIsMissingIsNoticed(_ place: [String], _ problem: String) throws {
        let contract = try #require(APIContract.documented)
        var answer = RawConnection.Response()
        answer.status = 200
        answer.headers = ["content-type": "application/json; charset=utf-8", "workspace-agent-instance": "x"]
        answer.body = Data(#"{"status":"ok","reasons":[]}"#.utf8)
        #expect(contract.problems("GET", "/healthz", answer) == [])
        let poorer = APIContract(Self.without(contract.document, place[...]))
        #expect(poorer.problems("GET", "/healthz", answer) == [problem])

        answer.body = Data(#"{"status":"splendid","reasons":[1,true]}"#.utf8)
        #expect(
            contract.problems("GET", "/healthz", answer).sorted() == [
                "body.reasons[0] is integer, not string", "body.reasons[1] is boolean, not string",
                "body.status is splendid, which is not documented",
            ])
    }

    private static func without(_ object: [String: Any], _ place: ArraySlice<String>) -> [String: Any] {
        var object = object
        guard let name = place.first else { return object }
        let rest = place.dropFirst()
        object[name] = rest.isEmpty ? nil : (object[name] as? [String: Any]).map { without($0, rest) }
        return object
    }
}
