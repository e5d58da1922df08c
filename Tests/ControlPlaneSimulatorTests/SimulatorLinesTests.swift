import AgentProto
import ControlPlaneAPI
import FoundationEssentials
import SwiftProtobuf
import Testing

@testable import ControlPlaneSimulator

@Suite("Simulator: lines")
struct SimulatorLinesTests {
    private let manifest = SimulatedManifest.demonstration(
        executable: "/bin/true", agentSocket: nil, healthURL: "http://127.0.0.1/x"
    ).message

    private func lines(_ request: any Message, _ rpc: String = "Rpc", style: EventLines.Style = .text(colours: false))
        -> [String]
    {
        EventLines(style: style, manifest: manifest).lines(
            .call(
                RecordedCall(
                    number: 1, at: .seconds(1_700_000_000) + .milliseconds(7), connection: 2, rpc: rpc,
                    request: request, outcome: .answered)))
    }

    /// Without the time of day, which depends on the machine's zone.
    private func texts(_ request: any Message) -> [String] { lines(request).map { String($0.dropFirst(14)) } }

    @Test("each report has its short line")
    func reports() {
        var lifecycle = Coder_Agent_V2_UpdateLifecycleRequest()
        lifecycle.lifecycle.state = .shuttingDown
        #expect(texts(lifecycle) == ["lifecycle   SHUTTING_DOWN"])

        var logs = Coder_Agent_V2_BatchCreateLogsRequest()
        logs.logSourceID = manifest.scripts[0].logSourceID
        logs.logs = [Coder_Agent_V2_Log(), Coder_Agent_V2_Log()]
        logs.logs[0].output = "hello"
        logs.logs[1].output = "oh"
        logs.logs[1].level = .error
        #expect(texts(logs) == ["log         [Set up] hello", "log stderr  [Set up] oh"])

        var done = Coder_Agent_V2_WorkspaceAgentScriptCompletedRequest()
        done.timing.scriptID = manifest.scripts[0].id
        done.timing.start = .init(seconds: 10)
        done.timing.end = .init(seconds: 11, nanos: 256_000_000)
        done.timing.exitCode = 3
        done.timing.status = .exitFailure
        #expect(texts(done) == ["script      [Set up] EXIT_FAILURE, exit code 3, 1.26 s (start)"])
        done.timing.end = .init(seconds: .max, nanos: .max)
        #expect(texts(done).count == 1)

        var metadata = Coder_Agent_V2_BatchUpdateMetadataRequest()
        metadata.metadata = [Coder_Agent_V2_Metadata(), Coder_Agent_V2_Metadata()]
        metadata.metadata[0].key = "load"
        metadata.metadata[0].result.value = "0.1"
        metadata.metadata[1].key = "disk"
        metadata.metadata[1].result.error = "exit 1"
        #expect(texts(metadata) == ["metadata    load = 0.1", "metadata    disk: exit 1"])

        var status = Coder_Agent_V2_UpdateAppStatusRequest()
        status.slug = "agent-api"
        status.state = .complete
        status.message = "done"
        #expect(texts(status) == ["app status  agent-api COMPLETE: done"])

        var usage = Coder_Agent_V2_PushResourcesMonitoringUsageRequest()
        usage.datapoints = [.init()]
        usage.datapoints[0].memory.used = 1 << 30
        usage.datapoints[0].memory.total = 4 << 30
        #expect(texts(usage) == ["resources   memory 1.0 of 4.0 GiB"])
        #expect(texts(Coder_Agent_V2_GetAnnouncementBannersRequest()).isEmpty)
    }

    @Test("what a script writes can do nothing to the terminal, and long lines are cut")
    func printable() {
        #expect(EventLines.printable("a\u{1b}[31mred\u{7}\tb\u{202e}") == "a\u{fffd}[31mred\u{fffd} b\u{fffd}")
        let whole = String(repeating: "x", count: EventLines.lineBytes)
        #expect(EventLines.printable(whole) == whole)
        #expect(EventLines.printable(whole + "y") == whole + "…")
    }

    @Test("colours only where they are wanted")
    func colours() {
        var lifecycle = Coder_Agent_V2_UpdateLifecycleRequest()
        lifecycle.lifecycle.state = .ready
        #expect(lines(lifecycle)[0].contains("\u{1b}") == false)
        #expect(lines(lifecycle, style: .text(colours: true))[0].contains("\u{1b}[36mlifecycle   READY\u{1b}[0m"))
    }

    @Test("JSON is one object a line, with the request in protobuf's form")
    func json() throws {
        var lifecycle = Coder_Agent_V2_UpdateLifecycleRequest()
        lifecycle.lifecycle.state = .ready
        #expect(
            lines(lifecycle, "UpdateLifecycle", style: .json) == [
                #"{"connection":2,"event":"call","rpc":"UpdateLifecycle","time":"2023-11-14T22:13:20.007Z","#
                    + #""request":{"lifecycle":{"state":"READY"}}}"#
            ])
        let lines = EventLines(style: .json, manifest: manifest)
        let opened = lines.lines(
            .connection(.init(number: 1, at: .zero, connection: 1, change: .opened(version: "2.9", role: "agent"))))
        #expect(
            opened == [
                #"{"connection":1,"event":"opened","role":"agent","time":"1970-01-01T00:00:00Z","version":"2.9"}"#
            ])
    }
}
