import AgentTestSupport
import Foundation
import Glibc

@testable import AgentCore

/// `workspace-agent dev` with a home of its own, and what the desktop needs on its PATH.
final class DevProcess {
    static let repository = URL(fileURLWithPath: #filePath).deletingLastPathComponent().path + "/../.."

    let home: TemporaryDirectory
    let port: Int
    /// What it was started with.
    let environment: [String: String]
    private let pid: pid_t
    private var hasEnded = false

    /// Returns once its start scripts have ended.
    init() async throws {
        home = try TemporaryDirectory()
        port = try LoopbackSocket.freePort()
        var variables = ProcessInfo.processInfo.environment.filter { !$0.key.hasPrefix("CODER_") }
        for name in ["XDG_STATE_HOME", "XDG_RUNTIME_DIR"] { variables[name] = nil }
        variables["HOME"] = home.path
        variables["TMPDIR"] = home.path
        variables["PATH"] = "\(Self.repository)/Tests/Fixtures:\(variables["PATH"] ?? "")"
        environment = variables
        let line = "exec \(DaemonProcess.binary) dev --http-address 127.0.0.1:\(port) > \(home.path)/dev.out 2>&1"
        pid = try DaemonProcess.spawn(["/bin/sh", "-c", line], variables)
        try await eventually("dev is ready", within: .seconds(60)) { self.output.contains("READY") }
    }

    deinit {
        guard !hasEnded else { return }
        kill(pid, SIGKILL)
        waitpid(pid, nil, 0)
    }

    /// What it has printed.
    var output: String { readTextFile("\(home.path)/dev.out") ?? "" }

    func connect() throws -> RawConnection {
        try RawConnection(unix: "\(home.path)/.local/state/workspace-agent/dev/http.sock")
    }

    /// SIGTERM, and the raw wait status.
    func stop() -> Int32 {
        kill(pid, SIGTERM)
        var status: Int32 = 0
        hasEnded = waitpid(pid, &status, 0) == pid
        return status
    }
}
