import AgentProto
import AgentTestSupport
import Glibc
import Testing

@testable import WorkspaceScripts

private typealias Script = Coder_Agent_V2_WorkspaceAgentScript

/// A directory of the manifest that is cloned later.
@Suite(.serialized, .timeLimit(.minutes(5))) struct MissingDirectoryTests {
    @Test func homeStandsInForItWithOneWarning() async throws {
        try await ScriptFixture.with { fixture in
            let directory = "\(fixture.home)/not-cloned-yet"
            var item = Coder_Agent_V2_WorkspaceAgentMetadata.Description()
            (item.key, item.script, item.interval.seconds) = ("where", "pwd", 10)
            let start = (1...3).map { Script.make("pwd", number: $0) }
            let stop = Script.make("pwd", number: 4) { ($0.runOnStart, $0.runOnStop) = (false, true) }
            try fixture.manifest(scripts: start + [stop], metadata: [item]) { $0.directory = "~/not-cloned-yet" }
            #expect(try await fixture.scripts.runStartScripts() == .succeeded)
            let connection = RecordingConnection()
            let metadata = Task { try await fixture.metadata.run(connection) }
            func values() -> [String] { connection.metadata.flatMap(\.metadata).map(\.result.value) }
            func wait(for count: Int) async throws {
                try await eventually("\(count) values") {
                    fixture.time.manual.advance(by: .seconds(1))
                    return values().count >= count
                }
            }
            try await wait(for: 2)
            #expect(Set(values()) == [fixture.home])
            let warnings = {
                fixture.log.lines.count { $0.contains("not-cloned-yet") && $0.contains("does not exist") }
            }
            #expect(warnings() == 1)
            mkdir(directory, 0o700)
            try await eventually("it is used") {
                fixture.time.manual.advance(by: .seconds(1))
                return values().last == directory
            }
            metadata.cancel()
            _ = await metadata.result
            #expect(await fixture.scripts.runStopScripts() == .succeeded)
            #expect(warnings() == 1)
            let lines = try await fixture.delivered().lines
            #expect(lines.count { $0 == fixture.home } == 3)
            #expect(lines.last == directory)
            #expect(lines.count { $0.contains("does not exist") } == 1)
            rmdir(directory)
        }
    }
}
