/// Every bound of scripts, logs and metadata, and what happens at it.
package enum ScriptLimits {
    /// Text that waits for the control plane, of all sources. New lines beyond it are dropped, counted and
    /// said once (docs/contracts/control-plane.md#logs).
    package static let queuedLogBytes = 1 << 20
    /// Lines that wait, since empty ones have no text. As above.
    package static let queuedLogLines = 131_072
    /// Encoded bytes of one BatchCreateLogs request (docs/contracts/control-plane.md#logs).
    package static let logBatchBytes = 1 << 20
    /// Bytes of one line before invalid ones become U+FFFD (three bytes each); a longer one comes in
    /// pieces, so that each fits a batch.
    package static let logLineBytes = 64 << 10
    /// How long a line waits for others (docs/contracts/control-plane.md#logs).
    package static let logFlushInterval = Duration.seconds(1)
    /// Output of one script that waits for its log file. Its pipes are not read while there is more.
    package static let scriptPendingBytes = 1 << 20
    /// Bytes of a log file at which the next run moves it to `.1`, and what one run may write to it; the
    /// rest of the run's output is left out with a line that says so.
    package static let scriptLogFileBytes = 64 << 20
    /// Scripts of a manifest that are run; further ones are left out with a warning.
    package static let scripts = 256
    /// Script results that wait for the control plane; the oldest is dropped and counted.
    package static let scriptReports = 1_024
    /// After a timed-out script's SIGTERM, until SIGKILL (docs/contracts/control-plane.md#scripts).
    package static let scriptKillGrace = Duration.seconds(10)
    /// How long outputs may stay open after a script's end (docs/contracts/control-plane.md#scripts).
    package static let scriptPipeGrace = Duration.seconds(10)
    /// How often a script's result may be refused, over as many connections. Then it is dropped and counted.
    package static let scriptReportRefusals = 3
    /// After SIGTERM to scripts that are cancelled, until SIGKILL.
    package static let cancelGrace = Duration.seconds(2)
    /// Longest sleep until a cron run, so that a wall clock that was set is noticed.
    package static let cronNap = Duration.seconds(60)
    /// Metadata of a manifest that is collected; further items are left out with a warning.
    package static let metadataItems = 256
    /// Metadata scripts that run at once; more wait.
    package static let metadataAtOnce = 8
    /// Bytes of a metadata value (docs/contracts/control-plane.md#metadata); the rest is cut off and the error says so.
    package static let metadataValueBytes = 10 << 10
    /// Between two calls that report metadata (docs/contracts/control-plane.md#metadata).
    package static let metadataReportInterval = Duration.seconds(1)
    /// Timeout of a metadata item with neither timeout nor interval (docs/contracts/control-plane.md#metadata).
    package static let metadataTimeout = Duration.seconds(3)
}
