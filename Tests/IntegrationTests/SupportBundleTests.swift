import AgentTestSupport
import ControlPlaneSimulator
import Foundation
import Glibc
import Testing

/// What `coder support bundle` asks an agent for.
@Suite("Support bundle", .blocking, .timeLimit(.minutes(5))) struct SupportBundleTests {
    @Test func theManifestIsThere() async throws {
        let world = try await LinkWorld { manifest, directory in
            manifest.directory = directory
            manifest.environmentVariables = ["TOKEN": "planted-variable", "EMPTY": ""]
            manifest.secrets = [
                .with {
                    $0.envName = "API_KEY"
                    $0.value = Data("planted-secret".utf8)
                }
            ]
            manifest.scripts = [LinkWorld.script("one", "echo 1")]
            manifest.metadata = [LinkWorld.metadata("cpu", "echo 2", every: 7)]
            manifest.apps = [LinkWorld.app("web", health: "http://127.0.0.1:1/")]
        }
        let daemon = try world.daemon()
        try await world.reported(.ready)
        let response = try daemon.connect().request("GET", "/debug/manifest")
        #expect(response.status == 200 && !response.text.contains("planted"))
        let manifest = try #require(try JSONSerialization.jsonObject(with: response.body) as? [String: Any])
        #expect(manifest["directory"] as? String == world.directory.path)
        #expect(manifest["environment_variables"] as? [String: String] == ["TOKEN": "***REDACTED***", "EMPTY": ""])
        let scripts = try #require(manifest["scripts"] as? [[String: Any]])
        #expect(scripts.map { $0["script"] as? String } == ["echo 1"])
        let metadata = try #require(manifest["metadata"] as? [[String: Any]])
        #expect(metadata.map { $0["interval"] as? Int } == [7])
        let apps = try #require(manifest["apps"] as? [[String: Any]])
        #expect((apps.first?["healthcheck"] as? [String: Any])?["url"] as? String == "http://127.0.0.1:1/")
        #expect(manifest["devcontainers"] as? [String] == [] && manifest["derpmap"] is [String: Any])
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    @Test func logsOfATime() async throws {
        let daemon = try DaemonProcess(logLevel: "debug")
        let connection = try daemon.connect()
        func logs(_ after: String) throws -> String {
            let response = try connection.request("GET", "/debug/logs?after=\(after)")
            #expect(response.status == 200 && response.headers["content-type"] == "text/plain; charset=utf-8")
            return response.text
        }
        #expect(try logs("2000-01-01T00:00:00Z").contains("listening on"))
        #expect(try !logs("2000-01-01T00:00:00Z").contains("--- "))
        // Some files of them.
        let path = "/" + String(repeating: "x", count: 8_000)
        for _ in 0..<30 {
            try connection.send(String(repeating: "GET \(path) HTTP/1.1\r\nHost: a\r\n\r\n", count: 50))
            for _ in 0..<50 { #expect(try connection.response().status == 404) }
        }
        func names(_ text: String) -> [Substring] {
            text.split(separator: "\n").filter { $0.hasPrefix("--- ") }.map { $0.split(separator: " ")[1] }
        }
        let all = try logs("2000-01-01T00:00:00Z")
        #expect(names(all) == ["workspace-agent.log.1", "workspace-agent.log.2"])
        #expect(all.contains("listening on") && all.utf8.count > 10 << 20)
        #expect(names(try logs("2100-01-01T00:00:00%2B02:00")).isEmpty)
        for wrong in ["", "yesterday", "2000-01-01", "1700000000"] {
            let response = try connection.request("GET", "/debug/logs?after=\(wrong)")
            #expect(response.status == 400 && response.text.contains("RFC 3339"), "\(wrong)")
        }
        #expect(try await daemon.stop() == 0)
    }
}
