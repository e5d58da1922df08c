import AgentCore
import AgentTestSupport
import NIOCore
import Testing

@testable import ControlPlane

@Suite struct RESTTests {
    private func withREST<T: Sendable>(
        _ script: @escaping StandIn.Script, times: DialTimes = DialTimes(),
        clock: AgentClock = AgentClock(ContinuousClock()),
        _ body: (ControlPlaneREST, StandIn) async throws -> T
    ) async throws -> T {
        let server = try await StandIn(script)
        let link = DialTest.link(
            try DialTest.configuration("http://127.0.0.1:\(server.port)/base") {
                $0.headers = ["X-Extra": "1"]
                $0.times = times
            }, clock: clock)
        let result: Result<T, any Error>
        do { result = .success(try await body(link.rest, server)) } catch { result = .failure(error) }
        await link.shutdown()
        await server.stop()
        return try result.get()
    }

    private func error(_ script: @escaping StandIn.Script) async throws -> ControlPlaneError {
        do {
            _ = try await withREST(script) { rest, _ in try await rest.gitSSHKey() }
        } catch let error as ControlPlaneError {
            #expect(!"\(error)".contains("SECRET"), "\(error)")
            return error
        }
        throw DeadlineExceeded(what: "an error")
    }

    @Test func gitSSHKey() async throws {
        try await withREST({ $1.answer(200, #"{"public_key":"pub","private_key":"hidden"}"#) }) { rest, server in
            let key = try await rest.gitSSHKey()
            #expect(key.publicKey == "pub" && key.privateKey.reveal() == "hidden" && !"\(key)".contains("hidden"))
            let request = try #require(server.requests.first)
            #expect(request.uri == "/base/api/v2/workspaceagents/me/gitsshkey")
            #expect(request.headers["Coder-Session-Token"] == [testToken] && request.headers["X-Extra"] == ["1"])
        }
    }

    @Test func externalAuthAsksWithEverythingEscaped() async throws {
        let body = """
            {"access_token":"t","token_extra":{"a":1},"url":"","type":"github","expires_at":"2026-01-01T00:00:00Z",
             "username":"u","password":"p"}
            """
        try await withREST({ $1.answer(200, body) }) { rest, server in
            var request = ControlPlaneREST.ExternalAuthRequest()
            request.match = "https://github.com/a b&c?d=é"
            request.listen = true
            request.gitBranch = "feature/x"
            request.gitRemoteOrigin = "git@github.com:o/r.git"
            request.chatID = "c-1"
            let answer = try await rest.externalAuth(request)
            #expect(answer.accessToken.reveal() == "t" && answer.password.reveal() == "p" && answer.username == "u")
            #expect(answer.tokenExtra?.reveal() == #"{"a":1}"# && !"\(answer)".contains(#""a""#))
            #expect(answer.type == "github" && answer.expiresAt == "2026-01-01T00:00:00Z" && answer.url == "")
            #expect(
                server.requests.first?.uri
                    == "/base/api/v2/workspaceagents/me/external-auth?match=https%3A%2F%2Fgithub.com%2Fa%20b%26c%3Fd%3D%C3%A9"
                    + "&listen=true&git_branch=feature%2Fx&git_remote_origin=git%40github.com%3Ao%2Fr.git&chat_id=c-1")
        }
    }

    @Test func externalAuthByIDNamesTheEmptyMatch() async throws {
        let body = "{\n\"url\":\"\",\"access_token\":\"t\"}"
        try await withREST({ $1.answer(200, body) }) { rest, server in
            var request = ControlPlaneREST.ExternalAuthRequest()
            request.id = "git hub"
            let answer = try await rest.externalAuth(request)
            #expect(answer.answer.reveal() == body && !"\(answer)".contains("access_token"))
            #expect(
                server.requests.first?.uri == "/base/api/v2/workspaceagents/me/external-auth?id=git%20hub&match=")
        }
    }

