import AgentCore
import AsyncHTTPClient
import NIOCore
import NIOHTTP1
import NIOSSL
import Synchronization

/// An HTTP client for one server, made when it is first used.
///
/// Bodies are bounded, redirects are not followed, and every failure is a ``ControlPlaneError`` that
/// names method and address.
final class HTTPTransport: Sendable {
    struct Answer: Sendable {
        var status: Int
        var headers: HTTPHeaders
        var body: ByteBuffer
    }

    private enum State {
        case unused
        case open(HTTPClient)
        case closed
    }

    let server: ServerAddress
    private let proxy: ServerAddress?
    private let caFile: String?
    private let group: any EventLoopGroup
    private let pool: BlockingPool
    private let clock: AgentClock
    private let connectTimeout: TimeAmount
    private let state = Mutex(State.unused)

    init(
        server: ServerAddress, proxy: ServerAddress?, caFile: String?, times: DialTimes, group: any EventLoopGroup,
        pool: BlockingPool, clock: AgentClock
    ) {
        self.server = server
        self.proxy = proxy
        self.caFile = caFile
        self.group = group
        self.pool = pool
        self.clock = clock
        connectTimeout = times.connect
    }

    /// Sends a request and reads its whole answer.
    /// - Parameters:
    ///   - uri: path and query, behind the server's path.
    ///   - limit: for everything, to the end of the answer.
    /// - Throws: ``ControlPlaneError``; an answer of any status is none.
    func send(
        _ method: HTTPMethod, _ uri: String, headers: HTTPHeaders, body: ByteBuffer? = nil, within limit: TimeAmount
    ) async throws -> Answer {
        let name = name(method, uri)
        let seconds = limit.nanoseconds / 1_000_000_000
        let timeout = ControlPlaneError(.timeout, "\(name) was not answered within \(seconds) s")
        return try await withTimeLimit(.nanoseconds(limit.nanoseconds), clock, timeout) {
            try await self.stream(method, uri, headers: headers, body: body) { head, chunks in
                var whole = ByteBuffer()
                // Of an error's body only the beginning is of use.
                let isError = !(200..<300).contains(head.status)
                do {
                    for try await chunk in chunks {
                        guard whole.readableBytes + chunk.readableBytes <= DialLimits.bodyBytes else {
                            if isError { break }
                            throw ControlPlaneError(
                                .protocolViolation, "\(name): the body is larger than \(DialLimits.bodyBytes) bytes")
                        }
                        whole.writeImmutableBuffer(chunk)
                        if isError, whole.readableBytes > DialLimits.errorBodyBytes { break }
                    }
                } catch  where isError && !Task.isCancelled {
                    // The status says enough.
                }
                return Answer(status: head.status, headers: head.headers, body: whole)
            }
        }
    }

    /// Sends a request and passes its body on as it comes.
    func stream<T: Sendable>(
        _ method: HTTPMethod, _ uri: String, headers: HTTPHeaders, body: ByteBuffer? = nil,
        _ read: (_ head: (status: Int, headers: HTTPHeaders), _ chunks: HTTPExchange.Body) async throws -> T
    ) async throws -> T {
        let client = try await client()
        var headers = headers
        headers.replaceOrAdd(name: "User-Agent", value: "workspace-agent")
        if let authorization = server.basicAuthorization {
            headers.replaceOrAdd(name: "Authorization", value: authorization.reveal())
        }
        do {
            let request = try HTTPClient.Request(
                url: "\(server)\(uri)", method: method, headers: headers, body: body.map { .byteBuffer($0) })
            // The caller's limit ends it sooner.
            return try await HTTPExchange.perform(request, on: client, deadline: .now() + .hours(24)) { head, chunks in
                try await read((Int(head.status.code), head.headers), chunks)
            }
        } catch {
            throw failure(error, name(method, uri))
        }
    }

    /// Ends the connections. Requests after this fail.
    func shutdown() async {
        let client: HTTPClient? = state.withLock { state in
            defer { state = .closed }
            if case .open(let client) = state { return client } else { return nil }
        }
        try? await client?.shutdown()
    }

    private func client() async throws -> HTTPClient {
        if let client = try existing() { return client }
        var configuration = HTTPClient.Configuration()
        let (caFile, isSecure) = (caFile, server.isSecure)
        // Reads the CA file.
        if isSecure { configuration.tlsConfiguration = try await pool.run { try Trust.configuration(caFile: caFile) } }
        configuration.redirectConfiguration = .disallow
        configuration.timeout.connect = connectTimeout
        configuration.httpVersion = .http1Only
        // Whoever asks tries again with a back-off of its own.
        configuration.connectionPool.retryConnectionEstablishment = false
        configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = 8
        if let proxy {
            let authorization = proxy.basicAuthorization.map {
                HTTPClient.Authorization.basic(credentials: String($0.reveal().dropFirst(6)))
            }
            configuration.proxy = .server(host: proxy.host, port: proxy.port, authorization: authorization)
        }
        let made = HTTPClient(eventLoopGroupProvider: .shared(group), configuration: configuration)
        // Another task may have been quicker, or the transport was shut down.
        let chosen: HTTPClient? = state.withLock { state in
            switch state {
            case .unused:
                state = .open(made)
                return made
            case .open(let client): return client
            case .closed: return nil
            }
        }
        if chosen !== made { try? await made.shutdown() }
        guard let chosen else { throw Self.closed }
        return chosen
    }

    private func existing() throws -> HTTPClient? {
        try state.withLock { state in
            switch state {
            case .unused: nil
            case .open(let client): client
            case .closed: throw Self.closed
            }
        }
    }

    private static var closed: ControlPlaneError { .init(.unreachable, "the client is shut down") }

    /// Without the query, which may hold what is nobody's business.
    private func name(_ method: HTTPMethod, _ uri: String) -> String {
        "\(method.rawValue) \(server)\(uri.prefix { $0 != "?" })"
    }

    private func failure(_ error: any Error, _ name: String) -> any Error {
        if error is CancellationError || error is ControlPlaneError { return error }
        if let error = Trust.failure(error, to: server) { return error }
        let way = proxy.map { " through the proxy \($0)" } ?? ""
        switch error as? HTTPClientError {
        case .some(.cancelled): return CancellationError()
        case .some(.connectTimeout), .some(.httpProxyHandshakeTimeout), .some(.tlsHandshakeTimeout):
            return ControlPlaneError(.timeout, "\(name)\(way): no connection in time", cause: error)
        case .some(.proxyAuthenticationRequired):
            return ControlPlaneError(
                .unreachable, "\(name)\(way): it asks for other credentials; give them in its URL", cause: error)
        default: return ControlPlaneError(.unreachable, "\(name)\(way) failed", cause: error)
        }
    }
}
