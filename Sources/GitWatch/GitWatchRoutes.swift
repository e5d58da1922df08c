import AgentCore
import AgentHTTP
import FoundationEssentials
import HTTPTypes
import Hummingbird
import NIOCore

/// `GET /api/v0/git/watch` (spec: git watcher).
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
            guard case .text(let text) = message, let type = try? messageType(Data(text.utf8)) else {
                return await socket.close(.unsupportedData, reason: "expected a JSON object")
            }
            if type == "refresh" { watcher.refresh(session) } else { session.fail("unknown message type") }
        }
    }

    /// A message's `type`; "" of JSON that has none.
    /// - Throws: when it is no JSON.
    private static func messageType(_ data: Data) throws -> String {
        try JSONShape.check(data, mustBeObject: false)
        return try JSONDecoder().decode(ClientMessage.self, from: data).type
    }
}

/// Any JSON, and its `type` where it is an object that says one.
private struct ClientMessage: Decodable {
    private struct Name: CodingKey {
        var stringValue: String
        var intValue: Int? { nil }
        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    /// All of it is decoded, since the decoder finds a malformed number or escape only then.
    private enum Value: Decodable {
        case string(String), other

        init(from decoder: any Decoder) throws {
            self = .other
            if let object = try? decoder.container(keyedBy: Name.self) {
                for name in object.allKeys { _ = try object.decode(Value.self, forKey: name) }
            } else if var array = try? decoder.unkeyedContainer() {
                while !array.isAtEnd { _ = try array.decode(Value.self) }
            } else {
                let value = try decoder.singleValueContainer()
                if value.decodeNil() || (try? value.decode(Bool.self)) != nil { return }
                if let text = try? value.decode(String.self) {
                    self = .string(text)
                } else {
                    _ = try value.decode(Double.self)
                }
            }
        }
    }

    var type = ""

    init(from decoder: any Decoder) throws {
        _ = try Value(from: decoder)
        guard let object = try? decoder.container(keyedBy: Name.self),
            case .string(let type)? = try object.decodeIfPresent(Value.self, forKey: Name(stringValue: "type"))
        else { return }
        self.type = type
    }
}

extension GitWatcher {
    var isFull: Bool { inbox.withLock { $0.sessions >= GitWatchLimits.connections } }
}
