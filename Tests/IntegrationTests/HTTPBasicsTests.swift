import AgentTestSupport
import Testing

@Suite(.sharedDaemon) struct HTTPBasicsTests {
    @Test func hello() throws {
        let response = try shared().connection.request("GET", "/")
        #expect(response.status == 200)
        #expect(response.text == #"{"message":"Hello from the agent!"}"#)
        #expect(response.headers["content-type"] == "application/json; charset=utf-8")
        #expect(response.headers["date"]?.hasSuffix(" GMT") == true)
    }

    @Test func healthIsOKWhenStandaloneAndSaysSo() throws {
        let response = try shared().connection.request("GET", "/healthz")
        #expect(response.status == 200)
        #expect(response.json["status"] as? String == "ok")
        let reasons = try #require(response.json["reasons"] as? [String])
        #expect(reasons.contains { $0.hasPrefix("control plane: standalone") })
    }

    @Test(arguments: ["/nowhere", "/api/v0/processes", "/api/v0/processes/", "/api/v1/processes/list", "//"])
    func unknownRoute(path: String) throws {
        let response = try shared().connection.request("GET", path)
        guard path != "//" else { return #expect([200, 404].contains(response.status)) }
        #expect(response.status == 404)
        #expect(response.text == #"{"message":"Route not found."}"#)
        #expect(response.headers["content-type"] == "application/json; charset=utf-8")
        #expect(response.headers["workspace-agent-instance"] != nil)
    }

    @Test(arguments: [
        ("POST", "/", "GET"), ("DELETE", "/healthz", "GET"), ("GET", "/api/v0/processes/start", "POST"),
        ("PUT", "/api/v0/processes/list", "GET"), ("GET", "/api/v0/processes/x/signal", "POST"),
        ("PATCH", "/api/v0/processes/x/output", "GET"), ("OPTIONS", "/", "GET"),
    ])
    func wrongMethod(method: String, path: String, allow: String) throws {
        let response = try shared().connection.request(method, path)
        #expect(response.status == 405)
        #expect(response.headers["allow"] == allow)
        #expect(response.json["message"] as? String == "Method \(method) is not allowed here.")
        #expect(response.json.count == 1)
    }

    @Test(arguments: [
        "/", "/healthz", "/debug/prometheus", "/debug/logs", "/debug/manifest", "/api/v0/listening-ports",
        "/api/v0/processes/list", "/api/v0/processes/tokens/x", "/api/v0/processes/x/output",
        "/api/v0/processes/x/output/raw",
    ])
    func unknownQueryKey(path: String) throws {
        let response = try shared().connection.request("GET", "\(path)?nonsense=1")
        #expect(response.status == 400)
        #expect(response.json["message"] as? String == "Unknown query parameter \"nonsense\".")
    }

    @Test(arguments: ["start", "x/signal"]) func unknownQueryKeyOfPosts(path: String) throws {
        let response = try shared().connection.request("POST", "/api/v0/processes/\(path)?a=b", body: "{}")
        #expect(response.status == 400)
        #expect(response.json["message"] as? String == "Unknown query parameter \"a\".")
    }

    @Test(arguments: [
        ("/api/v0/processes/list?limit=0", "limit"), ("/api/v0/processes/list?limit=1001", "limit"),
        ("/api/v0/processes/list?limit=ten", "limit"), ("/api/v0/processes/list?running=maybe", "running"),
        ("/api/v0/processes/x/output?wait=perhaps", "wait"),
        ("/api/v0/processes/x/output?wait=true&timeout_ms=300001", "timeout_ms"),
        ("/api/v0/processes/x/output?wait=true&timeout_ms=-1", "timeout_ms"),
        ("/api/v0/processes/x/output/raw?offset=-1", "offset"),
        ("/api/v0/processes/x/output/raw?limit=0", "limit"),
        ("/api/v0/processes/x/output/raw?offset=99999999999999999999", "offset"),
    ])
    func badQueryValueNamesItsField(path: String, field: String) throws {
        let response = try shared().connection.request("GET", path)
        #expect(response.status == 400)
        let validations = try #require(response.json["validations"] as? [[String: String]])
        #expect(validations.count == 1)
        #expect(validations.first?["field"] == field)
        #expect(validations.first?["detail"]?.isEmpty == false)
    }

    @Test func aQueryKeyGivenTwice() throws {
        let response = try shared().connection.request("GET", "/api/v0/processes/list?limit=1&limit=2")
        #expect(response.status == 400)
    }

    @Test func manifestBeforeThereIsOne() throws {
        let response = try shared().connection.request("GET", "/debug/manifest")
        #expect(response.status == 500)
        #expect(response.text == #"{"message":"no manifest in-memory"}"#)
    }

    @Test func instanceIsOnEveryAnswerOfALife() throws {
        let (daemon, connection) = try shared()
        let first = try #require(try connection.request("GET", "/").headers["workspace-agent-instance"])
        #expect(first.count == 36)
        #expect(first == first.lowercased())
        for path in ["/healthz", "/nowhere", "/debug/logs", "/debug/manifest", "/?a=b"] {
            #expect(try connection.request("GET", path).headers["workspace-agent-instance"] == first)
        }
        #expect(try daemon.connect().exchange("garbage\r\n\r\n").headers["workspace-agent-instance"] == first)
        #expect(try daemon.connectTCP().request("GET", "/").headers["workspace-agent-instance"] == first)
    }

    @Test func instanceIsNewInTheNextLife() async throws {
        let first = try DaemonProcess()
        let before = try first.connect().request("GET", "/").headers["workspace-agent-instance"]
        #expect(try await first.stop() == 0)
        let second = try DaemonProcess(directory: first.directory)
        let after = try second.connect().request("GET", "/").headers["workspace-agent-instance"]
        #expect(before != nil && after != nil && before != after)
    }

    @Test func aMalformedChatIDIsNoChat() throws {
        let (_, connection) = try shared()
        let id = try connection.start("true", chat: newChat())
        for chat in ["nonsense", "123", "{}"] { #expect(try connection.output(id, chat: chat).status == 200) }
    }

    @Test func badAncestorsAreNoError() throws {
        let (_, connection) = try shared()
        for ancestors in ["[", "{}", #"["x", 1, null]"#, #"["00000000-0000-4000-8000-000000000000"]"#] {
            let response = try connection.request(
                "GET", "/api/v0/processes/list",
                headers: ["Coder-Chat-Id": newChat(), "Coder-Ancestor-Chat-Ids": ancestors])
            #expect(response.status == 200)
        }
    }
}
