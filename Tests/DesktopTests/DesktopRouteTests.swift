import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

@testable import Desktop

@Suite(.timeLimit(.minutes(15))) struct DesktopRouteTests {
    private static let vnc = "/api/v0/desktop/vnc"
    private static let viewer = "/api/v0/desktop/viewer"
    private static let upgrade = [
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": Data((0..<16).map { UInt8($0) }).base64EncodedString(),
    ]

    @Test func whatIsWrongStartsNoDesktop() async throws {
        try await withServer(SessionWorld()) { server in
            try await server.blocking { server in
                let cases: [(String, Int, String)] = [
                    (#"{"action":"dance"}"#, 400, "Unknown action: dance"),
                    (#"{"action":"left_click"}"#, 400, #"Missing "coordinate" for left_click action."#),
                    (
                        #"{"action":"scroll","coordinate":[1,2],"scroll_direction":"in"}"#, 400,
                        "Invalid scroll direction: in"
                    ),
                    ("{", 400, "Failed to decode request body."),
                ]
                for (body, status, message) in cases {
                    let answer = try server.action(body)
                    #expect(answer.status == status && answer.json["message"] as? String == message, "\(answer.text)")
                }
                let form = try server.connect().request(
                    "POST", "/api/v0/desktop/action", headers: ["Content-Type": "text/plain"],
                    body: #"{"action":"screenshot"}"#)
                #expect(form.status == 415)
                #expect(try server.connect().request("GET", Self.vnc).status == 426)
                let query = try server.connect().request("GET", "\(Self.vnc)?width=1", headers: Self.upgrade)
                #expect(query.status == 400)
                let large = try server.connect().request(
                    "POST", "/api/v0/desktop/action", body: String(repeating: " ", count: (1 << 20) + 1))
                #expect(large.status == 413)
                let wait = try server.action(#"{"action":"wait","duration":1}"#)
                #expect(wait.status == 200 && wait.json["output"] as? String == "wait action performed", "\(wait.text)")
            }
            #expect(server.world.calls("up") == 0 && server.world.session.current == nil)
            let status = try await server.blocking { try $0.connect().request("GET", "/api/v0/desktop/status").text }
            #expect(
                status
                    == #"{"height":null,"recordings":3,"running":false,"since":null,"viewers":0,"vnc_port":null,"width":null}"#
            )
        }
    }

    @Test func actionsGoToTheDesktop() async throws {
        try await withServer(SessionWorld()) { server in
            try await server.blocking { server in
                let click = try server.action(#"{"action":"left_click","coordinate":[5,6]}"#)
                #expect(
                    click.status == 200 && click.text == #"{"output":"left_click action performed"}"#, "\(click.text)")
                let status = try server.connect().request("GET", "/api/v0/desktop/status").json
                #expect(status["running"] as? Bool == true && status["width"] as? Int == 640)
                #expect(status["height"] as? Int == 480 && (status["vnc_port"] as? Int ?? 0) > 5899)
                #expect((status["since"] as? Int ?? 0) > 1_700_000_000)
                let open = try server.action(#"{"action":"open","text":"xterm -e top"}"#)
                #expect(open.json["output"] as? String == "open action performed", "\(open.text)")
            }
            let display = try #require(server.world.session.current?.display)
            #expect(server.opened.withLock { $0 } == ["xterm -e top on \(display)"])
            #expect(server.activity.load(ordering: .relaxed) == 2)
            #expect(
                server.world.metrics.render().contains(
                    #"agent_desktop_actions_total{action="left_click",result="ok"} 1"#))
        }
    }

    @Test func anyAnswerMayHaveThePictureAfterIt() async throws {
        try await withServer(SessionWorld(connect: SessionWorld.rfb)) { server in
            try await server.blocking { server in
                let wanted = #""screenshot":true,"scaled_width":320,"scaled_height":240"#
                for name in ["wait", "mouse_move", "open"] {
                    let fields = #""coordinate":[5,6],"text":"true","duration":1"#
                    let json = try server.action(#"{"action":"\#(name)",\#(fields),\#(wanted)}"#).json
                    #expect(json["output"] as? String == "\(name) action performed", "\(json)")
                    #expect(json["screenshot_width"] as? Int == 320 && json["screenshot_height"] as? Int == 240)
                    let png = (json["screenshot_data"] as? String).flatMap { Data(base64Encoded: $0) }
                    #expect(png.flatMap { DesktopProgram.size(ofPNG: $0) } == DesktopSize(width: 320, height: 240))
                }
                // The client must not take the action for undone.
                let half = try server.action(
                    #"{"action":"mouse_move","coordinate":[5,6],"screenshot":true,"region":[9000,0,5,5]}"#)
                #expect(half.status == 400)
                #expect(
                    half.json["detail"] as? String
                        == "The mouse_move action was performed, but the screenshot after it failed.")
            }
        }
    }

    /// A client that leaves ends what it waits for.
    @Test(arguments: [
        #""wait_stable","ms":60000,"timeout_ms":60000"#, #""wait_for_window","title":"none","timeout_ms":60000"#,
    ])
    func waitingEndsWithTheClient(fields: String) async throws {
        try await withServer(SessionWorld(connect: SessionWorld.rfb)) { server in
            _ = try await server.world.session.desktop()
            try await server.blocking { server in
                let connection = try server.connect()
                try connection.send("POST", "/api/v0/desktop/action", body: "{\"action\":\(fields)}")
            }
            try await eventually("it waits") { server.activity.load(ordering: .relaxed) == 1 }
            let name = fields.split(separator: "\"")[0]
            try await eventually("it has ended") {
                server.world.metrics.render().contains(
                    "agent_desktop_actions_total{action=\"\(name)\",result=\"invalid\"} 1")
            }
        }
    }

    @Test func aStartThatFailsIsA500WithTheProgramsWords() async throws {
        try await withServer(SessionWorld(fault: "fail")) { server in
            try await server.blocking { server in
                for answer in [
                    try server.action(#"{"action":"screenshot"}"#),
                    try server.connect().request("GET", Self.vnc, headers: Self.upgrade),
                ] {
                    #expect(
                        answer.status == 500 && answer.json["message"] as? String == "Failed to start desktop session.")
                    #expect((answer.json["detail"] as? String ?? "").hasSuffix("cannot find Xvnc"), "\(answer.text)")
                }
            }
        }
    }

    @Test func waitingEndsWithShutdown() async throws {
        try await withServer(SessionWorld()) { server in
            async let answer = server.blocking { try $0.action(#"{"action":"wait","duration":60000}"#).status }
            try await eventually("it waits") { server.activity.load(ordering: .relaxed) == 1 }
            let began = ContinuousClock.now
            server.world.session.beginShutdown()
            #expect(try await answer == 503)
            #expect(ContinuousClock.now - began < .seconds(30))
            let late = try await server.blocking { try $0.action(#"{"action":"screenshot"}"#).status }
            #expect(late == 503)
        }
    }

    @Test func aHangingStartHoldsUpNothingElse() async throws {
        try await withServer(SessionWorld(fault: "hang")) { server in
            async let hanging = server.blocking { try $0.action(#"{"action":"screenshot"}"#).status }
            try await eventually("up runs") { server.world.calls("up") == 1 }
            try await server.blocking { server in
                let status = try server.connect().request("GET", "/api/v0/desktop/status").status
                let waited = try server.action(#"{"action":"wait","duration":1}"#).status
                #expect(status == 200 && waited == 200)
            }
            server.world.session.beginShutdown()
            #expect(try await hanging == 503)
        }
    }

    // MARK: The viewer

    @Test func thePageAndItsFiles() async throws {
        let world = try SessionWorld()
        let novnc = "\(world.directory.path)/novnc"
        try createDirectories("\(novnc)/core/input", mode: 0o700)
        try "export default 1;".write(toFile: "\(novnc)/core/rfb.js", atomically: true, encoding: .utf8)
        try "deep".write(toFile: "\(novnc)/core/input/a.js", atomically: true, encoding: .utf8)
        try "secret".write(toFile: "\(world.directory.path)/secret.js", atomically: true, encoding: .utf8)
        try "hidden".write(toFile: "\(novnc)/.hidden.js", atomically: true, encoding: .utf8)
        try "#!/bin/sh".write(toFile: "\(novnc)/core/run", atomically: true, encoding: .utf8)
        try createDirectories("\(novnc)/core/dir.js", mode: 0o700)
        try await withServer(world, novnc: novnc) { server in
            try await server.blocking { server in
                func get(_ path: String) throws -> RawConnection.Response { try server.connect().request("GET", path) }
                for path in [Self.viewer, "\(Self.viewer)/", "\(Self.viewer)?view_only=true"] {
                    let page = try get(path)
                    #expect(page.status == 200 && page.headers["content-type"] == "text/html; charset=utf-8")
                    let policy = page.headers["content-security-policy"] ?? ""
                    #expect(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'self'"))
                    let nonce = policy.split(separator: "'nonce-").dropFirst().first?.prefix { $0 != "'" } ?? "none"
                    #expect(page.text.contains("<script type=\"module\" nonce=\"\(nonce)\">"))
                    #expect(page.text.contains(#"replace(/\/viewer\/?$/, "")"#))
                }
                let module = try get("\(Self.viewer)/core/rfb.js")
                #expect(module.status == 200 && module.text == "export default 1;")
                #expect(module.headers["content-type"] == "text/javascript; charset=utf-8")
                #expect(module.headers["x-content-type-options"] == "nosniff")
                #expect(try get("\(Self.viewer)/core/input/a.js").text == "deep")
                let unknown = try get("\(Self.viewer)/core/input/a.js?v=1")
                #expect(unknown.status == 400 && unknown.text.contains("Unknown query parameter"), "\(unknown.text)")
                for path in [
                    "/core/none.js", "/../secret.js", "/core/../../secret.js", "/%2e%2e/secret.js", "/..%2fsecret.js",
                    "/core%2f..%2f..%2fsecret.js", "/.hidden.js", "/%2ehidden.js", "/core/run", "/core/dir.js", "/core",
                    "/core/rfb.js%00", "/core//rfb.js/..", "/a/b/c/d/e/f/g/h.js",
                ] {
                    let answer = try get("\(Self.viewer)\(path)")
                    #expect(answer.status == 404 || answer.status == 400, "\(path): \(answer.status)")
                    #expect(!answer.text.contains("secret") || answer.text.contains("message"), "\(path)")
                }
            }
            #expect(server.world.calls("up") == 0)
        }
    }

    @Test func withoutNoVNCItSaysWhatToInstall() async throws {
        try await withServer(SessionWorld(), novnc: "/nonexistent") { server in
            let answer = try await server.blocking { try $0.connect().request("GET", Self.viewer).text }
            #expect(answer.contains("noVNC is not installed.") && answer.contains("--novnc-dir"))
        }
    }

    @Test func theTokenOpensThePageAndThePageItsFiles() async throws {
        let token = "correct-horse-battery"
        try await withServer(SessionWorld(), token: token) { server in
            try await server.blocking { server in
                func get(_ path: String, _ headers: [String: String] = [:]) throws -> RawConnection.Response {
                    try server.connect(tcp: true).request("GET", path, headers: headers)
                }
                #expect(try get(Self.viewer).status == 401)
                #expect(try get("\(Self.viewer)?token=wrong").status == 401)
                #expect(try get("\(Self.viewer)/core/rfb.js").status == 401)
                let page = try get("\(Self.viewer)?token=\(token)")
                #expect(page.status == 200)
                let cookie = page.headers["set-cookie"] ?? ""
                #expect(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"))
                #expect(!cookie.contains(token) && !page.text.contains(token))
                let pair = String(cookie.prefix { $0 != ";" })
                #expect(try get("\(Self.viewer)/core/rfb.js", ["Cookie": "a=b; \(pair)"]).status == 200)
                #expect(try get("\(Self.viewer)/core/rfb.js", ["Cookie": "\(pair)x"]).status == 401)
                // It opens nothing else, and a token in the query neither.
                #expect(try get(Self.viewer, ["Cookie": pair]).status == 401)
                #expect(try get("/api/v0/desktop/status", ["Cookie": pair]).status == 401)
                #expect(try get("/api/v0/desktop/status?token=\(token)").status == 401)
                #expect(try get("\(Self.viewer)/core/rfb.js?token=\(token)").status == 401)
                #expect(try get("\(Self.viewer)/../status", ["Cookie": pair]).status != 200)
                let socket = try TestViewer(server.connect(tcp: true), path: "\(Self.vnc)?token=\(token)")
                #expect(try RawRFB(socket).size.width == 640)
            }
        }
    }
}
