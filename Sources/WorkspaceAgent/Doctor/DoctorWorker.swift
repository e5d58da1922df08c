import AgentCore
import FoundationEssentials
import Glibc
import LocalAgent

/// The checks are made by a process of their own. One that has looked into a dead file system cannot end, not even when
/// it is killed, and a process that waits for it would hang, too; so it is left behind.
enum DoctorWorker {
    /// Set for that process.
    static let variable = "WORKSPACE_AGENT_DOCTOR_WORKER"
    /// Longer than it takes when all checks hang, on a machine that is busy.
    static let patience = DoctorChecks.patience + .milliseconds(2_500)

    /// Has it run, with this command's own arguments.
    static func checks(_ environment: [String: String]) throws -> [DoctorCheck] {
        let output = CapturedProgram.outputLeavingBehind(
            of: OwnProgram.ownExecutable, Array(CommandLine.arguments.dropFirst()),
            environment: environment.merging([variable: "1"]) { _, new in new }, atMost: patience)
        guard let output, let report = try? JSONDecoder().decode(DoctorReport.self, from: Data(output.utf8)) else {
            throw CommandFailure(
                message:
                    "the checks did not end within \(patience.components.seconds) s; look for a file system that does "
                    + "not answer, or a machine without free memory or processes")
        }
        return report.checks
    }

    /// In that process.
    static func answer(_ checks: [DoctorCheck]) throws {
        try StandardOutput.write(String(decoding: JSONEncoder().encode(DoctorReport(checks: checks)), as: UTF8.self))
        // A thread that hangs would keep it open beyond the end of this process.
        close(STDOUT_FILENO)
    }
}
