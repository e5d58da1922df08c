import AgentCore
import AgentHTTP
import CPage
import FoundationEssentials
import Glibc
import Synchronization
import WorkspaceScripts

/// The page at `/ui`, put together: its sessions, which outlive a restart, and the address where browsers find it.
final class PageParts: Sendable {
    private let sessions: PageSessions
    private let context: DaemonContext
    private let address: PageAddress

    /// - Parameters:
    ///   - server: of the HTTP API.
    ///   - tcp: where it listens, if on TCP.
    init(_ sessions: PageSessions, _ context: DaemonContext, _ server: HTTPServer, tcp: (host: String, port: Int)?) {
        (self.sessions, self.context) = (sessions, context)
        let policy = AccessPolicy(
            // Of a listener for the page alone: its sessions are the only way in.
            tokenRule: .required(Secret(randomToken())), ownUID: geteuid(), sessions: sessions)
        address = PageAddress(sessions, server, policy, tcp: tcp, executor: context.executor)
    }

    func add(to routes: AgentRoutes, identity: PageRoutes.Identity) {
        let address = address
        PageRoutes(
            sessions: sessions, page: Self.html, isOpen: context.configuration.httpAuth == .none, identity: identity,
            address: { try await address.find() }
        ).add(to: routes)
    }

    private static func html() -> [UInt8] {
        var length = 0
        let bytes = wa_page(&length)
        return Array(UnsafeBufferPointer(start: bytes, count: length))
    }

    /// Listens where pages of an earlier daemon are still open.
    func reopen() async {
        do {
            try await address.reopen()
        } catch {
            context.logger.warning(
                "open pages cannot come back: their port is taken; run workspace-agent ui again",
                metadata: ["error": "\(error)"])
        }
    }

    /// The page's address with a one-time code.
    func invitation() async throws -> String {
        let place = try await address.find()
        return "http://\(place)\(PageSessions.path)?code=\(try sessions.makeCode(nil).code)"
    }
}

extension DaemonContext {
    /// The page's sessions, those of an earlier daemon among them; nil for `--ui off`.
    func pageSessions(_ state: StateDirectory) -> PageSessions? {
        guard let mode = configuration.page else { return nil }
        let file = state.problem == nil ? "\(configuration.stateDirectory)/ui-sessions.json" : nil
        let saved = file.flatMap { try? OwnFile.read($0, limit: 64 << 10) }
            .flatMap { try? JSONDecoder().decode(PageSessions.Saved.self, from: Data($0)) }
        let keeper = SessionFile(path: file, self)
        let sessions = PageSessions(mode: mode, saved: saved, clock: clock) { keeper.save() }
        keeper.sessions.withLock { $0 = sessions }
        return sessions
    }
}

/// Where a browser of this machine finds the page: at a TCP listener of the API, or at one that is opened when the page
/// is first asked for.
private final class PageAddress: Sendable {
    private struct State {
        var place: String?
        var opening: Task<String, any Error>?
    }

    private let sessions: PageSessions
    private let server: HTTPServer
    private let policy: AccessPolicy
    private let executor: any TaskExecutor
    private let state: Mutex<State>

    /// - Parameter policy: of the listener that is opened when there is none on TCP.
    init(
        _ sessions: PageSessions, _ server: HTTPServer, _ policy: AccessPolicy, tcp: (host: String, port: Int)?,
        executor: any TaskExecutor
    ) {
        (self.sessions, self.server, self.policy, self.executor) = (sessions, server, policy, executor)
        let place = tcp.map { tcp in
            let name = ["0.0.0.0", "::"].contains(tcp.host) ? "127.0.0.1" : tcp.host
            return "\(name.contains(":") ? "[\(name)]" : name):\(tcp.port)"
        }
        state = Mutex(State(place: place))
    }

    /// Opens the listener of the sessions that an earlier daemon left.
    /// - Throws: when it cannot be opened.
    func reopen() async throws {
        let saved = sessions.saved
        guard state.withLock({ $0.place }) == nil, let port = saved.port, !saved.sessions.isEmpty else { return }
        _ = try await open(port: port)
    }

    /// `host:port`.
    func find() async throws -> String {
        if let place = state.withLock({ $0.place }) { return place }
        let last = sessions.saved.port
        if let last, let place = try? await open(port: last) { return place }
        return try await open(port: 0)
    }

    private func open(port: Int) async throws -> String {
        let task = state.withLock { state in
            if let opening = state.opening { return opening }
            let task = Task(executorPreference: executor) { [sessions, server, policy, self] in
                defer { self.state.withLock { $0.opening = nil } }
                let bound = try await server.serve(host: "127.0.0.1", port: port, policy: policy)
                if bound != sessions.saved.port { sessions.setPort(bound) }
                let place = "127.0.0.1:\(bound)"
                self.state.withLock { $0.place = place }
                return place
            }
            state.opening = task
            return task
        }
        return try await task.value
    }
}

/// Keeps the page's sessions in a file for this user alone. A failure costs no more than a new code after a restart.
private final class SessionFile: Sendable {
    let sessions = Mutex<PageSessions?>(nil)
    private let path: String?
    private let context: DaemonContext
    private let writing = Mutex(())

    /// - Parameter path: nil keeps nothing.
    init(path: String?, _ context: DaemonContext) { (self.path, self.context) = (path, context) }

    func save() {
        guard let path else { return }
        Task(executorPreference: context.executor) {
            do {
                try await self.context.pool.run { [self] in
                    // One after the other, each with what there is by then: the last write is the newest.
                    try writing.withLock { _ in
                        guard let saved = sessions.withLock({ $0 })?.saved else { return }
                        try OwnFile.replace(path, with: Array(JSONEncoder().encode(saved)))
                    }
                }
            } catch {
                self.context.logger.warning(
                    "open pages will need a new code after a restart: their sessions cannot be saved",
                    metadata: ["file": "\(path)", "error": "\(error)"])
            }
        }
    }
}

extension PageRoutes.Identity {
    init(_ context: DaemonContext, _ manifest: CurrentManifest) {
        var name = [CChar](repeating: 0, count: 256)
        gethostname(&name, name.count - 1)
        let hostname = String(decoding: name.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
        let directory = context.configuration.directory
        self.init(
            version: "v\(BuildInfo.version)", hostname: hostname, instance: UUID(),
            directory: { manifest.snapshot?.directory ?? directory })
    }
}
