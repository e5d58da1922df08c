import AgentCore
import AgentProto
import ControlPlaneAPI
import FoundationEssentials

/// One script of the manifest (docs/contracts/agent-api.md#scripts-and-their-results).
package struct WorkspaceScript: Sendable, Equatable {
    /// 16 raw bytes.
    package var id: Data
    /// 16 raw bytes; names the log that the output belongs to.
    package var logSourceID: Data
    package var displayName: String
    /// Where the output goes; empty for the default.
    package var logPath: String
    /// The text itself, which may hold tokens.
    package var text: Secret<String>
    /// Empty for none.
    package var cron: String
    package var runsOnStart: Bool
    package var runsOnStop: Bool
    /// Logins are to wait for it.
    package var startBlocksLogin: Bool
    /// nil for none.
    package var timeout: Duration?

    package init(_ message: Coder_Agent_V2_WorkspaceAgentScript) {
        id = message.id
        logSourceID = message.logSourceID
        displayName = message.displayName
        logPath = message.logPath
        text = Secret(message.script)
        cron = message.cron
        runsOnStart = message.runOnStart
        runsOnStop = message.runOnStop
        startBlocksLogin = message.startBlocksLogin
        let limit = message.timeout.duration
        timeout = limit > .zero ? limit : nil
    }

    package static func == (a: WorkspaceScript, b: WorkspaceScript) -> Bool {
        a.id == b.id && a.logSourceID == b.logSourceID && a.displayName == b.displayName && a.logPath == b.logPath
            && a.text.reveal() == b.text.reveal() && a.cron == b.cron && a.runsOnStart == b.runsOnStart
            && a.runsOnStop == b.runsOnStop && a.startBlocksLogin == b.startBlocksLogin && a.timeout == b.timeout
    }
}
