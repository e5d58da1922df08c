import AgentCore
import AsyncHTTPClient
import NIOCore
import NIOHTTP1
import NIOSSL
import Synchronization

/// An HTTP client for one server, made when it is first used, and anew when the certificates that it trusts
/// may have changed: when the CA file has, or after a failure of TLS.
///
/// Bodies are bounded, redirects are not followed, and every failure is a ``ControlPlaneError`` that
/// names method and address.
final class HTTPTransport: Sendable {
    struct Answer: Sendable {
        var status: Int
        var headers: HTTPHeaders
        var body: ByteBuffer
    }

    private struct Entry {
        var client: HTTPClient
        /// Of the CA file that it was made with.
        var stamp: Trust.Stamp?
        var users = 0
    }

    /// The client of the moment, and older ones that are still in use.
    private struct State {
        var clients: [Int: Entry] = [:]
        var current: Int?
        var next = 0
        var isClosed = false

        mutating func enter(_ stamp: Trust.Stamp?) throws -> Lease? {
            if isClosed { throw HTTPTransport.closed }
            guard let current, let entry = clients[current], entry.stamp == stamp else { return nil }
            clients[current]?.users += 1
            return Lease(id: current, client: entry.client)
        }

        mutating func add(_ client: HTTPClient, _ stamp: Trust.Stamp?) -> Lease {
            next += 1
            clients[next] = Entry(client: client, stamp: stamp, users: 1)
            current = next
            return Lease(id: next, client: client)
        }

        /// Takes it out of use for requests to come.
        mutating func retire(_ id: Int?) -> HTTPClient? {
            if current == id { current = nil }
            return id.flatMap { unused($0) }
        }

        mutating func leave(_ id: Int) -> HTTPClient? {
            clients[id]?.users -= 1
            return unused(id)
        }

        /// A client without users, which is to be shut down.
        private mutating func unused(_ id: Int) -> HTTPClient? {
            guard current != id, let entry = clients[id], entry.users == 0 else { return nil }
            clients[id] = nil
            return entry.client
        }
    }

    private struct Lease {
        var id: Int
        var client: HTTPClient
    }

    let server: ServerAddress
    private let proxy: ServerAddress?
    private let caFile: String?
    private let group: any EventLoopGroup
    private let pool: BlockingPool
    private let clock: AgentClock
    private let connectTimeout: TimeAmount
    private let state = Mutex(State())

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
        let lease = try await lease()
        var headers = headers
        headers.replaceOrAdd(name: "User-Agent", value: "workspace-agent")
        if let authorization = server.basicAuthorization {
            headers.replaceOrAdd(name: "Authorization", value: authorization.reveal())
        }
        let result: Result<T, any Error>
        do {
            let request = try HTTPClient.Request(
                url: "\(server)\(uri)", method: method, headers: headers, body: body.map { .byteBuffer($0) })
            // The caller's limit ends it sooner.
            let deadline = NIODeadline.now() + .hours(24)
            result = .success(
                try await HTTPExchange.perform(request, on: lease.client, deadline: deadline) { head, chunks in
                    try await read((Int(head.status.code), head.headers), chunks)
                })
        } catch {
            result = .failure(failure(error, name(method, uri)))
        }
        var left = state.withLock { $0.leave(lease.id) }
        if case .failure(let error as ControlPlaneError) = result, error.code == .tls {
            // The system's roots may be others by now.
            left = state.withLock { $0.retire(lease.id) } ?? left
        }
        try? await left?.shutdown()
        return try result.get()
    }

    /// Ends the connections. Requests after this fail.
    func shutdown() async {
        let clients = state.withLock { state in
            defer { (state.clients, state.current, state.isClosed) = ([:], nil, true) }
            return state.clients.values.map(\.client)
        }
        for client in clients { try? await client.shutdown() }
    }

    private func lease() async throws -> Lease {
        let (caFile, isSecure, pool) = (caFile, server.isSecure, pool)
        var stamp: Trust.Stamp?
        if isSecure, let caFile { stamp = try await pool.run { Trust.Stamp(caFile) } }
        if let lease = try state.withLock({ try $0.enter(stamp) }) { return lease }
        var configuration = HTTPClient.Configuration()
        // Reads the CA file.
        if isSecure { configuration.tlsConfiguration = try await pool.run { try Trust.configuration(caFile: caFile) } }
        configuration.redirectConfiguration = .disallow
        configuration.timeout.connect = connectTimeout
        configuration.httpVersion = .http1Only
        // The caller tries again with a back-off of its own.
        configuration.connectionPool.retryConnectionEstablishment = false
        // Requests come rarely; a connection that waits a minute for the next one costs memory on both sides.
        configuration.connectionPool.idleTimeout = .seconds(5)
        configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = 8
        if let proxy {
            let authorization = proxy.basicAuthorization.map {
                HTTPClient.Authorization.basic(credentials: String($0.reveal().dropFirst(6)))
            }
            configuration.proxy = .server(host: proxy.host, port: proxy.port, authorization: authorization)
        }
        let made = HTTPClient(eventLoopGroupProvider: .shared(group), configuration: configuration)
        // Another task may have been quicker, or the transport was shut down.
        let result = Result {
            try state.withLock { state -> (lease: Lease, old: HTTPClient?) in
                if let lease = try state.enter(stamp) { return (lease, made) }
                let old = state.current
                let lease = state.add(made, stamp)
                return (lease, state.retire(old))
            }
        }
        switch result {
        case .success(let (lease, old)):
            try? await old?.shutdown()
            return lease
        case .failure(let error):
            try? await made.shutdown()
            throw error
        }
    }

    fileprivate static var closed: ControlPlaneError { .init(.unreachable, "the client is shut down") }

    /// Without the query, which may hold secrets.
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
            return ControlPlaneError(.timeout, "\(name)\(way): no connection in time")
        case .some(.proxyAuthenticationRequired):
            return ControlPlaneError(
                .unreachable, "\(name)\(way): it asks for other credentials; give them in its URL")
        default: return ControlPlaneError(.unreachable, "\(name)\(way) failed", cause: ConnectionProblem(error))
        }
    }
}
