import AgentTestSupport
import Foundation
import Glibc
import Testing

/// `workspace-agent dev`, as a person or a program starts it.
@Suite("Link: dev", .blocking, .timeLimit(.minutes(15))) struct LinkDevTests {
    /// - Returns: what it printed by its end, and its exit status.
    private func run(_ output: String, until text: [String]) async throws -> (String, Int32) {
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
