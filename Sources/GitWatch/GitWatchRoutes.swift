import AgentCore
import AgentHTTP
import FoundationEssentials
import HTTPTypes
import Hummingbird
import NIOCore

/// `GET /api/v0/git/watch` (docs/contracts/git-watch.md#messages).
public struct GitWatchRoutes: Sendable {
    private let watcher: GitWatcher

    public init(watcher: GitWatcher) { self.watcher = watcher }

    public func add(to routes: AgentRoutes) { routes.webSocket("/api/v0/git/watch", changes: false, watch) }

    private func watch(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        let query = try Query(request, allowed: ["chat_id", "heartbeat", "token"])
        let chat = query["chat_id"].flatMap(ChatIdentity.chatID)
        let heartbeat = try query.bool("heartbeat") ?? false
        guard !watcher.isFull else {
            throw HTTPProblem(.tooManyRequests, "Too many connections watch git repositories.")
        }
        let watcher = watcher
        return try WebSocketUpgrade.respond(to: request, context: context) { socket in
            let session = WatchSession(chat: chat, heartbeat: heartbeat, wallSeconds: watcher.configuration.wallSeconds)
            if let refusal = watcher.attach(session) { return await socket.close(1013, reason: refusal) }
            await withTaskGroup(of: Void.self) { group in
                group.addTask {
                    await Self.read(socket, session, watcher)
                    session.end()
                }
                group.addTask {
                    while let messages = await session.next() {
                        for message in messages {
                            guard (try? await socket.send(text: message.parts)) != nil else { return }
                        }
                    }
                }
                // Whichever ends first ends the other.
                await group.next()
                session.end()
                group.cancelAll()
            }
            watcher.detach(session)
        }
    }

    private static func read(_ socket: WebSocket, _ session: WatchSession, _ watcher: GitWatcher) async {
        while let message = await socket.next() {
            guard case .text(let text) = message, let type = try? await messageType(text) else {
                return await socket.close(.unsupportedData, reason: "expected a JSON object")
            }
            if type == "refresh" { watcher.refresh(session) } else { session.fail("unknown message type") }
        }
    }

    /// A message's `type`; "" of JSON that has none.
    /// - Throws: when it is not JSON.
    private static func messageType(_ text: String) async throws -> String {
        struct Typed: Decodable { var type: String }
        return try await ClientMessage.decode(Typed.self, from: text)?.type ?? ""
    }
}

extension GitWatcher {
    var isFull: Bool { inbox.withLock { $0.sessions >= GitWatchLimits.connections } }
}
