import AgentTestSupport
import Foundation
import Testing

/// What the decoder lets pass, byte by byte.
@Suite(.sharedDaemon) struct HTTPStrictnessTests {
    private static let signal = "POST /api/v0/processes/x/signal HTTP/1.1\r\nHost: localhost\r\n"
    private static let json = #"{"signal":"kill"}"#
    private static let chunks = "11\r\n\(json)\r\n0\r\n\r\n"

    @Test(arguments: ["Host: localhost\r\nHost: evil.example\r\n", "Host: localhost\r\nhost: localhost\r\n"])
    func twoHosts(fields: String) throws {
        let (daemon, connection) = try shared()
        let request = "GET / HTTP/1.1\r\nAuthorization: Bearer \(daemon.token)\r\n\(fields)\r\n"
        for connection in [connection, try daemon.connectTCP()] {
            let response = try connection.exchange(request)
            #expect(response.status == 400)
            #expect(response.json["message"] as? String == "The request has more than one Host header.")
        }
    }

    @Test func withoutAHost() throws {
        let (daemon, connection) = try shared()
        for connection in [connection, try daemon.connectTCP()] {
            let response = try connection.exchange("GET /healthz HTTP/1.1\r\n\r\n")
            #expect(response.status == 400)
            #expect(response.json["message"] as? String == "The request has no Host header.")
            // It is in step and goes on.
            #expect(try connection.exchange("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 200)
        }
        #expect(try daemon.connect().exchange("GET http://localhost/ HTTP/1.1\r\n\r\n").status == 400)
        // An empty one names no host, and HTTP/1.0 has none: on a socket that no page reaches both will do.
        #expect(try daemon.connect().exchange("GET / HTTP/1.1\r\nHost:\r\n\r\n").status == 200)
        #expect(try daemon.connect().exchange("GET / HTTP/1.0\r\n\r\n").status == 200)
    }

    @Test func escapesInPaths() throws {
        let (daemon, connection) = try shared()
        // Nothing documents these paths.
        let remote = try daemon.connectTCP()
        for one in [connection, remote] { one.contract = nil }
        let list = try connection.request("GET", "/api/v0/%70rocess%65s/list?limit=1")
        #expect(list.status == 200 && list.json["processes"] is [Any])
        // What it means decides who may ask and how much may come.
        #expect(try remote.request("GET", "/health%7A").status == 200)
        #expect(try remote.request("GET", "/api/v0/%70rocesses/list").status == 401)
        let body = #"{"command":"true","x":"\#(String(repeating: "x", count: 2 << 20))"}"#
        #expect(try connection.request("POST", "/api/v0/processes/%73tart", body: body).status == 200)
        #expect(try connection.request("GET", "/api/v0%2Fprocesses/list").status == 404)
        #expect(try connection.request("GET", "/api/v0/processes/%zz").status == 404)
    }

    @Test func aPlusInAQueryIsABlank() throws {
        let (_, connection) = try shared()
        let id = try connection.start("echo 'server is up: 1+1'; sleep 1000")
        func match(_ pattern: String) throws -> [String: Any] {
            let path = "\(RawConnection.processes)/\(id)/wait?for=output&timeout_ms=60000&pattern=\(pattern)"
            return try connection.request("GET", path).json
        }
        #expect(try match("server+is+up")["match"] as? String == "server is up")
        #expect(try match("1%5C%2B1")["match"] as? String == "1+1")
        #expect(try connection.request("GET", "/api/v0/processes/list?limit=%").status == 400)
        _ = try connection.signal(id, "kill")
    }

