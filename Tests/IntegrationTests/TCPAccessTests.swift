import AgentTestSupport
import Foundation
import Testing

@Suite(.sharedDaemon) struct TCPAccessTests {
    private func get(_ path: String, _ headers: [String: String] = [:]) throws -> RawConnection.Response {
        try shared().daemon.connectTCP().request("GET", path, headers: headers)
    }

    @Test func withTheToken() throws {
        let (daemon, _) = try shared()
        #expect(try get("/", daemon.authorization).status == 200)
        #expect(try get("/", ["Authorization": "bearer \(daemon.token)"]).status == 200)
        let connection = try daemon.connectTCP()
        let id = try #require(
            try connection.request(
                "POST", "/api/v0/processes/start", headers: daemon.authorization, body: #"{"command":"echo tcp"}"#
            ).json["id"] as? String)
        let answer = try connection.request(
            "GET", "/api/v0/processes/\(id)/output?wait=true", headers: daemon.authorization)
        #expect(answer.json["output"] as? String == "tcp\n")
    }

    @Test func withoutTheToken() throws {
        let response = try get("/")
        #expect(response.status == 401)
        #expect(response.json["message"] as? String == "A bearer token is required.")
        #expect(response.headers["www-authenticate"] == "Bearer")
        #expect(response.headers["workspace-agent-instance"] != nil)
        #expect(try get("/nowhere").status == 401)
        #expect(try get("/debug/prometheus").status == 401)
    }

    @Test func withAWrongToken() throws {
        let token = try shared().daemon.token
        let wrong = ["x", "\(token)x", String(token.dropLast()), token.lowercased() + "_", ""]
        for value in wrong where value != token {
            #expect(try get("/", ["Authorization": "Bearer \(value)"]).status == 401)
        }
        #expect(try get("/", ["Authorization": "Basic \(token)"]).status == 401)
        #expect(try get("/", ["Authorization": token]).status == 401)
        #expect(try get("/", ["X-Token": token]).status == 401)
    }

    @Test func healthzNeedsNoToken() throws {
        #expect(try get("/healthz").status == 200)
        #expect(try get("/healthz/").status != 200)
        #expect(try get("/healthz/../").status == 401)
        #expect(try get("//healthz").status == 401)
    }

    @Test(arguments: [
        "http://evil.example", "https://localhost.evil.example", "null", "http://localhost:1", "http://127.0.0.1:1",
        "file://", "nonsense",
    ])
    func otherOriginsAreRefused(origin: String) throws {
        let (daemon, connection) = try shared()
        var headers = daemon.authorization.merging(["Origin": origin]) { old, _ in old }
        headers["Host"] = "localhost:\(daemon.port)"
        let response = try get("/", headers)
        #expect(response.status == 403)
        #expect(response.json["message"] as? String == "Requests from other origins are refused.")
        #expect(!response.headers.keys.contains { $0.hasPrefix("access-control-") })
        let upgrade = ["Connection": "Upgrade", "Upgrade": "websocket"]
        #expect(try get("/", headers.merging(upgrade) { old, _ in old }).status == 403)
        #expect(try connection.request("GET", "/", headers: ["Origin": origin]).status == 403)
    }

    @Test func theSameOriginIsServed() throws {
        let (daemon, _) = try shared()
        for host in ["localhost:\(daemon.port)", "127.0.0.1:\(daemon.port)"] {
            let headers = daemon.authorization.merging(["Origin": "http://\(host)", "Host": host]) { old, _ in old }
            #expect(try get("/", headers).status == 200)
        }
    }

    @Test func aForeignHostIsRefused() throws {
        let (daemon, _) = try shared()
        for host in ["evil.example", "evil.example:\(daemon.port)", "localhost.evil.example"] {
            let response = try get("/", daemon.authorization.merging(["Host": host]) { _, new in new })
            #expect(response.status == 403)
            #expect(response.json["message"] is String)
            #expect(try get("/healthz", ["Host": host]).status == 403)
        }
        for host in [
            "localhost", "LOCALHOST", "127.0.0.1", "[::1]:80", "localhost:1", "localhost.", "[0:0:0:0:0:0:0:1]:80",
        ] {
            let response = try get("/", daemon.authorization.merging(["Host": host]) { _, new in new })
            #expect(response.status == 200)
        }
        let none = try daemon.connectTCP().exchange("GET /healthz HTTP/1.1\r\n\r\n")
        #expect(none.status == 400)
    }
}

