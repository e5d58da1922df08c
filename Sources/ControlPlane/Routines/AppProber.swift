import AgentCore
import FoundationEssentials
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import Synchronization

/// Asks an app whether it is well.
package protocol AppProber: Sendable {
    /// Whether the app answered below 500 in time. Returns as soon as the task is cancelled.
    func isHealthy(_ url: String, within limit: Duration) async -> Bool
}

/// Asks by GET, over a connection of its own for each time: one attempt, and none that an earlier time
/// left open. A redirect is an answer like any other and not followed: it shows that the app runs, and
/// may lead to another server.
package final class HTTPAppProber: AppProber {
    private let group: any EventLoopGroup
    private let pool: BlockingPool
    /// Made for the first app with https.
    private let trust = Mutex<NIOSSLContext?>(nil)

    /// - Parameter pool: reads the system's CA roots.
    package init(group: any EventLoopGroup, pool: BlockingPool) { (self.group, self.pool) = (group, pool) }

    package func isHealthy(_ url: String, within limit: Duration) async -> Bool {
        let deadline = NIODeadline.now() + TimeAmount(limit)
        guard let (server, uri) = Self.target(url) else { return false }
        var trust: NIOSSLContext?
        if server.isSecure {
            trust = try? await context()
            guard trust != nil else { return false }
        }
        let outcome = group.next().makePromise(of: Bool.self)
        Self.ask(server, uri, trust, deadline, outcome)
        return await withTaskCancellationHandler {
            (try? await outcome.futureResult.get()) ?? false
        } onCancel: {
            outcome.succeed(false)
        }
    }

    /// Every channel closes with the outcome.
    private static func ask(
        _ server: ServerAddress, _ uri: String, _ trust: NIOSSLContext?, _ deadline: NIODeadline,
        _ outcome: EventLoopPromise<Bool>
    ) {
        let loop = outcome.futureResult.eventLoop
        let timer = loop.scheduleTask(deadline: deadline) { outcome.succeed(false) }
        outcome.futureResult.whenComplete { _ in timer.cancel() }
        ClientBootstrap(group: loop)
            .connectTimeout(max(deadline - .now(), .nanoseconds(1)))
            .channelInitializer { channel in
                outcome.futureResult.whenComplete { _ in channel.close(promise: nil) }
                return loop.makeSucceededVoidFuture()
            }
            .connect(host: server.host, port: server.port)
            // Not in the initializer: of several addresses of a name, one connection is used.
            .flatMapThrowing { channel in
                let pipeline = channel.pipeline.syncOperations
                if let trust {
                    let name = IPPrefix(server.host) == nil ? server.host : nil
                    try pipeline.addHandler(NIOSSLClientHandler(context: trust, serverHostname: name))
                }
                try pipeline.addHTTPClientHandlers()
                try pipeline.addHandler(AppAnswerHandler(outcome))
                let headers: HTTPHeaders = [
                    "Host": server.authority, "User-Agent": "workspace-agent", "Accept": "*/*", "Connection": "close",
                ]
                let head = HTTPRequestHead(version: .http1_1, method: .GET, uri: uri, headers: headers)
                channel.write(HTTPClientRequestPart.head(head), promise: nil)
                channel.writeAndFlush(HTTPClientRequestPart.end(nil), promise: nil)
            }
            .whenFailure { _ in outcome.succeed(false) }
    }

    /// nil for what is no http or https URL.
    static func target(_ url: String) -> (server: ServerAddress, uri: String)? {
        // Escapes what a request may not hold.
        guard let text = URL(string: url)?.absoluteString else { return nil }
        let whole = text.prefix { $0 != "#" }
        guard let server = try? ServerAddress(String(whole.prefix { $0 != "?" }), what: "the URL"),
            let scheme = whole.firstRange(of: "://")
        else { return nil }
        let uri = whole[scheme.upperBound...].drop { $0 != "/" && $0 != "?" }
        return (server, uri.hasPrefix("/") ? String(uri) : "/\(uri)")
    }

    private func context() async throws -> NIOSSLContext {
        if let context = trust.withLock({ $0 }) { return context }
        let context = try await pool.run { try NIOSSLContext(configuration: Trust.configuration(caFile: nil)) }
        trust.withLock { $0 = context }
        return context
    }
}

/// Takes the head of the answer; its body is of no interest.
private final class AppAnswerHandler: ChannelInboundHandler {
    typealias InboundIn = HTTPClientResponsePart
    private let outcome: EventLoopPromise<Bool>

    init(_ outcome: EventLoopPromise<Bool>) { self.outcome = outcome }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if case .head(let head) = unwrapInboundIn(data) { outcome.succeed(head.status.code < 500) }
    }

    func channelInactive(context: ChannelHandlerContext) { outcome.succeed(false) }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { outcome.succeed(false) }
}
