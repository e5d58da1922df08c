import AgentCore
import AgentHTTP
import Logging
import Metrics
import NIOCore
import NIOPosix
import WorkspaceScripts

/// What the parts of the daemon are made with.
struct DaemonContext: Sendable {
    let configuration: AgentConfiguration
    let group: MultiThreadedEventLoopGroup
    /// Runs tasks on one of the group's loops.
    let executor: EventLoopTaskExecutor
    /// For calls that may block: files, /proc, spawn.
    let pool: BlockingPool
    /// Connections that the limit of open files allows.
    let descriptors = DescriptorBudget()
    let clock: AgentClock
    let metrics: MetricsRegistry
    let health: HealthRegistry
    let log: DaemonLog
    var logger: Logger { log.logger }
    /// What this machine and the flags add to the environment of children.
    let local: LocalLayer

    /// Blocks: it makes what children need on disk, and may have to look the user up.
    init(
        _ configuration: AgentConfiguration, _ group: MultiThreadedEventLoopGroup, _ executor: EventLoopTaskExecutor,
        _ log: DaemonLog, _ state: StateDirectory
    ) {
        (self.configuration, self.group, self.executor, self.log) = (configuration, group, executor, log)
        pool = BlockingPool(threads: 2, reserve: 14, startsNow: true)
        clock = AgentClock(EventLoopClock(group: group))
        metrics = MetricsRegistry()
        metrics.addSelfMetrics()
        MetricsSystem.bootstrap(SwiftMetricsBridge(registry: metrics))
        health = HealthRegistry()
        local = LocalLayer(
            account: LocalLayer.isComplete(configuration.environment) ? nil : UserAccount.find(),
            settings: configuration.childSettings,
            lastOnPath: Self.coderLink(configuration, state, log.logger))
    }

    /// Of children, without what only a control plane adds.
    var environment: EnvironmentBuilder { EnvironmentBuilder(base: configuration.environment, local: local) }

    /// What belongs to no capability: health, metrics, the log, the API's description.
    /// - Parameter manifest: nil without a control plane.
    func core(manifest: CurrentManifest?) -> Capability {
        let pipeline = log.pipeline
        let core = CoreRoutes(
            health: health, metrics: metrics, ports: ListeningPorts(pool: pool),
            manifest: { manifest?.snapshot.flatMap { try? ManifestReport($0).json() }.map { ByteBuffer(bytes: $0) } },
            log: log.file, pool: pool, flushLog: { pipeline.flush() })
        let stream = LogStream(log: pipeline.recent, clock: clock)
        return Capability(beginShutdown: { pipeline.recent.close() }) { routes in
            core.add(to: routes)
            stream.add(to: routes)
            OpenAPIRoute.add(to: routes)
        }
    }

    /// nil where the link is not wanted or cannot be made; a warning says why.
    private static func coderLink(
        _ configuration: AgentConfiguration, _ state: StateDirectory, _ logger: Logger
    ) -> String? {
        guard configuration.hasCoderLink else { return nil }
        do {
            if let problem = state.problem { throw CoreError(.invalid, problem) }
            return try CoderLink.make(in: configuration.stateDirectory, to: OwnProgram.path)
        } catch {
            logger.warning("commands do not find this program as coder on PATH", metadata: ["error": "\(error)"])
            return nil
        }
    }
}

/// Where the daemon logs.
struct DaemonLog {
    let pipeline: LogPipeline
    let logger: Logger
    /// nil when it could not be opened; a warning says why.
    let file: RotatingLogSink?

    /// - Throws: when a log that was asked for by flag cannot be opened.
    init(_ configuration: AgentConfiguration) throws {
        var sinks: [any LogSink] = [try StreamLogSink(path: configuration.logHuman, format: .human)]
        if let path = configuration.logJSON { sinks.append(try StreamLogSink(path: path, format: .json)) }
        var warnings = configuration.warnings
        var file: RotatingLogSink?
        do {
            try createDirectories(configuration.logDirectory, mode: 0o700)
            let sink = try RotatingLogSink(path: "\(configuration.logDirectory)/workspace-agent.log")
            sinks.append(sink)
            file = sink
        } catch {
            warnings.append("no log file: \(error)")
        }
        let (pipeline, level) = (LogPipeline(sinks: sinks), configuration.logLevel)
        logger = Logger(label: "workspace-agent") { _ in AgentLogHandler(pipeline: pipeline, level: level) }
        (self.pipeline, self.file) = (pipeline, file)
        for warning in warnings { logger.warning("\(warning)") }
    }
}
