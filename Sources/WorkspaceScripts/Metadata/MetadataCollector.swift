import AgentCore
import AgentProto
import ControlPlaneAPI
import FoundationEssentials
import Glibc
import Logging
import Synchronization

/// The routine that collects metadata and reports it (docs/contracts/control-plane.md#metadata). It keeps nothing
/// over connections but what there is to collect: a new connection collects everything anew.
package final class MetadataCollector: Routine {
    package let name = "report metadata"
    package let atShutdown = RoutineShutdown.stops

    private struct Work: Sendable {
        var items: [MetadataItem] = []
        var directory = ""
        var generation = 0
    }

    private let context: ScriptContext
    private let logger: Logger
    private let runs: CounterFamily
    private let work = Mutex(Work())
    private let changed = Wakeup()
    private let turns = TurnQueue(atOnce: ScriptLimits.metadataAtOnce)

    package init(context: ScriptContext, metrics: MetricsRegistry, logger: Logger) {
        self.context = context
        self.logger = logger
        runs = metrics.counter(
            "agent_metadata_runs_total", help: "Runs of metadata scripts by result.", labels: ["result"])
        for result in ["ok", "error", "timeout"] { _ = runs.with(result) }
    }

    /// A manifest came. When it changes what there is to collect, all of it is collected anew.
    package func update(_ manifest: ManifestSnapshot) {
        var items: [MetadataItem] = []
        var keys: Set<String> = []
        for description in manifest.metadata where keys.insert(description.key).inserted {
            guard items.count < ScriptLimits.metadataItems else {
                logger.warning(
                    "the manifest has too many metadata items; only the first \(ScriptLimits.metadataItems) are collected",
                    metadata: ["items": "\(manifest.metadata.count)"])
                break
            }
            items.append(MetadataItem(description))
        }
        let isNews = work.withLock { work in
            guard work.items != items || work.directory != manifest.directory else { return false }
            work = Work(items: items, directory: manifest.directory, generation: work.generation + 1)
            return true
        }
        if isNews { changed.signal() }
    }

    package func run(_ connection: any AgentConnection) async throws {
        let results = Results()
        changed.clear()
        while true {
            let current = work.withLock { $0 }
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await self.waitForChange(from: current.generation) }
                group.addTask { try await self.report(results, connection) }
                for item in current.items {
                    group.addTask {
                        try await self.collect(item, current.directory, results)
                        // Done with it for this connection; the group goes on.
                        try await Self.untilCancelled()
                    }
                }
                // The first to return saw a change, the first to throw ends the routine.
                try await group.next()
                group.cancelAll()
            }
        }
    }

    private func waitForChange(from generation: Int) async throws {
        while work.withLock({ $0.generation == generation }) { try await changed.wait() }
    }

    private static func untilCancelled() async throws {
        let never = Wakeup()
        try await never.wait()
    }

    // MARK: Reporting

    /// The newest result of each key that was not reported yet.
    private final class Results: Sendable {
        private let waiting = Mutex<[String: Coder_Agent_V2_WorkspaceAgentMetadata.Result]>([:])
        let news = Wakeup()

        func add(_ result: Coder_Agent_V2_WorkspaceAgentMetadata.Result, for key: String) {
            waiting.withLock { $0[key] = result }
            news.signal()
        }

        func take() -> [String: Coder_Agent_V2_WorkspaceAgentMetadata.Result] {
            waiting.withLock { waiting in
                defer { waiting = [:] }
                return waiting
            }
        }
    }

    private func report(_ results: Results, _ connection: any AgentConnection) async throws {
        while true {
            try await results.news.wait()
            // Whatever comes within the second goes along.
            try await context.clock.sleep(ScriptLimits.metadataReportInterval)
            let now = context.wallTime().seconds
            let batch = results.take().sorted { $0.key < $1.key }.map { key, result in
                var metadata = Coder_Agent_V2_Metadata()
                metadata.key = key
                metadata.result = result
                metadata.result.age = max(now - result.collectedAt.seconds, 0)
                return metadata
            }
            guard !batch.isEmpty else { continue }
            var request = Coder_Agent_V2_BatchUpdateMetadataRequest()
            request.metadata = batch
            _ = try await connection.call(AgentAPI.batchUpdateMetadata, request)
        }
    }

    // MARK: Collecting

    private func collect(_ item: MetadataItem, _ directory: String, _ results: Results) async throws {
        var due = context.clock.now()
        while true {
            try await turns.take()
            let (result, kind) = await run(item, directory)
            turns.give()
            // Ended with the connection, it says nothing about the script.
            try Task.checkCancellation()
            results.add(result, for: item.key)
            runs.with(kind).increment()
            guard let interval = item.interval else { return }
            due = max(due + interval, context.clock.now())
            try await context.clock.sleep(due - context.clock.now())
        }
    }

    /// - Returns: what to report, and how the run is counted.
    private func run(
        _ item: MetadataItem, _ directory: String
    ) async -> (Coder_Agent_V2_WorkspaceAgentMetadata.Result, String) {
        var result = Coder_Agent_V2_WorkspaceAgentMetadata.Result()
        result.collectedAt = context.wallTime().proto
        let output = Output()
        let failure = await execute(item, directory, output)
        (result.value, result.error) = output.result(failure: failure?.text(item))
        return (result, failure == nil ? "ok" : failure == .timeout ? "timeout" : "error")
    }

    private final class Output: Sendable {
        private let output = Mutex(MetadataOutput())
        func append(_ bytes: UnsafeRawBufferPointer) { output.withLock { $0.append(bytes) } }
        func result(failure: String?) -> (value: String, error: String) {
            output.withLock { $0.result(failure: failure) }
        }
    }

    private enum Failure: Equatable {
        case timeout
        case start(String)
        case exit(CommandExit)

        func text(_ item: MetadataItem) -> String {
            switch self {
            case .timeout: "the script ran longer than its timeout of \(item.timeout.inSeconds) seconds"
            case .start(let reason): "the script could not be started: \(reason)"
            // The text that existing dashboards look for.
            case .exit(.exited(let code)): "run cmd: exit status \(code)"
            case .exit(.signalled(let number)): "run cmd: killed by signal \(number)"
            }
        }
    }

    private func execute(_ item: MetadataItem, _ directory: String, _ output: Output) async -> Failure? {
        let command: any RunningCommand
        do {
            let workdir = await context.workdir(directory).path
            var request = try context.command(Secret(item.script), directory: workdir)
            request.mergesOutputs = true
            command = try await context.runner.start(request) { output.append($1) }
        } catch {
            return .start("\(error)")
        }
        let timedOut = TimedOut()
        // Not a child of this task: its cancellation, too, must end the command.
        let deadline = Task(executorPreference: context.executor) { [context] in
            guard (try? await context.clock.sleep(item.timeout)) != nil else { return }
            timedOut.set()
            Self.kill(command)
        }
        let exit = await withTaskCancellationHandler {
            let exit = await command.exit()
            // What it left in the background and that holds its output has until the timeout.
            await command.outputEnd()
            return exit
        } onCancel: {
            Self.kill(command)
        }
        deadline.cancel()
        if timedOut.isSet { return .timeout }
        return exit == .exited(0) ? nil : .exit(exit)
    }

    private static func kill(_ command: any RunningCommand) {
        command.signal(SIGKILL)
        command.abandonOutput()
    }

    private final class TimedOut: Sendable {
        private let value = Mutex(false)
        var isSet: Bool { value.withLock { $0 } }
        func set() { value.withLock { $0 = true } }
    }
}
