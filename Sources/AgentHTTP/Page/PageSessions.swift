import AgentCore
import HTTPTypes
import Synchronization

/// Who may use the page: a one-time code in its address opens a session, and a cookie keeps it.
///
/// A value behind a lock, without I/O. Sessions can be saved, so that they outlive the daemon's restart; codes cannot.
public final class PageSessions: Sendable {
    /// What a session may do.
    public enum Mode: String, Codable, Sendable {
        case on
        /// Whatever changes something is refused.
        case readOnly = "read-only"
    }

    /// What a restart is to leave.
    public struct Saved: Codable, Sendable, Equatable {
        public struct Session: Codable, Sendable, Equatable {
            public var secret: String
            public var mode: Mode
            /// Seconds since 1970.
            public var lastUsed: Int64
        }

        /// The cookie's name: browsers send a host's cookies to all of its ports, where another daemon may listen.
        public var cookie: String
        /// The port of the page's own listener; nil when it needed none.
        public var port: Int?
        public var sessions: [Session]
    }

    public static let path = "/ui"
    /// Seconds that a code can be used.
    public static let codeSeconds = 60
    /// Codes that wait to be used.
    public static let maximumCodes = 16
    /// Sessions that are kept; a further one ends the one that was used longest ago.
    public static let maximumSessions = 64
    /// Seconds after its last use that a session ends.
    public static let sessionSeconds: Int64 = 12 * 3600
    /// Seconds between two notes of a session's use.
    static let useSeconds: Int64 = 600

    private struct Code {
        var secret: Secret<String>
        var mode: Mode
        var end: Duration
    }

    private struct State {
        var codes: [Code] = []
        var saved: Saved
    }

    private static let site = HTTPField.Name("Sec-Fetch-Site")

    /// The most that a session may do.
    public let mode: Mode
    private let clock: AgentClock
    private let state: Mutex<State>
    private let changed: @Sendable () -> Void

    /// - Parameters:
    ///   - saved: what the last run left.
    ///   - changed: called when ``saved`` is another; not under the lock.
    public init(mode: Mode, saved: Saved? = nil, clock: AgentClock, changed: @escaping @Sendable () -> Void) {
        (self.mode, self.clock, self.changed) = (mode, clock, changed)
        let cookie =
            "workspace_agent_ui_"
            + randomToken().utf8.filter { $0 > UInt8(ascii: "_") }.prefix(8)
            .map { String(UnicodeScalar($0)) }.joined()
        var saved = saved ?? Saved(cookie: cookie, sessions: [])
        saved.sessions = saved.sessions.suffix(Self.maximumSessions)
        // A daemon that was started anew may be stricter than the one that made them.
        if mode == .readOnly {
            for index in saved.sessions.indices { saved.sessions[index].mode = .readOnly }
        }
        state = Mutex(State(saved: saved))
    }

    /// What a restart is to leave, without sessions that are over.
    public var saved: Saved {
        let now = clock.wallSeconds()
        return state.withLock { state in
            state.saved.sessions.removeAll { Self.isOver($0, now) }
            return state.saved
        }
    }

    /// Remembers the port of the page's own listener.
    public func setPort(_ port: Int) {
        state.withLock { $0.saved.port = port }
        changed()
    }

    /// A new one-time code.
    /// - Throws: ``HTTPProblem`` 403 for more than ``mode`` allows, 429 when ``maximumCodes`` wait.
    public func makeCode(_ wanted: Mode?) throws(HTTPProblem) -> (code: String, mode: Mode) {
        guard wanted != .on || mode == .on else {
            throw HTTPProblem(
                .forbidden, "The daemon serves the page read-only.", detail: "It runs with --ui read-only.")
        }
        let code = Code(
            secret: Secret(randomToken()), mode: wanted ?? mode, end: clock.now() + .seconds(Self.codeSeconds))
        let hasRoom = state.withLock { state in
            state.codes.removeAll { $0.end <= clock.now() }
            guard state.codes.count < Self.maximumCodes else { return false }
            state.codes.append(code)
            return true
        }
        guard hasRoom else {
            throw HTTPProblem(
                .tooManyRequests, "\(Self.maximumCodes) one-time codes wait to be used.",
                detail: "Each is over after \(Self.codeSeconds) s.")
        }
        return (code.secret.reveal(), code.mode)
    }