    @Test func absoluteTargets() throws {
        let (daemon, connection) = try shared()
        func status(_ target: String, host: String = "localhost") throws -> Int {
            let fields = "Host: \(host)\r\nAuthorization: Bearer \(daemon.token)\r\n"
            return try daemon.connectTCP().exchange("GET \(target) HTTP/1.1\r\n\(fields)\r\n").status
        }
        #expect(try status("http://localhost/") == 200)
        #expect(try status("HTTP://LOCALHOST:\(daemon.port)") == 200)
        #expect(try status("http://127.0.0.1:\(daemon.port)/debug/logs") == 200)
        #expect(try status("http://localhost?nonsense=1") == 400)
        #expect(try status("http://localhost/nowhere") == 404)
        #expect(try status("http://evil.example/") == 403)
        #expect(try status("http://localhost.evil.example/") == 403)
        #expect(try status("http://localhost/", host: "evil.example") == 403)
        for bad in ["http://", "http:///", "http://a@localhost/", "http://localhost:x/", "ftp://localhost/"] {
            #expect(try status(bad) == 400, "\(bad)")
        }
        // Their route and its limits are those of the path.
        let healthz = "GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        #expect(try daemon.connectTCP().exchange(healthz).status == 200)
        let body = #"{"command":"true","x":"\#(String(repeating: "x", count: 2 << 20))"}"#
        try connection.send("POST", "http://localhost/api/v0/processes/start", body: body)
        #expect(try connection.response().status == 200)
    }

    @Test(arguments: [
        ("chunked", 404), ("CHUNKED", 404), (" chunked", 404), ("chunked \t", 400), ("gzip", 501),
        ("gzip, chunked", 501),
        ("identity", 501), ("xchunked", 501), ("chunked, chunked", 400), ("chunked, gzip", 400), ("", 400), (",", 400),
        ("chunked;x=1", 400),
    ])
    func transferCodings(coding: String, status: Int) throws {
        let (_, connection) = try shared()
        try connection.send(Self.signal + "Transfer-Encoding: \(coding)\r\n\r\n" + Self.chunks)
        let response = try connection.response()
        #expect(response.status == status)
        #expect(response.json["message"] is String)
        guard status != 404 else { return }
        #expect(response.headers["connection"] == "close")
        #expect(try connection.isAtEnd())
    }

    @Test func transferCodingsThatAreAmbiguous() throws {
        let (daemon, _) = try shared()
        for fields in [
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 17\r\n",
            "Content-Length: 17\r\nTransfer-Encoding: chunked\r\n",
        ] {
            let connection = try daemon.connect()
            try connection.send(Self.signal + fields + "\r\n" + Self.chunks)
            #expect(try connection.response().status == 400, "\(fields)")
            #expect(try connection.isAtEnd())
        }
        let old = Self.signal.replacingOccurrences(of: "HTTP/1.1", with: "HTTP/1.0")
        let connection = try daemon.connect()
        try connection.send(old + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + Self.chunks)
        #expect(try connection.response().status == 400)
        #expect(try connection.isAtEnd())
    }

    @Test(arguments: [-1, 0, 1]) func chunkExtensions(excess: Int) throws {
        let (_, connection) = try shared()
        let text = String(repeating: "x", count: (16 << 10) + excess - 1)
        try? connection.send(
            Self.signal + "Transfer-Encoding: chunked\r\n\r\n11;\(text)\r\n\(Self.json)\r\n0\r\n\r\n")
        let response = try connection.response()
        #expect(response.status == (excess > 0 ? 413 : 404))
        #expect(response.headers["connection"] == (excess > 0 ? "close" : nil))
    }

    /// The chunk itself never comes.
    @Test(arguments: [
        ("ffffffffffffffff", 400), ("8000000000000000", 400), ("10000000000000000", 400), ("7fffffffffffffff", 413),
        ("100001", 413),
    ])
    func chunksThatAreTooLargeAreAnsweredAtOnce(size: String, status: Int) throws {
        let (daemon, connection) = try shared()
        let head = Self.signal + "Transfer-Encoding: chunked\r\n\r\n"
        #expect(try connection.exchange(head + "\(size)\r\n").status == status)
        // Behind requests that are whole, after their answers.
        let pipelined = try daemon.connect()
        try pipelined.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n" + head + Self.chunks + head + "1\r\n \r\n\(size)\r\n")
        #expect(try (0..<3).map { _ in try pipelined.response().status } == [200, 404, status])
        #expect(try pipelined.isAtEnd())
    }

    @Test func aLengthThatFitsNoInteger() throws {
        let (_, connection) = try shared()
        #expect(try connection.exchange(Self.signal + "Content-Length: 9223372036854775808\r\n\r\n").status == 413)
    }

