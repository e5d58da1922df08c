import AgentCore
import Glibc

/// Lines of ours on stderr, among those of ssh and the server. Each names the program; git shows them as they come.
enum SSHMessage {
    /// - Parameter line: may hold texts of servers and of the control plane.
    static func write(_ line: String) {
        _ = Array("workspace-agent: \(line.harmless)\n".utf8).withUnsafeBytes { writeAll($0, to: STDERR_FILENO) }
    }
}
