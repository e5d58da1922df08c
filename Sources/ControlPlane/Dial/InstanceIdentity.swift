import AgentCore
import FoundationEssentials
import NIOCore
import NIOHTTP1
import Synchronization

/// A token in exchange for the cloud's signed statement of which machine this is
/// (docs/contracts/control-plane.md#instance-identity).
package final class InstanceIdentity: TokenProvider {
    package enum Cloud: String, Sendable { case aws, azure, google }

    private let cloud: Cloud
    private let agentName: String?
    private let metadata: String
    private let times: DialTimes
    private let headers: HeaderSource
    private let controlPlane: HTTPTransport
    private let makeTransport: @Sendable (ServerAddress) -> HTTPTransport
    private struct State {
        var token: Secret<String>?
        /// How many exchanges have succeeded.
        var exchanges = 0
        /// The token was fetched for another request, and no connect has used it yet.
        var isUnused = false
    }

    private let state = Mutex(State())
    /// One exchange at a time.
    private let turns = TurnQueue(atOnce: 1)

    init(
        _ cloud: Cloud, _ configuration: LinkConfiguration, headers: HeaderSource, controlPlane: HTTPTransport,
        makeTransport: @escaping @Sendable (ServerAddress) -> HTTPTransport
    ) {
        self.cloud = cloud
        agentName = configuration.agentName
        metadata =
            switch cloud {
            case .aws: configuration.metadata.aws
            case .azure: configuration.metadata.azure
            case .google: configuration.metadata.google
            }
        times = configuration.times
        self.headers = headers
        self.controlPlane = controlPlane
        self.makeTransport = makeTransport
    }

    package func token() async throws -> Secret<String> {
        if let token = state.withLock({ $0.token }) { return token }
        return try await newToken(forConnect: false)
    }

    /// The first connect shares the exchange of what asks beside it.
    package func refresh() async throws -> Secret<String> {
        let unused = state.withLock { state in
            defer { state.isUnused = false }
            return state.isUnused ? state.token : nil
        }
        if let unused { return unused }
        return try await newToken(forConnect: true)
    }

    /// The token of an exchange that ended after this call began.
    private func newToken(forConnect: Bool) async throws -> Secret<String> {
        let known = state.withLock { $0.exchanges }
        try await turns.take()
        defer { turns.give() }
        let shared = state.withLock { state -> Secret<String>? in
            guard state.exchanges > known else { return nil }
            if forConnect { state.isUnused = false }
            return state.token
        }
        if let shared { return shared }
        let token = try await exchange()
        state.withLock { $0 = State(token: token, exchanges: $0.exchanges + 1, isUnused: !forConnect) }
        return token
    }

    private func exchange() async throws -> Secret<String> {
        let body = try await statement()
        let uri = "/api/v2/workspaceagents/\(cloud.rawValue)-instance-identity"
        var fields = try await headers.headers()
        fields.replaceOrAdd(name: "Content-Type", value: "application/json")
        let answer = try await controlPlane.send(.POST, uri, headers: fields, body: body, within: times.request)
        let name = "POST \(controlPlane.server)\(uri)"
        guard (200..<300).contains(answer.status) else {
            throw HTTPFailure(answer).error(name, sent: fields)
        }
        struct Answer: Decodable { var session_token: String }
        guard
            let text = try? JSONDecoder().decode(Answer.self, from: Data(answer.body.readableBytesView)).session_token,
            !text.isEmpty
        else { throw ControlPlaneError(.token, "\(name): the answer has no session_token") }
        return try TokenText.checked(text, from: name)
    }

    /// Fetches the signed document: the body of the exchange.
    private func statement() async throws -> ByteBuffer {
        // A client of its own: never through the proxy, and not needed until the next connect.
        let service = makeTransport(try ServerAddress(metadata, what: "the metadata service's address"))
        let result: Result<ByteBuffer, any Error>
        do { result = .success(try await statement(service)) } catch { result = .failure(error) }
        await service.shutdown()
        return try result.get()
    }

    private func statement(_ service: HTTPTransport) async throws -> ByteBuffer {
        switch cloud {
        case .aws:
            let session = try await get(
                service, "/latest/api/token", method: .PUT, ["X-aws-ec2-metadata-token-ttl-seconds": "60"])
            let headers: HTTPHeaders = ["X-aws-ec2-metadata-token": session]
            struct Body: Encodable {
                var signature: String
                var document: String
                var agent_name: String?
            }
            return try encode(
                Body(
                    signature: await get(service, "/latest/dynamic/instance-identity/signature", headers),
                    document: await get(service, "/latest/dynamic/instance-identity/document", headers),
                    agent_name: agentName))
        case .azure:
            let uri = "/metadata/attested/document?api-version=2020-09-01"
            let text = try await get(service, uri, ["Metadata": "true"])
            struct Document: Codable {
                var signature: String
                var encoding: String
            }
            guard let document = try? JSONDecoder().decode(Document.self, from: Data(text.utf8)) else {
                throw unusable(service, "no JSON with signature and encoding")
            }
            return try encode(document)
        case .google:
            let uri = "/computeMetadata/v1/instance/service-accounts/default/identity?audience=coder&format=full"
            struct Body: Encodable { var json_web_token: String }
            return try encode(Body(json_web_token: await get(service, uri, ["Metadata-Flavor": "Google"])))
        }
    }

    private func get(
        _ service: HTTPTransport, _ uri: String, method: HTTPMethod = .GET, _ headers: HTTPHeaders
    ) async throws -> String {
        let answer: HTTPTransport.Answer
        do {
            answer = try await service.send(method, uri, headers: headers, within: times.metadata)
        } catch let error as ControlPlaneError {
            throw ControlPlaneError(
                .token, "the \(cloud) metadata service is out of reach; is this such a machine?", cause: error)
        }
        let name = "\(service.server)\(uri.prefix { $0 != "?" })"
        guard (200..<300).contains(answer.status) else {
            throw ControlPlaneError(.token, "the \(cloud) metadata service answered \(name) with \(answer.status)")
        }
        guard let text = String(validating: answer.body.readableBytesView, as: UTF8.self), !text.isEmpty else {
            throw unusable(service, "nothing that is text")
        }
        // The session token goes back in a header.
        guard method == .GET || text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
            throw unusable(service, "a token that no header may hold")
        }
        return text
    }

    private func unusable(_ service: HTTPTransport, _ what: String) -> ControlPlaneError {
        ControlPlaneError(.token, "the \(cloud) metadata service at \(service.server) sent \(what)")
    }

    private func encode(_ body: some Encodable) throws -> ByteBuffer {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return ByteBuffer(bytes: try encoder.encode(body))
    }
}

extension HTTPFailure {
    init(_ answer: HTTPTransport.Answer) {
        self.init(status: answer.status, location: answer.headers["Location"].first, body: answer.body)
    }
}
