import AgentCore
import Logging
import Synchronization

extension ProcessManager {
    /// What a manager needs to know of the rest of the daemon.
    public struct Configuration: Sendable {
        /// Where commands run that name no workdir.
        public var directory: @Sendable () -> String
        /// Where they run while that directory cannot be used.
        public var home: String
        public var environment: EnvironmentBuilder
        public var paths: any PathStore
        public var clock: AgentClock
        /// A `memory.events` file; nil never reports `oom`.
        public var memoryEvents: String?

        public init(
            directory: @escaping @Sendable () -> String, home: String, environment: EnvironmentBuilder,
            paths: any PathStore = NoPathStore(), clock: AgentClock, memoryEvents: String? = nil
        ) {
            self.directory = directory
            self.home = home
            self.environment = environment
            self.paths = paths
            self.clock = clock
            self.memoryEvents = memoryEvents
        }
    }
}

/// Where commands start that name no workdir.
final class StartDirectory: Sendable {
    private let configured: @Sendable () -> String
    private let home: String
    private let logger: Logger
    /// The unusable directory that was logged last.
    private let logged = Mutex<String?>(nil)

    init(_ configured: @escaping @Sendable () -> String, home: String, logger: Logger) {
        self.configured = configured
        self.home = home
        self.logger = logger
    }

    /// The configured directory, or home while that cannot be used; which is logged once, and again after it
    /// could. Blocks: the disk may hang.
    func choose() -> String {
        let (path, missing) = usableDirectory(configured(), home: home)
        let isNews = logged.withLock { logged in
            defer { logged = missing }
            return missing != logged
        }
        if let missing, isNews {
            logger.warning(
                "directory \(missing) cannot be used: it is missing, or no directory that this user may enter; until it can, processes start in \(path)"
            )
        }
        return path
    }
}
