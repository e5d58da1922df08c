import AgentTestSupport
import Foundation
import Testing

/// A daemon on a machine without a library that one capability needs: the rest works, and it says what does not.
@Suite("Missing libraries", .blocking) struct MissingLibraryTests {
    private static let mayMount = (try? CommandResult.of(["unshare", "-m", "true"]))?.code == 0

    /// Runs a program where the file of the library is empty.
    private static func without(_ library: String) -> [String] {
        let script = """
            for file in $(ldconfig -p | grep -F '\(library) ' | sed 's/.*=> //'); do
                mount --bind /dev/null "$(readlink -f "$file")" || exit
            done
            exec "$@"
            """
        return ["unshare", "-m", "sh", "-c", script, "sh"]
    }

    private func check(_ name: String, _ wrapper: [String], _ directory: String) throws -> String {
        let result = try CommandResult.of(
            wrapper + [DaemonProcess.binary, "doctor", "--state-dir", directory, "--log-dir", directory])
        return result.output.split(separator: "\n").first { $0.contains(" \(name) ") }.map(String.init) ?? ""
    }

    @Test(.enabled(if: mayMount, "mounts are not permitted")) func withoutSQLiteNoBoundaryLogs() async throws {
        let wrapper = Self.without("libsqlite3.so.0")
        let daemon = try DaemonProcess(wrapper: wrapper)
        let health = try daemon.connect().request("GET", "/healthz").text
        #expect(health.contains(#""status":"degraded""#))
        #expect(health.contains("boundary logs: SQLite cannot be loaded: "))
        #expect(health.contains("install libsqlite3-0"))
        #expect(!FileManager.default.fileExists(atPath: "\(daemon.directory.path)/boundary.sock"))
        #expect(try check("sqlite", wrapper, daemon.directory.path).hasPrefix("warning"))
        #expect(try check("sqlite", [], daemon.directory.path).hasPrefix("ok"))
        let run = try daemon.connect().request(
            "POST", "/api/v0/processes/start", body: #"{"command": "echo it works", "wait_ms": 60000}"#)
        #expect(run.text.contains("it works"))
        #expect(try await daemon.stop() == 0)
    }
}
