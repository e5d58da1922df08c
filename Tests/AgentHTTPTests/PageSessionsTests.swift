import AgentCore
import AgentTestSupport
import HTTPTypes
import Synchronization
import Testing

@testable import AgentHTTP

@Suite struct PageSessionsTests {
    /// Both clocks, which pass together.
    private final class World: Sendable {
        let clock = ManualClock()
        private let wall = Atomic<Int64>(1_000_000)
        private let saves = Atomic(0)

        var saved: Int { saves.load(ordering: .relaxed) }

        func pass(_ seconds: Int64) {
            clock.advance(by: .seconds(seconds))
            wall.wrappingAdd(seconds, ordering: .relaxed)
        }

        func sessions(_ mode: PageSessions.Mode = .on, saved: PageSessions.Saved? = nil) -> PageSessions {
            PageSessions(
                mode: mode, saved: saved,
                clock: AgentClock(clock, wallSeconds: { self.wall.load(ordering: .relaxed) }),
                changed: { self.saves.wrappingAdd(1, ordering: .relaxed) })
        }
    }

    /// A request as a browser sends it with what Set-Cookie gave it.
    private func head(_ setCookie: String?, path: String = "/", _ fields: [String: String] = [:]) -> HTTPRequest {
        var head = HTTPRequest(method: .get, scheme: "http", authority: "localhost", path: path)
        let pair = (setCookie ?? "").prefix { $0 != ";" }
        head.headerFields[.cookie] = "other=1; \(pair); more=2"
        for (name, value) in fields { head.headerFields[HTTPField.Name(name)!] = value }
        return head
    }

    @Test func aCodeWorksOnceAndForAMinute() throws {
        let world = World()
        let sessions = world.sessions()
        let (code, mode) = try sessions.makeCode(nil)
        #expect(mode == .on && code.utf8.count == 43)
        #expect(sessions.open(with: "") == nil && sessions.open(with: code + "x") == nil)
        world.pass(59)
        let cookie = try #require(sessions.open(with: code))
        #expect(cookie.hasSuffix("; HttpOnly; SameSite=Strict"))
        #expect(sessions.open(with: code) == nil, "it was used")
        #expect(sessions.mode(of: head(cookie)) == .on)
        let late = try sessions.makeCode(nil).code
        world.pass(60)
        #expect(sessions.open(with: late) == nil, "it is over")
    }

    @Test func codesHaveALimit() throws {
        let world = World()
        let sessions = world.sessions()
        for _ in 0..<PageSessions.maximumCodes { _ = try sessions.makeCode(nil) }
        #expect(throws: HTTPProblem.self) { try sessions.makeCode(nil) }
        world.pass(60)
        _ = try sessions.makeCode(nil)
    }

    @Test func aStricterDaemonMakesNoLaxSession() throws {
        let world = World()
        let strict = world.sessions(.readOnly)
        #expect(try strict.makeCode(nil).mode == .readOnly)
        #expect(throws: HTTPProblem.self) { try strict.makeCode(.on) }
        let lax = world.sessions()
        let cookie = try #require(lax.open(with: try lax.makeCode(.readOnly).code))
        #expect(lax.mode(of: head(cookie)) == .readOnly)
        let full = try #require(lax.open(with: try lax.makeCode(.on).code))
        // A restart with --ui read-only.
        #expect(world.sessions(.readOnly, saved: lax.saved).mode(of: head(full)) == .readOnly)
    }

    @Test func sessionsOutliveARestartAndEndUnused() throws {
        let world = World()
        let first = world.sessions()
        let cookie = try #require(first.open(with: try first.makeCode(nil).code))
        let second = world.sessions(saved: first.saved)
        #expect(second.mode(of: head(cookie)) == .on)
        world.pass(PageSessions.sessionSeconds - 1)
        #expect(second.mode(of: head(cookie)) == .on, "used in time, and so it goes on")
        world.pass(PageSessions.sessionSeconds - 1)
        #expect(second.mode(of: head(cookie)) == .on)
        world.pass(PageSessions.sessionSeconds)
        #expect(second.mode(of: head(cookie)) == nil)
        #expect(second.saved.sessions.isEmpty)
    }

    @Test func aUseIsNotedNowAndThen() throws {
        let world = World()
        let sessions = world.sessions()
        let cookie = try #require(sessions.open(with: try sessions.makeCode(nil).code))
        let before = world.saved
        for _ in 0..<100 { _ = sessions.mode(of: head(cookie)) }
        #expect(world.saved == before)
        world.pass(PageSessions.useSeconds)
        for _ in 0..<100 { _ = sessions.mode(of: head(cookie)) }
        #expect(world.saved == before + 1)
    }

