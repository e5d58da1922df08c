import AgentTestSupport
import Foundation
import Glibc
import Testing

@Suite(.sharedDaemon) struct HTTPProtocolTests {
    private static let start = "POST /api/v0/processes/start HTTP/1.1\r\nHost: localhost\r\n"

    @Test func pipelinedRequestsAreAnsweredInOrder() throws {
        let (_, connection) = try shared()
        let id = try connection.start("sleep 0.2; echo waited")
        // The first takes long; the others must not overtake it.
        var text = "GET /api/v0/processes/\(id)/output?wait=true HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for number in 0..<50 { text += "GET /nowhere?\(number) HTTP/1.1\r\nHost: localhost\r\n\r\n" }
        text += "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        try connection.send(text)
        #expect(try connection.response().json["output"] as? String == "waited\n")
        for _ in 0..<50 { #expect(try connection.response().status == 404) }
        #expect(try connection.response().status == 200)
    }

    @Test func pipelinedBodiesDoNotMix() throws {
        let (_, connection) = try shared()
        var text = ""
        for number in 0..<20 {
            let body = #"{"command":"echo \#(number)"}"#
            text += Self.start + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)"
        }
        try connection.send(text)
        let ids = try (0..<20).map { _ in try #require(try connection.response().json["id"] as? String) }
        for (number, id) in ids.enumerated() {
            #expect(try connection.finish(id)["output"] as? String == "\(number)\n")
        }
    }

    @Test func keepsAliveUnlessAskedToClose() throws {
        let (_, connection) = try shared()
        for _ in 0..<5 { #expect(try connection.request("GET", "/").headers["connection"] != "close") }
        let last = try connection.request("GET", "/", headers: ["Connection": "close"])
        #expect(last.status == 200)
        #expect(last.headers["connection"] == "close")
        #expect(try connection.isAtEnd())
    }

    @Test func http10ClosesUnlessAskedToStay() throws {
        let (daemon, connection) = try shared()
        #expect(try connection.exchange("GET / HTTP/1.0\r\n\r\n").status == 200)
        #expect(try connection.isAtEnd())
        let staying = try daemon.connect()
        let request = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        #expect(try staying.exchange(request).headers["connection"] == "keep-alive")
        #expect(try staying.exchange(request).status == 200)
    }

    @Test func aHalfClosedClientIsAnswered() throws {
        let (daemon, _) = try shared()
        for connection in [try daemon.connect(), try daemon.connectTCP()] {
            let token = "Authorization: Bearer \(daemon.token)\r\n"
            try connection.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\(token)\r\n")
            connection.closeSending()
            #expect(try connection.response().status == 200)
            #expect(try connection.isAtEnd())
        }
    }

    @Test func aHalfClosedClientThatPostsIsAnswered() throws {
        let (_, connection) = try shared()
        try connection.send("POST", "/api/v0/processes/start", body: #"{"command":"true"}"#)
        connection.closeSending()
        let response = try connection.response()
        #expect(response.status == 200)
        #expect(response.json["started"] as? Bool == true)
        #expect(try connection.isAtEnd())
    }

    @Test func chunkedBody() throws {
        let (_, connection) = try shared()
        let chunks = [#"{"comm"#, #"and":"ec"#, #"ho chunked"}"#]
        var text = Self.start + "Transfer-Encoding: chunked\r\n\r\n"
        for chunk in chunks { text += "\(String(chunk.utf8.count, radix: 16))\r\n\(chunk)\r\n" }
        let id = try #require(try connection.exchange(text + "0\r\n\r\n").json["id"] as? String)
        #expect(try connection.finish(id)["output"] as? String == "chunked\n")
    }

    @Test func expectContinue() throws {
        let (_, connection) = try shared()
        let body = #"{"command":"echo continued"}"#
        try connection.send(Self.start + "Content-Length: \(body.utf8.count)\r\nExpect: 100-continue\r\n\r\n")
        let interim = try connection.receive(exactly: 25)
        #expect(String(decoding: interim, as: UTF8.self) == "HTTP/1.1 100 Continue\r\n\r\n")
        let response = try connection.exchange(body)
        #expect(response.status == 200)
        let id = try #require(response.json["id"] as? String)
        #expect(try connection.finish(id)["output"] as? String == "continued\n")
    }

    @Test func expectContinueOfATooLargeBodyIsRefusedAtOnce() throws {
        let (_, connection) = try shared()
        let response = try connection.exchange(Self.start + "Content-Length: 999999999\r\nExpect: 100-continue\r\n\r\n")
        #expect(response.status == 413)
    }

    /// The answer to what may be refused before all of it has come: who sends slowly is hung up on in the
    /// middle, and the answer is there all the same.
    private func answer(
        _ connection: RawConnection, to send: (RawConnection) throws -> Void
    ) throws -> RawConnection.Response {
        try? send(connection)
        return try connection.response()
    }

    /// A JSON body of so many bytes that names a process that does not exist.
    private func signalBody(_ bytes: Int) -> String {
        let frame = #"{"signal":"kill","x":""}"#
        return #"{"signal":"kill","x":""# + String(repeating: "x", count: bytes - frame.utf8.count) + #""}"#
    }

    @Test(arguments: [((1 << 20) - 1, 404), (1 << 20, 404), ((1 << 20) + 1, 413)])
    func bodyLimitOfOrdinaryRoutes(bytes: Int, status: Int) throws {
        let (daemon, connection) = try shared()
        let path = "/api/v0/processes/x/signal"
        let declared = try answer(connection) { try $0.send("POST", path, body: signalBody(bytes)) }
        #expect(declared.status == status)
        if status == 413 {
            #expect(declared.json["message"] as? String == "Request body is too large.")
            #expect(try connection.isAtEnd())
        }
        let chunked = try daemon.connect()
        try chunked.send("POST \(path) HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        let response = try answer(chunked) {
            try $0.send("\(String(bytes, radix: 16))\r\n\(signalBody(bytes))\r\n0\r\n\r\n")
        }
        #expect(response.status == status)
    }

    @Test(arguments: [((8 << 20) - 1, 200), (8 << 20, 200), ((8 << 20) + 1, 413)])
    func bodyLimitOfStart(bytes: Int, status: Int) throws {
        let (_, connection) = try shared()
        let frame = #"{"command":"true","x":""}"#
        let body = #"{"command":"true","x":""# + String(repeating: "x", count: bytes - frame.utf8.count) + #""}"#
        let response = try answer(connection) { try $0.send("POST", "/api/v0/processes/start", body: body) }
        #expect(response.status == status)
    }

    @Test func tenThousandHeaders() throws {
        let (_, connection) = try shared()
        let fields = (0..<10_000).map { "X-\($0): 1\r\n" }.joined()
        let response = try answer(connection) { try $0.send("GET / HTTP/1.1\r\nHost: localhost\r\n\(fields)\r\n") }
        #expect(response.status == 431)
        #expect(response.json["message"] as? String == "The request header is too large.")
    }

    @Test func headerBytes() throws {
        let (daemon, connection) = try shared()
        let fits = try connection.request("GET", "/", headers: ["X-Long": String(repeating: "x", count: 60 << 10)])
        #expect(fits.status == 200)
        let beyond = try answer(try daemon.connect()) {
            try $0.send("GET", "/", headers: ["X-Long": String(repeating: "x", count: 64 << 10)])
        }
        #expect(beyond.status == 431)
    }

    @Test(arguments: [(8 << 10, 400), ((8 << 10) + 1, 414), (60 << 10, 414)])
    func longURI(bytes: Int, status: Int) throws {
        let uri = "/?" + String(repeating: "x", count: bytes - 2)
        let response = try answer(try shared().connection) { try $0.send("GET", uri) }
        #expect(response.status == status)
    }

    @Test func aMegabyteOfURI() throws {
        let (_, connection) = try shared()
        let response = try answer(connection) { try $0.send("GET", "/?" + String(repeating: "x", count: 1 << 20)) }
        #expect([414, 431].contains(response.status))
    }

    @Test(arguments: [
        "garbage\r\n\r\n", "\u{0}\u{1}\u{2}\u{3}\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET\r\n\r\n",
        "GET / HTTP/1.1\r\nHost localhost\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", "\u{16}\u{3}\u{1}\u{2}\u{0}\r\n",
    ])
    func whatIsNotHTTP(bytes: String) throws {
        let (_, connection) = try shared()
        let response = try connection.exchange(bytes)
        #expect(response.status == 400)
        #expect(response.json["message"] is String)
        #expect(response.headers["connection"] == "close")
        #expect(try connection.isAtEnd())
    }

    @Test func aTruncatedBodyStartsNothing() async throws {
        let (daemon, connection) = try shared()
        let marker = "\(daemon.directory.path)/truncated"
        let body = RawConnection.json(["command": "touch \(marker)"])
        for extra in [1, 1000] {
            let cut = try daemon.connect()
            try cut.send(Self.start + "Content-Length: \(body.utf8.count + extra)\r\n\r\n" + body)
            cut.closeSending()
            #expect(try cut.response().status == 400)
            #expect(try cut.isAtEnd())
        }
        let chunked = try daemon.connect()
        let size = String(body.utf8.count, radix: 16)
        try chunked.send(Self.start + "Transfer-Encoding: chunked\r\n\r\n\(size)\r\n\(body)\r\n")
        chunked.closeSending()
        #expect(try chunked.response().status == 400)
        // What was wrongly started would have come before this one.
        #expect(try connection.run("true")["exit_code"] as? Int == 0)
        #expect(access(marker, F_OK) != 0)
    }
}
