import AgentCore
import AgentProto
import FoundationEssentials
import Glibc
import SwiftProtobuf

/// One script of the manifest (spec: agent API, WorkspaceAgentScript).
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

/// A moment of the wall clock.
package struct WallTime: Sendable, Comparable, Hashable {
    /// Since 1970.
    package var seconds: Int64
    /// 0..<1,000,000,000
    package var nanoseconds: Int32

    package init(seconds: Int64, nanoseconds: Int32 = 0) {
        self.seconds = seconds
        self.nanoseconds = nanoseconds
    }

    /// Read from the system.
    package static func now() -> WallTime {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return WallTime(seconds: Int64(time.tv_sec), nanoseconds: Int32(truncatingIfNeeded: time.tv_nsec))
    }

    package static func < (a: WallTime, b: WallTime) -> Bool {
        (a.seconds, a.nanoseconds) < (b.seconds, b.nanoseconds)
    }

    package var proto: Google_Protobuf_Timestamp {
        var timestamp = Google_Protobuf_Timestamp()
        timestamp.seconds = seconds
        timestamp.nanos = nanoseconds
        return timestamp
    }
}

extension Google_Protobuf_Duration {
    /// The same, with parts that break protobuf's rules cut to them.
    package var duration: Duration {
        let limit: Int64 = 315_576_000_000
        return .seconds(min(max(seconds, -limit), limit)) + .nanoseconds(Int64(nanos))
    }
}

extension Duration {
    package var inSeconds: Double {
        let (seconds, attoseconds) = components
        return Double(seconds) + Double(attoseconds) / 1e18
    }
}
