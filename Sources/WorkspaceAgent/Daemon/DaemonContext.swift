import AgentCore
import Logging
import NIOPosix

/// What the parts of the daemon are made with.
struct DaemonContext: Sendable {
    let configuration: AgentConfiguration
    let group: MultiThreadedEventLoopGroup
    /// Runs tasks on one of the group's loops.
    let executor: EventLoopTaskExecutor
    /// For calls that may block: files, /proc, spawn.
    let pool: BlockingPool
    let clock: AgentClock
    let metrics: MetricsRegistry
    let health: HealthRegistry
    let logger: Logger

    init(
        _ configuration: AgentConfiguration, _ group: MultiThreadedEventLoopGroup, _ executor: EventLoopTaskExecutor,
        _ logger: Logger
    ) {
        (self.configuration, self.group, self.executor, self.logger) = (configuration, group, executor, logger)
        pool = BlockingPool(threads: 2, reserve: 14)
        clock = AgentClock(EventLoopClock(group: group))
        metrics = MetricsRegistry()
        health = HealthRegistry()
    }

    /// Of children, without what only a control plane adds.
    var environment: EnvironmentBuilder { EnvironmentBuilder(base: configuration.environment) }
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
