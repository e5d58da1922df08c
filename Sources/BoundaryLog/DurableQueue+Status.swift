import AgentCore
import Synchronization

extension DurableQueue {
    /// Where the queue is and how much it may hold.
    public struct Configuration: Sendable {
        /// The database; its directory is created (0700) when missing.
        public var path: String
        public var maximumBatches = BoundaryLimits.queueBatches
        public var maximumBytes = BoundaryLimits.queueBytes
        public var maximumStagedBatches = BoundaryLimits.stagedBatches
        public var maximumStagedBytes = BoundaryLimits.stagedBytes
        public var maximumPages = BoundaryLimits.filePages
        /// Least time between two commits while batches keep coming.
        public var commitInterval = Duration.milliseconds(5)
        /// First and longest wait before the disk is tried again after a failure.
        public var retry: (first: Duration, longest: Duration) = (.milliseconds(100), .seconds(10))
        /// How long new batches wait for older ones in a file that cannot be opened yet.
        public var openGrace = Duration.seconds(30)
        /// Without a file the thread starts with the first batch or reader, so that an unused queue costs nothing.
        public var startsWhenNeeded = false

        /// - Parameter directory: the agent's state directory.
        public init(directory: String) { path = "\(directory)/boundary-logs/queue.db" }
    }

    /// The state of the queue at one moment.
    public struct Status: Sendable, Equatable {
        /// Batches and payload bytes, on disk and in memory.
        public var batches = 0
        public var bytes = 0
        /// Batches in memory only, which a crash of the agent would lose.
        public var stagedBatches = 0
        /// Seconds since 1970 of the oldest.
        public var oldest: Int64?
        /// Why the disk cannot be written; nil while it can.
        public var trouble: String?
        /// Where a damaged file was moved since the agent started.
        public var setAside: String?
        /// Batches dropped because there was no room.
        public var dropped = 0
    }

    /// The state of the queue now.
    public var status: Status {
        state.withLock { state in
            var status = state.status
            status.batches = state.staged.batches + state.stored.batches
            status.bytes = state.staged.bytes + state.stored.bytes
            status.stagedBatches = state.staged.batches
            if status.batches == 0 {
                status.oldest = nil
            } else if status.oldest == nil {
                status.oldest = state.chunks.first?.received
            }
            return status
        }
    }

    /// What makes the daemon degraded (docs/contracts/boundary.md#health): over half full, a batch older than 5
    /// minutes, a disk that cannot be written or does not answer.
    public func health() -> HealthRegistry.Report? {
        let status = status
        var reasons: [String] = []
        if let trouble = status.trouble {
            reasons.append("\(trouble); \(status.stagedBatches) batches are in memory only")
        } else if let since = state.withLock({ $0.stagedSince }), case let age = clock.now() - since,
            age > BoundaryLimits.slowDisk
        {
            reasons.append(
                "the disk has not answered the boundary log queue for \(age.components.seconds) s; "
                    + "\(status.stagedBatches) batches are in memory only")
        }
        if status.batches * 2 > configuration.maximumBatches || status.bytes * 2 > configuration.maximumBytes {
            reasons.append("boundary log queue is over half full: \(status.batches) batches, \(status.bytes) bytes")
        }
        if let oldest = status.oldest, case let age = clock.wallSeconds() - oldest, age > 300 {
            reasons.append("boundary log queue has waited \(age) s for the control plane")
        }
        if !reasons.isEmpty { return HealthRegistry.Report(reasons.joined(separator: "; ")) }
        return status.setAside.map {
            HealthRegistry.Report("a damaged boundary log queue was set aside as \($0)", degrades: false)
        }
    }
}