    @Test func oneMoreSessionEndsTheOldest() throws {
        let world = World()
        let sessions = world.sessions()
        var cookies: [String] = []
        for _ in 0...PageSessions.maximumSessions {
            cookies.append(try #require(sessions.open(with: try sessions.makeCode(nil).code)))
            world.pass(1)
        }
        #expect(sessions.saved.sessions.count == PageSessions.maximumSessions)
        #expect(sessions.mode(of: head(cookies[0])) == nil && sessions.mode(of: head(cookies[1])) == .on)
        #expect(sessions.mode(of: head(cookies.last)) == .on)
    }

    @Test func anEndedSessionIsOver() throws {
        let sessions = World().sessions()
        let cookie = try #require(sessions.open(with: try sessions.makeCode(nil).code))
        #expect(sessions.end(head(cookie)) && !sessions.end(head(cookie)))
        #expect(sessions.mode(of: head(cookie)) == nil)
    }

    /// A server on another port of the host is the same site to a browser.
    @Test func theCookieCountsForThePageAlone() throws {
        let sessions = World().sessions()
        let cookie = try #require(sessions.open(with: try sessions.makeCode(nil).code))
        for (site, mode) in [("same-origin", PageSessions.Mode.on), ("none", .on)] {
            #expect(sessions.mode(of: head(cookie, ["Sec-Fetch-Site": site])) == mode)
        }
        for site in ["same-site", "cross-site", "", "Same-Origin"] {
            #expect(sessions.mode(of: head(cookie, ["Sec-Fetch-Site": site])) == nil, "\(site)")
        }
        #expect(sessions.mode(of: head(cookie, ["Authorization": "Bearer x"])) == nil, "the token decides")
        #expect(sessions.mode(of: head(nil)) == nil)
        let (name, value) = (cookie.prefix { $0 != "=" }, cookie.drop { $0 != "=" })
        #expect(sessions.mode(of: head("\(name)x\(value)")) == nil && sessions.mode(of: head("\(name)=")) == nil)
    }

    // MARK: What the policy makes of them

    private let tcp = ConnectionInfo(transport: .tcp(localHost: "127.0.0.1", localPort: 7717), peer: "x")

    @Test func thePolicyAdmitsSessions() throws {
        let sessions = World().sessions()
        let policy = AccessPolicy(tokenRule: .required(Secret("0123456789abcdef")), ownUID: 0, sessions: sessions)
        func status(_ head: HTTPRequest, changes: Bool = true) -> Int? {
            policy.refusal(of: head, from: tcp, changes: changes)?.status.code
        }
        let cookie = try #require(sessions.open(with: try sessions.makeCode(.on).code))
        let narrow = try #require(sessions.open(with: try sessions.makeCode(.readOnly).code))
        #expect(status(head(nil)) == 401 && status(head(nil, path: "/ui/x")) == 401)
        #expect(status(head(nil, path: "/ui?code=1")) == nil, "the page looks for itself")
        #expect(status(head(cookie)) == nil)
        #expect(status(head(narrow)) == 403 && status(head(narrow), changes: false) == nil)
        #expect(status(head(cookie, ["Authorization": "Bearer wrong"])) == 401)
        #expect(status(head(cookie, ["Sec-Fetch-Site": "same-site"])) == 401)
        #expect(status(head(cookie, ["Origin": "http://localhost:3000"])) == 403)
        var elsewhere = head(cookie)
        elsewhere.authority = "evil.example"
        #expect(status(elsewhere) == 403)
        // A read-only session is one where no token is asked for, too.
        let open = AccessPolicy(tokenRule: .none, ownUID: 0, sessions: sessions)
        #expect(open.refusal(of: head(narrow), from: tcp, changes: true)?.status.code == 403)
        #expect(open.refusal(of: head(nil), from: tcp, changes: true) == nil)
    }

    @Test func routesSayWhatTheyChange() {
        let routes = AgentRoutes()
        let handler: AgentRoutes.Handler = { _, _ in .init(status: .ok) }
        routes.get("/a", handler)
        routes.post("/a", handler)
        routes.post("/find/{x}", changes: false, handler)
        routes.webSocket("/type", changes: true, handler)
        routes.on(.delete, "/mine", changes: false, handler)
        func changes(_ method: HTTPRequest.Method, _ path: String) -> Bool {
            routes.table.plan(HTTPRequest(method: method, scheme: nil, authority: nil, path: path)).changes
        }
        #expect(!changes(.get, "/a?x=1") && changes(.post, "/a") && !changes(.post, "/find/y"))
        #expect(changes(.get, "/type") && !changes(.delete, "/mine") && !changes(.put, "/a"))
    }
}
