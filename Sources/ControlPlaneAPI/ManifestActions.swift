import AgentProto

/// What the client has done with manifests and their scripts, by a capability that it does not know.
package protocol ManifestActions: Sendable {
    /// Applies a manifest: environment, secrets, metadata, schedules; no script is run. The message still has
    /// its secrets and must not be logged.
    /// - Returns: the absolute path of the manifest's directory; empty when it names none.
    /// - Throws: when the manifest is invalid; the connection is closed.
    func apply(_ message: Coder_Agent_V2_Manifest) async throws -> String

    /// Runs all start scripts and returns when the last has ended. Cancelling the task ends them.
    func runStartScripts() async -> ScriptOutcome

    /// Begins with the scheduled scripts. Called once, after the start scripts.
    func startCron()

    /// Starts no more scheduled scripts; called when shutdown begins.
    func stopCron()

    /// Ends scripts that still run, and returns when they have ended and reported.
    /// - Parameter all: stop scripts, too.
    func endScripts(all: Bool) async

    /// Runs all run_on_stop scripts and returns when the last has ended. Cancelling the task ends them.
    func runStopScripts() async -> ScriptOutcome
}

/// How the scripts of a stage went; the lifecycle follows from it (docs/contracts/control-plane.md#manifest,
/// docs/contracts/control-plane.md#shutdown).
package enum ScriptOutcome: Sendable, Equatable {
    /// All ended with exit code 0 (or there were none).
    case succeeded
    /// At least one ran out of time.
    case timedOut
    /// At least one failed, and none ran out of time.
    case failed
}