/// What flags change of the access to TCP listeners.
@Suite(.blocking) struct TCPConfigurationTests {
    @Test func allowedHosts() throws {
        let daemon = try DaemonProcess(
            tcp: true, arguments: ["--http-allowed-host", "Box.example", "--http-allowed-host", "other.example"])
        for (host, status) in [
            ("box.example", 200), ("BOX.example:1", 200), ("other.example", 200), ("x.example", 403),
        ] {
            #expect(try daemon.connectTCP().request("GET", "/healthz", headers: ["Host": host]).status == status)
        }
    }

    @Test func allowedHostsOfTheEnvironment() throws {
        let daemon = try DaemonProcess(
            tcp: true, environment: ["WORKSPACE_AGENT_HTTP_ALLOWED_HOST": "a.example,b.example"])
        let response = try daemon.connectTCP().request("GET", "/healthz", headers: ["Host": "b.example"])
        #expect(response.status == 200)
    }

    @Test func noToken() async throws {
        let daemon = try DaemonProcess(tcp: true, arguments: ["--http-auth", "none"])
        #expect(try daemon.connectTCP().request("GET", "/").status == 200)
        #expect(try daemon.connectTCP().request("GET", "/", headers: ["Host": "evil.example"]).status == 403)
        #expect(try await daemon.logged("asks for no token").contains("WARN "))
        #expect(daemon.token == "")
    }

    @Test(arguments: ["0.0.0.0:0", "[::]:0"]) func noTokenForEverybodyNeedsTheSecondFlag(address: String) async throws {
        let directory = try TemporaryDirectory()
        let result = try CommandResult.ofAgent(
            "agent", "--http-address", address, "--http-auth", "none", "--http-socket", "\(directory.path)/s",
            "--state-dir", directory.path, "--log-dir", directory.path)
        #expect(result.code == 2)
        #expect(result.errors.contains("--http-auth-none-i-understand"))
        let daemon = try DaemonProcess(
            arguments: ["--http-address", address, "--http-auth", "none", "--http-auth-none-i-understand"])
        _ = try await daemon.logged("asks for no token")
    }

    @Test func tokenFile() async throws {
        let directory = try TemporaryDirectory()
        let file = "\(directory.path)/my-token"
        try "0123456789abcdef0123\n".write(toFile: file, atomically: false, encoding: .utf8)
        let daemon = try DaemonProcess(tcp: true, arguments: ["--http-token-file", file])
        let connection = try daemon.connectTCP()
        let headers = ["Authorization": "Bearer 0123456789abcdef0123"]
        #expect(try connection.request("GET", "/", headers: headers).status == 200)
        #expect(daemon.token == "", "a token file was made although one was given")
        #expect(try await daemon.stop() == 0)
        #expect(FileManager.default.fileExists(atPath: file))
    }

    @Test func aTokenFileThatIsNoUse() throws {
        let directory = try TemporaryDirectory()
        let file = "\(directory.path)/my-token"
        for content in [nil, "", "short\n"] {
            try content?.write(toFile: file, atomically: false, encoding: .utf8)
            let result = try CommandResult.ofAgent(
                "agent", "--http-address", "127.0.0.1:0", "--http-token-file", file, "--http-socket",
                "\(directory.path)/s", "--state-dir", directory.path, "--log-dir", directory.path)
            #expect(result.code == 1)
            #expect(result.errors.contains(file))
            #expect(result.errors.split(separator: "\n").count == 1)
        }
    }
}
