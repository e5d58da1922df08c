import AgentCore
import AgentHTTP
import AgentProto
import FoundationEssentials
import Hummingbird
import NIOCore

/// `GET /api/v0/scripts`: the manifest's scripts with their last runs, and their logs.
package struct ScriptRoutes: Sendable {
    /// Bytes of a log's end that are answered.
    package static let logBytes = 256 << 10

    private static let base = "/api/v0/scripts"
    private let manifest: CurrentManifest
    private let history: ScriptHistory
    private let pool: BlockingPool

    /// - Parameter pool: where log files are read.
    package init(manifest: CurrentManifest, history: ScriptHistory, pool: BlockingPool) {
        (self.manifest, self.history, self.pool) = (manifest, history, pool)
    }

    package func add(to routes: AgentRoutes) {
        routes.get(Self.base, list)
        routes.get("\(Self.base)/{id}/log", log)
    }

    private struct Run: Encodable {
        var stage: String
        var status: String
        var exit_code: Int32
        var started_at: String
        var ended_at: String

        init(_ timing: Coder_Agent_V2_Timing) {
            (stage, status, exit_code) = (timing.stage.label, timing.status.label, timing.exitCode)
            started_at = timestampText(seconds: timing.start.seconds, nanoseconds: timing.start.nanos)
            ended_at = timestampText(seconds: timing.end.seconds, nanoseconds: timing.end.nanos)
        }
    }

    private struct Script: Encodable {
        var id: String
        var name: String
        var log_path: String
        var cron: String
        var runs_on: [String]
        var timeout_seconds: Int64
        var running: Bool
        var runs: [Run]
    }

    private struct Answer: Encodable { var scripts: [Script] }

    private func list(_ request: Request, _ context: AgentRequestContext) throws -> Response {
        _ = try Query(request, allowed: [])
        let scripts = (manifest.snapshot?.scripts ?? []).prefix(ScriptLimits.scripts).map { script in
            let record = history.record(script.id) ?? .init()
            return Script(
                id: script.id.text, name: script.displayName, log_path: record.logPath, cron: script.cron,
                runs_on: (script.runsOnStart ? ["start"] : []) + (script.runsOnStop ? ["stop"] : []),
                timeout_seconds: script.timeout?.components.seconds ?? 0, running: record.running > 0,
                runs: record.runs.map(Run.init))
        }
        return .json(Answer(scripts: Array(scripts)))
    }

    private func log(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        _ = try Query(request, allowed: [])
        let id = try context.pathParameter("id")
        guard let script = manifest.snapshot?.scripts.first(where: { $0.id.text == id }) else {
            throw HTTPProblem(.notFound, "Script not found.")
        }
        guard let path = history.record(script.id)?.logPath, !path.isEmpty else {
            throw HTTPProblem(.notFound, "The script has not run yet.")
        }
        do {
            let bytes = try await pool.run { try OwnFile.tail(path, bytes: Self.logBytes) }
            return .text(ByteBuffer(bytes: bytes))
        } catch {
            throw HTTPProblem(.notFound, "The script's log cannot be read.", detail: "\(error)")
        }
    }
}