    /// Uses a code up.
    /// - Returns: the value of Set-Cookie; nil for a code that is wrong, used or over. Without a path it applies to the
    ///   page's directory as the browser sees it, also behind a proxy that adds a path prefix.
    public func open(with code: String) -> String? {
        let secret = randomToken()
        let now = clock.wallSeconds()
        let cookie = state.withLock { state -> String? in
            state.codes.removeAll { $0.end <= clock.now() }
            guard let index = state.codes.firstIndex(where: { $0.secret.matches(Array(code.utf8)) }) else { return nil }
            let mode = state.codes.remove(at: index).mode
            state.saved.sessions.removeAll { Self.isOver($0, now) }
            if state.saved.sessions.count >= Self.maximumSessions {
                let oldest = state.saved.sessions.indices.min { a, b in
                    state.saved.sessions[a].lastUsed < state.saved.sessions[b].lastUsed
                }
                if let oldest { state.saved.sessions.remove(at: oldest) }
            }
            state.saved.sessions.append(.init(secret: secret, mode: mode, lastUsed: now))
            return state.saved.cookie
        }
        guard let cookie else { return nil }
        changed()
        return "\(cookie)=\(secret); HttpOnly; SameSite=Strict"
    }

    /// What the session of a request may do; nil when it has none, or shows a token of its own.
    public func mode(of head: HTTPRequest) -> Mode? {
        guard head.headerFields[.authorization] == nil, Self.isFromPage(head) else { return nil }
        let now = clock.wallSeconds()
        let (mode, isNews) = state.withLock { state -> (Mode?, Bool) in
            guard let index = Self.index(of: head, in: state.saved), !Self.isOver(state.saved.sessions[index], now)
            else { return (nil, false) }
            let isNews = now - state.saved.sessions[index].lastUsed >= Self.useSeconds
            if isNews { state.saved.sessions[index].lastUsed = now }
            return (state.saved.sessions[index].mode, isNews)
        }
        if isNews { changed() }
        return mode
    }

    /// Ends the session of a request.
    /// - Returns: whether it had one.
    public func end(_ head: HTTPRequest) -> Bool {
        let had = state.withLock { state in
            guard let index = Self.index(of: head, in: state.saved) else { return false }
            state.saved.sessions.remove(at: index)
            return true
        }
        if had { changed() }
        return had
    }

    /// Whether the request is for the page itself.
    func isPage(_ head: HTTPRequest) -> Bool { head.method == .get && head.pathOnly == Self.path }

    /// Pages on other ports of the host are the same site to a browser, which sends them the cookie; but it says so.
    private static func isFromPage(_ head: HTTPRequest) -> Bool {
        guard let site, let from = head.headerFields[site] else { return true }
        return from == "same-origin" || from == "none"
    }

    private static func index(of head: HTTPRequest, in saved: Saved) -> Int? {
        for pair in head.headerFields[values: .cookie].flatMap({ $0.split(separator: ";") }) {
            let parts = pair.drop { $0 == " " }.split(separator: "=", maxSplits: 1)
            guard parts.count == 2, parts[0] == saved.cookie else { continue }
            let value = Array(parts[1].utf8)
            if let index = saved.sessions.firstIndex(where: { Secret($0.secret).matches(value) }) { return index }
        }
        return nil
    }

    private static func isOver(_ session: Saved.Session, _ now: Int64) -> Bool {
        now - session.lastUsed >= sessionSeconds
    }
}
