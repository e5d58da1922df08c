import AgentCore
import FoundationEssentials
import NIOCore
import NIOHTTP1
import Synchronization

/// The control plane's plain HTTP calls (docs/contracts/control-plane.md#rest, docs/contracts/control-plane.md#reinit).
package struct ControlPlaneREST: Sendable {
    /// The key pair that Git uses over SSH.
    package struct GitSSHKey: Sendable, Equatable {
        package var publicKey: String
        package var privateKey: Secret<String>
        package static func == (a: Self, b: Self) -> Bool {
            a.publicKey == b.publicKey && a.privateKey.reveal() == b.privateKey.reveal()
        }
    }

    /// An answer about a Git provider: a token, or a page for the user to visit first.
    package struct ExternalAuth: Sendable {
        package var accessToken: Secret<String>
        /// What the provider gave with the token, as a JSON text with sorted keys; nil when there was none.
        /// It may hold further tokens.
        package var tokenExtra: Secret<String>?
        /// The whole answer, a JSON text as it came.
        package var answer: Secret<String>
        package var url: String
        package var type: String
        package var expiresAt: String?
        package var username: String
        package var password: Secret<String>

        /// A field of what came with the token.
        /// - Parameter path: names of fields, separated by dots; a number for an element of a list.
        /// - Returns: a string as it is and another value as JSON; nil where there is no such field.
        package func extra(_ path: String) -> Secret<String>? {
            tokenExtra.flatMap { JSONText.field(path, in: $0.reveal()) }.map { Secret($0) }
        }
    }

    /// What to ask ``externalAuth(_:)`` for: by `match` (a URL) or `id`.
    package struct ExternalAuthRequest: Sendable {
        package var match: String?
        package var id: String?
        /// Wait until the user has authenticated.
        package var listen = false
        package var gitBranch: String?
        package var gitRemoteOrigin: String?
        package var chatID: String?
        package init() {}
    }

    let transport: HTTPTransport
    let tokens: any TokenProvider
    let headers: HeaderSource
    let clock: AgentClock
    let times: DialTimes

    /// - Throws: ``ControlPlaneError``.
    package func gitSSHKey() async throws -> GitSSHKey {
        struct Body: Decodable {
            var public_key: String
            var private_key: String
        }
        let body: Body = try await get("/api/v2/workspaceagents/me/gitsshkey", within: times.request)
        return GitSSHKey(publicKey: body.public_key, privateKey: Secret(body.private_key))
    }

    /// - Throws: ``ControlPlaneError``; `.timeout` when the user did not authenticate in time.
    package func externalAuth(_ request: ExternalAuthRequest) async throws -> ExternalAuth {
        var query: [String] = []
        func add(_ name: String, _ value: String?) {
            guard let value, !value.isEmpty else { return }
            query.append("\(name)=\(Self.escape(value))")
        }
        if let id = request.id {
            // Asked for by id, the other one is there and empty.
            query = ["id=\(Self.escape(id))", "match=\(Self.escape(request.match ?? ""))"]
        } else {
            add("match", request.match)
        }
        if request.listen { add("listen", "true") }
        add("git_branch", request.gitBranch)
        add("git_remote_origin", request.gitRemoteOrigin)
        add("chat_id", request.chatID)
        struct Body: Decodable {
            var access_token: String?
            var token_extra: JSONText?
            var url: String?
            var type: String?
            var expires_at: String?
            var username: String?
            var password: String?
        }
        let (body, answer): (Body, Data) = try await fetch(
            "/api/v2/workspaceagents/me/external-auth?\(query.joined(separator: "&"))",
            within: request.listen ? times.longPoll : times.request)
        return ExternalAuth(
            accessToken: Secret(body.access_token ?? ""), tokenExtra: body.token_extra?.text.map { Secret($0) },
            answer: Secret(String(decoding: answer, as: UTF8.self)), url: body.url ?? "", type: body.type ?? "",
            expiresAt: body.expires_at, username: body.username ?? "", password: Secret(body.password ?? ""))
    }

    /// Waits until the workspace is claimed.
    /// - Throws: ``ControlPlaneError``: `.http(409)` when it never will be, so that it is not asked again; any other
    ///   code for an attempt to be repeated, an end of the stream without an event included.
    package func reinit() async throws -> ReinitNotice {
        let uri = "/api/v2/workspaceagents/me/reinit?wait=true"
        let name = "GET \(transport.server)/api/v2/workspaceagents/me/reinit"
        var fields = try await authorized()
        fields.replaceOrAdd(name: "Accept", value: "text/event-stream")
        let headers = fields
        let progress = Progress()
        progress.time.withLock { $0 = clock.now() }
        let limit = Duration.nanoseconds(times.longPoll.nanoseconds)
        let answer: ReinitNotice? = try await withThrowingTaskGroup(of: ReinitNotice?.self) { group in
            group.addTask {
                try await transport.stream(.GET, uri, headers: headers) { head, chunks in
                    guard head.status == 200 else {
                        var body = ByteBuffer()
                        for try await chunk in chunks {
                            body.writeImmutableBuffer(chunk)
                            if body.readableBytes > DialLimits.errorBodyBytes { break }
                        }
                        throw HTTPFailure(status: head.status, location: head.headers["Location"].first, body: body)
                            .error(name, sent: headers)
                    }
                    var reader = ServerSentEventReader(limit: DialLimits.eventBytes)
                    for try await chunk in chunks {
                        progress.time.withLock { $0 = clock.now() }
                        let events: [ServerSentEventReader.Event]
                        do throws(CoreError) {
                            events = try reader.read(Array(chunk.readableBytesView))
                        } catch {
                            throw ControlPlaneError(.protocolViolation, error.message)
                        }
                        for event in events {
                            if let event = try Self.reinitEvent(event, name, sent: headers) { return event }
                        }
                    }
                    throw ControlPlaneError(.unreachable, "\(name) ended without an event")
                }
            }
            group.addTask {
                // A connection that only seems to live must not be waited for forever.
                while true {
                    let rest = limit - (clock.now() - progress.time.withLock { $0 })
                    guard rest > .zero else { return nil }
                    try await clock.sleep(rest)
                }
            }
            defer { group.cancelAll() }
            return try await group.next() ?? nil
        }
        guard let answer else { throw ControlPlaneError(.timeout, "\(name) said nothing for \(limit)") }
        return answer
    }

    private final class Progress: Sendable { let time = Mutex(Duration.zero) }

    /// nil for an event that is not about this.
    static func reinitEvent(
        _ event: ServerSentEventReader.Event, _ name: String, sent: HTTPHeaders = [:]
    ) throws(ControlPlaneError) -> ReinitNotice? {
        switch event.name {
        case "message", "data": break
        case "error":
            let failure = HTTPFailure(status: 0, body: ByteBuffer(string: event.data))
            throw ControlPlaneError(
                .unreachable,
                "\(name): \(PeerText.line(failure.body?.message ?? "the stream reports an error", sent: sent))")
        default: return nil
        }
        struct Body: Decodable {
            var workspace_id: String
            var reason: String
            var owner_id: String?
        }
        guard let body = try? JSONDecoder().decode(Body.self, from: Data(event.data.utf8)) else {
            throw ControlPlaneError(.protocolViolation, "\(name): an event is not the JSON of a reinitialization")
        }
        return ReinitNotice(workspaceID: body.workspace_id, reason: body.reason, ownerID: body.owner_id ?? "")
    }

    /// What the control plane says to a request that needs the token.
    package struct Probe: Sendable {
        /// How the request failed, had there been an answer; nil when it was done.
        package var refusal: ControlPlaneError?
        /// Why there was no token to send; the request went without one then.
        package var tokenProblem: ControlPlaneError?
        /// The answer's `Date` field.
        package var date: String?
    }

    /// Finds out what works of the way to the control plane.
    /// - Throws: ``ControlPlaneError`` when there is no answer.
    package func probe() async throws -> Probe {
        let uri = "/api/v2/workspaceagents/me/gitsshkey"
        var probe = Probe()
        var fields = try await headers.headers()
        do {
            fields.replaceOrAdd(name: "Coder-Session-Token", value: try await tokens.token().reveal())
        } catch let error as ControlPlaneError {
            probe.tokenProblem = error
        }
        let answer = try await transport.send(.GET, uri, headers: fields, within: times.request)
        let failure = HTTPFailure(answer)
        // A user without a key is none: the control plane has looked at the token first.
        if answer.status != 200, answer.status != 404 || failure.body?.message == nil {
            probe.refusal = failure.error("GET \(transport.server)\(uri)", sent: fields)
        }
        probe.date = answer.headers["Date"].first
        return probe
    }

    private func authorized() async throws -> HTTPHeaders {
        var fields = try await headers.headers()
        fields.replaceOrAdd(name: "Coder-Session-Token", value: try await tokens.token().reveal())
        return fields
    }

    private func get<Body: Decodable>(_ uri: String, within limit: TimeAmount) async throws -> Body {
        try await fetch(uri, within: limit).body
    }

    /// The decoded body, and its bytes.
    private func fetch<Body: Decodable>(
        _ uri: String, within limit: TimeAmount
    ) async throws -> (body: Body, bytes: Data) {
        let name = "GET \(transport.server)\(uri.prefix { $0 != "?" })"
        let fields = try await authorized()
        let answer = try await transport.send(.GET, uri, headers: fields, within: limit)
        guard answer.status == 200 else { throw HTTPFailure(answer).error(name, sent: fields) }
        do {
            let bytes = Data(answer.body.readableBytesView)
            return (try JSONDecoder().decode(Body.self, from: bytes), bytes)
        } catch {
            // Not the decoder's error: it may quote the body, which holds secrets.
            throw ControlPlaneError(.protocolViolation, "\(name): the answer is not the JSON that was expected")
        }
    }

    /// Percent-encodes all but RFC 3986's unreserved characters.
    static func escape(_ text: String) -> String {
        var result = ""
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
                UInt8(ascii: "~"):
                result.unicodeScalars.append(Unicode.Scalar(byte))
            default:
                let hex = String(byte, radix: 16, uppercase: true)
                result += hex.utf8.count == 1 ? "%0\(hex)" : "%\(hex)"
            }
        }
        return result
    }
}
