import AgentCore
import AgentProto
import ControlPlaneAPI
import Logging
import SwiftProtobuf
import Synchronization

/// The last datapoints; returns them once there are enough.
struct ResourceWindow: Sendable {
    typealias Datapoint = Coder_Agent_V2_PushResourcesMonitoringUsageRequest.Datapoint

    private let size: Int
    private var points: [Datapoint] = []

    init(size: Int) { self.size = min(max(size, 1), LinkLimits.datapoints) }

    /// - Returns: the window, oldest first, once it is full.
    mutating func add(_ point: Datapoint) -> [Datapoint]? {
        if points.count == size { points.removeFirst() }
        points.append(point)
        return points.count == size ? points : nil
    }
}

/// Collects memory and volume usage at the interval that the control plane asks for.
package final class ResourcesMonitor: Routine {
    package let name = "resources monitor"
    package let atShutdown = RoutineShutdown.stops

    private struct Memory: Sendable {
        /// Volumes that could not be read, to log each only once.
        var missing: Set<String> = []
        /// Whether a read of volumes still hangs.
        var volumesHang = false
    }

    private let reader: ResourceReader
    private let pool: BlockingPool
    private let runtime: LinkRuntime
    private let memory = Mutex(Memory())

    /// - Parameter pool: at most one of its threads is held by a file system that hangs.
    package init(reader: ResourceReader = ResourceReader(), pool: BlockingPool, runtime: LinkRuntime) {
        (self.reader, self.pool, self.runtime) = (reader, pool, runtime)
    }

    package func run(_ connection: any AgentConnection) async throws {
        guard let configuration = try await configuration(connection) else { return }
        let seconds = Int64(configuration.config.collectionIntervalSeconds)
        let interval = min(
            max(.seconds(seconds), LinkLimits.collectionInterval.lowerBound), LinkLimits.collectionInterval.upperBound)
        let volumes = volumes(configuration)
        var window = ResourceWindow(size: Int(configuration.config.numDatapoints))
        while true {
            let point = await collect(memory: configuration.memory.enabled, volumes)
            if let points = window.add(point) {
                var request = Coder_Agent_V2_PushResourcesMonitoringUsageRequest()
                request.datapoints = points
                try await runtime.tolerating(name) {
                    _ = try await connection.call(AgentAPI.pushResourcesMonitoringUsage, request)
                }
            }
            try await runtime.clock.sleep(interval)
        }
    }

    private typealias Configuration = Coder_Agent_V2_GetResourcesMonitoringConfigurationResponse

    /// nil when there is nothing to do.
    private func configuration(_ connection: any AgentConnection) async throws -> Configuration? {
        var answer: Configuration?
        while true {
            try await runtime.tolerating(name) {
                answer = try await connection.call(AgentAPI.getResourcesMonitoringConfiguration, .init())
            }
            if answer != nil { break }
            try await runtime.clock.sleep(LinkLimits.resourcesRetry)
        }
        guard let answer, answer.memory.enabled || answer.volumes.contains(where: \.enabled) else { return nil }
        let config = answer.config
        guard config.numDatapoints > 0, config.collectionIntervalSeconds > 0 else {
            runtime.logger.warning(
                "resources are not monitored: the configuration makes no sense",
                metadata: [
                    "num_datapoints": "\(config.numDatapoints)",
                    "collection_interval_seconds": "\(config.collectionIntervalSeconds)",
                ])
            return nil
        }
        return answer
    }

    private func volumes(_ configuration: Configuration) -> [String] {
        let enabled = configuration.volumes.filter(\.enabled).map(\.path)
        let left = enabled.count - LinkLimits.volumes
        if left > 0 { runtime.logger.warning("too many volumes to monitor", metadata: ["left_out": "\(left)"]) }
        return Array(enabled.prefix(LinkLimits.volumes))
    }

    private func collect(memory: Bool, _ volumes: [String]) async -> ResourceWindow.Datapoint {
        var point = ResourceWindow.Datapoint()
        point.collectedAt = runtime.wall().proto
        if memory, let usage = await readMemory() {
            point.memory.used = usage.used
            point.memory.total = usage.total
        }
        if !volumes.isEmpty {
            point.volumes = await readVolumes(volumes).map { path, usage in
                var one = ResourceWindow.Datapoint.VolumeUsage()
                (one.volume, one.used, one.total) = (path, usage.used, usage.total)
                return one
            }
        }
        return point
    }

    private func readMemory() async -> ResourceReader.Usage? {
        let (pool, reader) = (pool, reader)
        return try? await runtime.within(LinkLimits.resourceRead, "reading memory usage") {
            try await pool.run { reader.memory() }
        }
    }

    private func readVolumes(_ paths: [String]) async -> [(String, ResourceReader.Usage)] {
        let hangs = memory.withLock { memory in
            defer { memory.volumesHang = true }
            return memory.volumesHang
        }
        if hangs { return [] }
        let (pool, reader) = (pool, reader)
        let read = try? await runtime.within(LinkLimits.resourceRead, "reading volume usage") { [self] in
            defer { memory.withLock { $0.volumesHang = false } }
            return try await pool.run { paths.map { ($0, reader.volume($0)) } }
        }
        guard let read else {
            if !Task.isCancelled {
                runtime.logger.warning(
                    "a volume hangs; its usage is left out", metadata: ["volumes": "\(paths.joined(separator: ", "))"])
            }
            return []
        }
        return read.compactMap { path, usage in
            let news = memory.withLock { memory in
                usage == nil ? memory.missing.insert(path).inserted : memory.missing.remove(path) != nil
            }
            guard let usage else {
                if news { runtime.logger.warning("a volume cannot be read", metadata: ["path": "\(path)"]) }
                return nil
            }
            return (path, usage)
        }
    }
}