    @Test func http10KnowsNoUpgrade() throws {
        let (daemon, _) = try shared()
        func answer(_ path: String, _ version: String) throws -> RawConnection.Response {
            try daemon.connect().exchange(
                "GET \(path) \(version)\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                    + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        }
        #expect(try answer("/api/v0/git/watch", "HTTP/1.1").status == 101)
        #expect(try answer("/api/v0/git/watch", "HTTP/1.0").status == 426)
        #expect(try answer("/", "HTTP/1.0").status == 200)
    }

    @Test func aBodyWithoutAType() throws {
        let (daemon, connection) = try shared()
        let length = "Content-Length: \(Self.json.utf8.count)\r\n"
        #expect(try connection.exchange(Self.signal + length + "\r\n" + Self.json).status == 404)
        let token = "Authorization: Bearer \(daemon.token)\r\n"
        for framing in [length + "\r\n" + Self.json, "Transfer-Encoding: chunked\r\n\r\n" + Self.chunks] {
            #expect(try daemon.connectTCP().exchange(Self.signal + token + framing).status == 404)
        }
        // Another type is not JSON, whatever the token says.
        let text = "Content-Type: text/plain\r\n"
        let response = try daemon.connectTCP().exchange(Self.signal + token + text + length + "\r\n" + Self.json)
        #expect(response.status == 415)
        #expect(response.json["message"] as? String == "Content-Type must be application/json.")
        let typed = Self.signal + token + "Content-Type: application/json\r\n" + length + "\r\n" + Self.json
        #expect(try daemon.connectTCP().exchange(typed).status == 404)
        #expect(try daemon.connectTCP().exchange(Self.signal + length + "\r\n" + Self.json).status == 401)
    }

    @Test(arguments: ["1.5", "1e30", "9223372036854775808"]) func numbersThatAreNotWhole(number: String) throws {
        let (_, connection) = try shared()
        let start = try connection.request(
            "POST", "/api/v0/processes/start", body: #"{"command":"true","timeout_ms":\#(number)}"#)
        #expect(start.status == 400)
        #expect(start.text.contains(#"{"detail":"must be a whole number","field":"timeout_ms"}"#), "\(start.text)")
        let action = try connection.request(
            "POST", "/api/v0/desktop/action", body: #"{"action":"wait","duration":\#(number)}"#)
        #expect(action.status == 400)
        #expect(action.text.contains("duration"), "\(action.text)")
    }

    @Test(arguments: [
        "/api/v0/processes/start", "/api/v0/processes/x/signal", "/api/v0/desktop/action",
        "/api/v0/desktop/recording/start",
    ])
    func bodiesThatAreNoObject(path: String) throws {
        let (_, connection) = try shared()
        for body in ["[]", "5", "\"x\"", "null"] {
            let response = try connection.request("POST", path, body: body)
            #expect(response.status == 400)
            #expect(response.json["detail"] as? String == "The body must be a JSON object.", "\(response.text)")
        }
    }

    @Test func theQueryTokenIsForWebSocketRoutesOnly() throws {
        let (daemon, _) = try shared()
        let upgrade = [
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        ]
        func status(_ path: String, _ headers: [String: String], method: String = "GET") throws -> Int {
            try daemon.connectTCP().request(method, "\(path)?token=\(daemon.token)", headers: headers).status
        }
        #expect(try status("/api/v0/git/watch", upgrade) == 101)
        #expect(try status("/api/v0/git/watch", [:]) == 401)
        #expect(try status("/api/v0/git/watch", ["Upgrade": "websocket"]) == 401)
        #expect(try status("/api/v0/git/watch", upgrade, method: "POST") == 401)
        for path in ["/", "/debug/logs", "/nowhere", "/api/v0/processes/list", "/api/v0/desktop/status"] {
            #expect(try status(path, upgrade) == 401, "\(path)")
            #expect(try status(path, [:]) == 401, "\(path)")
        }
        let file = "/api/v0/desktop/viewer/core/rfb.js"
        #expect(try status(file, upgrade) == 401)
        #expect(try status(file, [:]) == 401)
    }
}
