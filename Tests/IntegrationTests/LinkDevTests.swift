import AgentTestSupport
import Foundation
import Glibc
import Testing

/// `workspace-agent dev`, as a person or a program starts it.
@Suite("Link: dev", .blocking, .timeLimit(.minutes(15))) struct LinkDevTests {
    /// - Returns: what it printed by its end, and its exit status.
    private func run(
        _ output: String, until text: [String], then more: String = "", _ act: (String) throws -> Void = { _ in }
    ) async throws -> (String, Int32) {
        let directory = try TemporaryDirectory()
        let (out, state) = ("\(directory.path)/out", "\(directory.path)/state")
        let line = "exec \(DaemonProcess.binary) dev --output \(output) --state-dir \(state) > \(out) 2> \(out).err"
        let pid = try DaemonProcess.spawn(
            ["sh", "-c", line],
            ProcessInfo.processInfo.environment.merging(["HOME": directory.path]) { _, new in new })
        var status: Int32 = 0
        do {
            try await eventually("\(text)", within: .seconds(110)) {
                let seen = ProcFS.text(out)
                return text.allSatisfy { seen.contains($0) }
            }
            try act(directory.path)
            try await eventually("\(more)") { ProcFS.text(out).contains(more) || more.isEmpty }
            kill(pid, SIGTERM)
            try await eventually("its end", within: .seconds(60)) { waitpid(pid, &status, WNOHANG) == pid }
        } catch {
            kill(pid, SIGKILL)
            waitpid(pid, &status, 0)
            Issue.record("printed: \(ProcFS.text(out)) \(ProcFS.text("\(out).err"))")
            throw error
        }
        #expect(ProcFS.text("\(out).err") == "")
        #expect(access("\(state)/control-plane.token", F_OK) != 0, "the token goes with it")
        return (ProcFS.text(out), status)
    }

    @Test func forPeople() async throws {
        let (text, status) = try await run("text", until: ["READY", "the project waits for the tools", "load"])
        #expect(status == 0)
        #expect(text.hasPrefix("control plane  http://127.0.0.1:"))
        #expect(text.contains("Ctrl-C ends it."))
        #expect(text.contains("SHUTTING_DOWN"))
        #expect(text.contains("OFF"))
        let last = text.split(separator: "\n").last ?? ""
        #expect(last.hasPrefix("ended: ") && last.hasSuffix(" calls on 1 connections"), "\(last)")
    }

    /// The boundary log of docs/dev.md, typed as it stands there, into a daemon that runs as described.
    @Test(.enabled(if: access("/usr/bin/python3", X_OK) == 0)) func theExampleOfTheDocsArrives() async throws {
        let docs = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent(
            "../../docs/dev.md")
        let lines = try String(contentsOf: docs, encoding: .utf8).split(separator: "\n").map(String.init)
        let start = try #require(lines.firstIndex { $0.hasPrefix("    $ python3 -c") })
        let socket = "~/.local/state/workspace-agent/dev/boundary-audit.sock"
        let end = try #require(lines[start...].firstIndex { $0.hasSuffix(socket) })
        let typed = lines[start...end].map { String($0.dropFirst(4)) }.joined(separator: "\n").dropFirst(2)
        let shown = try #require(lines[end...].first { $0.contains("boundary    ") })
        let event = try #require(shown.range(of: "boundary    ").map { String(shown[$0.lowerBound...]) })
        // "~" is another place here, and so is XDG_STATE_HOME.
        let (text, status) = try await run("text", until: ["READY"], then: event) { directory in
            let result = try CommandResult.of(
                ["sh", "-c", typed.replacingOccurrences(of: socket, with: "\(directory)/state/boundary-audit.sock")])
            #expect(result.code == 0, "\(result.errors)")
        }
        #expect(status == 0)
        #expect(!text.contains("refused"))
    }

    @Test func forPrograms() async throws {
        let (text, status) = try await run("json", until: ["READY"])
        #expect(status == 0)
        let lines = text.split(separator: "\n")
        for line in lines {
            let object = try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            #expect(object?["event"] is String, "\(line)")
        }
        #expect(lines.first?.contains(#""event":"started""#) == true)
        #expect(text.contains("OFF"))
        #expect(!text.contains("this value must not show up in any log"))
    }
}