    @Test func fieldsOfWhatComesWithAToken() async throws {
        let extra = #"{"user":{"id":"U1","n":7,"none":null,"list":["a",{"b":true}]},"s":"a \"b\""}"#
        try await withREST({ $1.answer(200, #"{"access_token":"t","token_extra":\#(extra)}"#) }) { rest, _ in
            let answer = try await rest.externalAuth(.init())
            let cases = [
                ("s", #"a "b""#), ("user.id", "U1"), ("user.n", "7"), ("user.list.0", "a"), ("user.list.1.b", "true"),
                ("user.list.1", #"{"b":true}"#), ("user.none", nil), ("user.id.x", nil), ("user.list.2", nil),
                ("user.list.x", nil), ("", nil), (".", nil), ("other", nil),
            ]
            for (path, expected) in cases { #expect(answer.extra(path)?.reveal() == expected, "\(path)") }
        }
    }

    @Test func whatComesWithATokenIsPassedOnAsItIs() async throws {
        let extra = #"{"b":[1,-2.5,1e300,"é/"],"a":{"deep":{"n":9007199254740993,"t":true,"none":null}}}"#
        let deep = String(repeating: "[", count: 40) + String(repeating: "]", count: 40)
        let cases = [
            (extra, #"{"a":{"deep":{"n":9007199254740993,"none":null,"t":true}},"b":[1,-2.5,1e+300,"é/"]}"#),
            ("null", nil), (#""text""#, #""text""#), ("{}", "{}"), (deep, nil),
        ]
        for (given, expected) in cases {
            let body = #"{"access_token":"t","token_extra":\#(given)}"#
            try await withREST({ $1.answer(200, body) }) { rest, _ in
                let answer = try await rest.externalAuth(.init())
                #expect(answer.tokenExtra?.reveal() == expected)
                #expect(answer.accessToken.reveal() == "t")
            }
        }
        try await withREST({ $1.answer(200, "{}") }) { rest, _ in
            let answer = try await rest.externalAuth(.init())
            #expect(answer.tokenExtra == nil)
        }
    }

    @Test func failuresAreNamed() async throws {
        let refused = try await error { $1.answer(403, #"{"message":"not yours"}"#) }
        #expect(refused.code == .http(403) && refused.message.contains("not yours"))
        #expect(try await error { $1.answer(307, "", ["Location: http://elsewhere/"]) }.code == .http(307))
        #expect(try await error { $1.answer(200, #"{"private_key":"SECRET"}"#) }.code == .protocolViolation)
        #expect(try await error { $1.answer(200, "<html>SECRET") }.code == .protocolViolation)
        #expect(try await error { $1.close() }.code == .unreachable)
        #expect(try await error { $1.send("SSH-2.0\r\n\r\n") }.code == .unreachable)
        let large = String(repeating: "x", count: DialLimits.bodyBytes + 1)
        #expect(try await error { $1.answer(200, large) }.code == .protocolViolation)
        #expect(try await error { $1.answer(500, large) }.code == .http(500))
    }

    @Test func aRequestThatHangsIsGivenUp() async throws {
        for start in ["", "HTTP/1.1 200 OK\r\nContent-Len", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{"] {
            var times = DialTimes()
            times.request = .milliseconds(100)
            await #expect(throws: ControlPlaneError(.timeout, "")) {
                try await withREST({ $1.send(start) }, times: times) { rest, _ in try await rest.gitSSHKey() }
            }
        }
    }

    // MARK: Reinit

    private static let claimed = #"{"workspace_id":"w","reason":"prebuild_claimed","owner_id":"o"}"#
    private static let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

    @Test func reinitReadsTheEventFromTheStream() async throws {
        try await withREST({ _, connection in
            connection.send(Self.head + ": hello\r\nevent: ping\r\ndata: x\r\n\r\n")
            connection.send("event: data\ndata: {\"workspace_id\":\"w\",")
            connection.send("\ndata: \"reason\":\"prebuild_claimed\",\"owner_id\":\"o\"}\n\n")
        }) { rest, server in
            let answer = try await rest.reinit()
            #expect(
                answer == ReinitNotice(workspaceID: "w", reason: "prebuild_claimed", ownerID: "o"))
            #expect(server.requests.first?.uri == "/base/api/v2/workspaceagents/me/reinit?wait=true")
            #expect(server.requests.first?.headers["Accept"] == ["text/event-stream"])
        }
    }

    @Test func whatIsNoEventIsAnError() async throws {
        let cases: [(StandIn.Script, ControlPlaneError.Code)] = [
            ({ $1.answer(409, "{}") }, .http(409)),
            ({ $1.answer(401, #"{"message":"who"}"#) }, .http(401)), ({ $1.answer(404) }, .http(404)),
            ({ $1.answer(200, "data: {}\n\n") }, .protocolViolation),
            ({ $1.answer(200, "data: \(Self.claimed)") }, .unreachable),
            ({ $1.answer(200, "event: error\ndata: {\"message\":\"x\"}\n\n") }, .unreachable),
            ({ $1.close() }, .unreachable),
            ({ $1.answer(200, String(repeating: "x", count: DialLimits.eventBytes + 1)) }, .protocolViolation),
        ]
        for (script, code) in cases {
            await #expect(throws: ControlPlaneError(code, "")) {
                try await withREST(script) { rest, _ in try await rest.reinit() }
            }
        }
    }

    @Test func aSilentStreamIsGivenUpAndACancelledOneEnds() async throws {
        let time = ManualClock()
        await #expect(throws: ControlPlaneError(.timeout, "")) {
            try await withREST({ $1.send(Self.head) }, clock: AgentClock(time)) { rest, server in
                async let answer = rest.reinit()
                try await eventually("the request") { server.requests.count == 1 }
                await time.sleepers(1)
                time.advance(by: .seconds(600))
                return try await answer
            }
        }
        try await withREST({ $1.send(Self.head) }) { rest, server in
            let wait = Task { try await rest.reinit() }
            try await eventually("the request") { server.requests.count == 1 }
            wait.cancel()
            let result = await wait.result
            #expect(throws: (any Error).self) { try result.get() }
        }
    }
}
