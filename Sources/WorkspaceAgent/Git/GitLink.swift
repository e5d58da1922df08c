import AgentCore
import AgentProc
import ControlPlane
import LocalAgent
import Logging
import NIOPosix

/// The control plane's REST for a command that runs in the workspace, as git's helpers do: configured by the environment
/// that the daemon gives to what it starts.
enum GitLink {
    /// - Parameters:
    ///   - options: flags of the command's own, which win over the environment; nil for none.
    ///   - limit: of all of it; what hangs then is left behind, for the process ends soon.
    /// - Throws: ``ControlPlaneError`` for an answer that has not what was asked for; ``CommandFailure`` when
    ///   there is no control plane to ask.
    static func use<T: Sendable>(
        _ options: LinkOptions? = nil, atMost limit: Duration = .seconds(900),
        _ body: @escaping @Sendable (ControlPlaneREST) async throws -> T
    ) async throws -> T {
        let environment = ProcessEnvironment.current
        guard let settings = try LinkSettings(options ?? LinkOptions.parse([]), environment) else {
            throw CommandFailure(
                message: "CODER_AGENT_URL is not set, so there is no control plane to ask; run this in the workspace")
        }
        guard settings.auth != "token" || settings.token != nil || settings.tokenFile != nil else {
            throw CommandFailure(
                message: "neither CODER_AGENT_TOKEN nor CODER_AGENT_TOKEN_FILE is set; run this in the workspace")
        }
        do {
            return try await use(settings, environment, limit, body)
        } catch let error as ControlPlaneError {
            switch error.code {
            case .unreachable, .timeout:
                throw CommandFailure(message: "\(error); check CODER_AGENT_URL and whether its machine can be reached")
            case .configuration, .tls, .token:
                throw CommandFailure(
                    message: "\(error); check the variables CODER_AGENT_…, which stand for these flags")
            default: throw error
            }
        }
    }

    /// As ``use(_:atMost:_:)`` with settings of the caller's.
    static func use<T: Sendable>(
        _ settings: LinkSettings, _ environment: [String: String], _ limit: Duration,
        _ body: @escaping @Sendable (ControlPlaneREST) async throws -> T
    ) async throws -> T {
        let configuration = try LinkConfiguration(settings.input(environment))
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let pool = BlockingPool(threads: 1)
        let logger = Logger(label: "git") { _ in SwiftLogNoOpLogHandler() }
        let clock = AgentClock(EventLoopClock(group: group))
        let executor = EventLoopTaskExecutor(group.next())
        let reactor = try Reactor()
        guard reactor.start() else { throw CommandFailure(message: "cannot start a thread") }
        let runner = CommandLauncher(
            launcher: try Launcher(), reactor: reactor, pool: pool, executor: executor, clock: clock,
            metrics: MetricsRegistry(), logger: logger)
        let link = ControlPlaneAccess(
            configuration, group: group, pool: pool, clock: clock, runner: runner, environment: environment,
            logger: logger)
        let close = { @Sendable in
            await link.shutdown()
            await reactor.stop()
            await pool.shutdown()
            try? await group.shutdownGracefully()
        }
        // Looking a name up, or reading a token's file, may hang where no cancellation reaches it.
        let limiter = TimeLimiter(clock: clock, executor: executor)
        let result: Result<T?, any Error>
        do {
            result = .success(try await limiter.runUnlessCancelled(atMost: limit) { try await body(link.rest) })
        } catch {
            result = .failure(error)
        }
        guard let value = try await closed(result, close) else {
            throw ControlPlaneError(.timeout, "\(settings.address) gave no answer within \(limit.components.seconds) s")
        }
        return value
    }

    /// The result once everything is closed; one that came too late does not wait for what hangs.
    private static func closed<T>(
        _ result: Result<T?, any Error>, _ close: @escaping @Sendable () async -> Void
    ) async throws -> T? {
        if case .success(nil) = result {
            Task { await close() }
        } else {
            await close()
        }
        return try result.get()
    }
}
