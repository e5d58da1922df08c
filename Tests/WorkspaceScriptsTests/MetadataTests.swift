import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import DRPC
import FoundationEssentials
import Glibc
import SwiftProtobuf
import Testing

@testable import WorkspaceScripts

private typealias Description = Coder_Agent_V2_WorkspaceAgentMetadata.Description

@Suite(.serialized, .timeLimit(.minutes(5))) struct MetadataTests {
    private func item(_ key: String, _ script: String, interval: Int64 = 0, timeout: Int64 = 0) -> Description {
        var description = Description()
        description.key = key
        description.script = script
        description.interval.seconds = interval
        description.timeout.seconds = timeout
        return description
    }

    /// Runs the routine until the body is done.
    private func collecting(
        _ fixture: ScriptFixture, _ connection: RecordingConnection, _ body: () async throws -> Void
    ) async throws {
        let task = Task { try await fixture.metadata.run(connection) }
        do {
            try await body()
        } catch {
            task.cancel()
            _ = await task.result
            throw error
        }
        task.cancel()
        _ = await task.result
        try await eventually("nothing runs without a connection") { fixture.commands.running == 0 }
    }

    /// Moves time until so many results came.
    private func results(
        _ fixture: ScriptFixture, _ connection: RecordingConnection, _ count: Int
    ) async throws -> [Coder_Agent_V2_Metadata] {
        try await eventually("\(count) results") {
            fixture.time.manual.advance(by: .milliseconds(100))
            return connection.metadata.flatMap(\.metadata).count >= count
        }
        return connection.metadata.flatMap(\.metadata)
    }

    @Test func valuesAndErrors() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(metadata: [
                item("a", "echo '  42 '; pwd >/dev/null", timeout: 3600),
                item("b", "for n in 1 2 3; do echo out$n; echo err$n >&2; done; exit 4", timeout: 3600),
                item("c", "head -c 20000 /dev/zero | tr '\\0' x", timeout: 3600),
                item("d", "kill -9 $$", timeout: 3600),
                item("e", "printf 'a\\377\\000'", timeout: 3600), item("a", "echo twice", timeout: 3600),
            ])
            let connection = RecordingConnection()
            try await collecting(fixture, connection) {
                let all = try await results(fixture, connection, 5)
                let found = Dictionary(all.map { ($0.key, $0.result) }) { first, _ in first }
                #expect(found["a"]?.value == "42" && found["a"]?.error == "")
                #expect(found["b"]?.value == "out1\nerr1\nout2\nerr2\nout3\nerr3")
                #expect(found["b"]?.error == "run cmd: exit status 4")
                #expect(found["c"]?.value == String(repeating: "x", count: 10 << 10))
                #expect(found["c"]?.error == "the value was cut to 10240 bytes; its script wrote 20000")
                #expect(found["d"]?.error == "run cmd: killed by signal 9")
                #expect(found["e"]?.value == "a\u{fffd}\u{fffd}")
                #expect(found["a"]?.collectedAt.seconds ?? 0 >= 1_700_000_000)
                // Interval 0 is once.
                fixture.time.manual.advance(by: .seconds(100))
                #expect(connection.metadata.flatMap(\.metadata).count == 5)
            }
            #expect(fixture.metrics.render().contains(#"agent_metadata_runs_total{result="ok"} 3"#))
        }
    }

    @Test func aTextRunsWithTheInterpreterOfItsFirstLine() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(metadata: [
                item("bash", "#!/usr/bin/env bash\na=(1 2 3); echo ${#a[@]}", timeout: 3600),
                item("python", "  #!/usr/bin/env python3\nprint(6 * 7)", timeout: 3600),
                item("missing", "#!/no/such/interpreter\n", timeout: 3600),
            ])
            let connection = RecordingConnection()
            try await collecting(fixture, connection) {
                let all = try await results(fixture, connection, 3)
                let found = Dictionary(all.map { ($0.key, $0.result) }) { first, _ in first }
                #expect(found["bash"]?.value == "3" && found["bash"]?.error == "")
                #expect(found["python"]?.value == "42" && found["python"]?.error == "")
                #expect(found["missing"]?.error.contains("/no/such/interpreter") == true)
            }
        }
    }

    @Test func runsAtOnceAndThenEachIntervalNeverTwiceAtATime() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(metadata: [
                item(
                    "k",
                    "echo x >> ~/runs; [ -e ~/busy ] && exit 1; touch ~/busy; until [ -e ~/go ]; do sleep 0.01; done; rm ~/busy",
                    interval: 5, timeout: 1_000_000)
            ])
            let connection = RecordingConnection()
            func runs() -> Int { (readTextFile("\(fixture.home)/runs") ?? "").count { $0 == "x" } }
            try await collecting(fixture, connection) {
                try await eventually("the first run") { runs() == 1 }
                fixture.time.manual.advance(by: .seconds(20))
                #expect(runs() == 1)
                creat("\(fixture.home)/go", 0o600)
                // What was missed is not made up for.
                try await eventually("the second run") { runs() == 2 }
                try await eventually("it ended") {
                    fixture.metrics.render().contains(#"agent_metadata_runs_total{result="ok"} 2"#)
                }
                for expected in 3...5 {
                    try await eventually("run \(expected)") {
                        fixture.time.manual.advance(by: .seconds(1))
                        return runs() >= expected
                    }
                }
            }
            #expect(connection.metadata.flatMap(\.metadata).allSatisfy { $0.result.error == "" })
        }
    }

    @Test func aTimeoutKillsTheSession() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(metadata: [item("slow", "sleep 1000 & sleep 1000; true")])
            let connection = RecordingConnection()
            try await collecting(fixture, connection) {
                try await eventually("it runs") { fixture.commands.running == 1 }
                await fixture.time.manual.sleepers(1)
                fixture.time.manual.advance(by: .seconds(3))
                let found = try await results(fixture, connection, 1)
                #expect(found.first?.result.error == "the script ran longer than its timeout of 3.0 seconds")
            }
        }
    }

    @Test func disconnectingKillsAndANewConnectionStartsAnew() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(metadata: [item("k", "echo x >> ~/runs; sleep 1000", timeout: 3600)])
            for expected in 1...2 {
                try await collecting(fixture, RecordingConnection()) {
                    try await eventually("run \(expected)") {
                        (readTextFile("\(fixture.home)/runs") ?? "").count { $0 == "x" } == expected
                    }
                }
            }
        }
    }

    @Test func aNewManifestReplacesTheSet() async throws {
        try await ScriptFixture.with { fixture in
            let connection = RecordingConnection()
            try await collecting(fixture, connection) {
                try fixture.manifest(metadata: [item("old", "sleep 1000", timeout: 3600)])
                try await eventually("it runs") { fixture.commands.running == 1 }
                try fixture.manifest(metadata: [item("new", "echo new", timeout: 3600)])
                let found = try await results(fixture, connection, 1)
                #expect(found.map(\.key) == ["new"])
                try await eventually("the old one is gone") { fixture.commands.running == 0 }
            }
        }
    }

    @Test func atMostEightRunAtOnce() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(
                metadata: (0..<20).map {
                    item("k\($0)", "until [ -e ~/go ]; do sleep 0.02; done; echo \($0)", timeout: 100_000)
                })
            let connection = RecordingConnection()
            try await collecting(fixture, connection) {
                try await eventually("eight run") { fixture.commands.running == ScriptLimits.metadataAtOnce }
                creat("\(fixture.home)/go", 0o600)
                let found = try await results(fixture, connection, 20)
                #expect(Set(found.map(\.result.value)) == Set((0..<20).map { "\($0)" }))
            }
        }
    }

    @Test func oneCallASecond() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(metadata: (0..<5).map { item("k\($0)", "echo \($0)", timeout: 3600) })
            let connection = RecordingConnection()
            try await collecting(fixture, connection) {
                try await eventually("all ran") {
                    fixture.metrics.render().contains(#"agent_metadata_runs_total{result="ok"} 5"#)
                }
                await fixture.time.manual.sleepers(1)
                #expect(connection.metadata.isEmpty)
                try await eventually("reported") {
                    fixture.time.manual.advance(by: .seconds(1))
                    return !connection.metadata.isEmpty
                }
                #expect(connection.metadata.count == 1 && connection.metadata.first?.metadata.count == 5)
            }
        }
    }

    @Test func aFailedReportEndsTheRoutine() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(metadata: [item("k", "echo x", timeout: 3600)])
            let connection = RecordingConnection()
            connection.plan([.drop(delivered: false)])
            let task = Task { try await fixture.metadata.run(connection) }
            let advancing = Task {
                try await eventually("the routine ended") {
                    fixture.time.manual.advance(by: .seconds(1))
                    return connection.attempts == 1
                }
            }
            await #expect(throws: DRPCError(.closed, "")) { try await task.value }
            try await advancing.value
        }
    }

    @Test func intervalsAreWholeSecondsAndTimeoutsFollowThem() {
        func read(_ interval: Int64, _ nanos: Int32, _ timeout: Int64) -> MetadataItem {
            var description = item("k", "", interval: interval, timeout: timeout)
            description.interval.nanos = nanos
            return MetadataItem(description)
        }
        #expect(read(0, 0, 0).interval == nil && read(0, 0, 0).timeout == .seconds(3))
        #expect(read(7, 0, 0).interval == .seconds(7) && read(7, 0, 0).timeout == .seconds(7))
        #expect(read(0, 1, 0).interval == .seconds(1) && read(-5, 0, 0).interval == nil)
        #expect(read(7, 0, 2).timeout == .seconds(2))
        #expect(read(.max, .max, .max).interval != nil)
    }

    @Test func valuesAreCutBetweenCharacters() {
        #expect(MetadataOutput.prefix("aé", 3) == "aé")
        #expect(MetadataOutput.prefix("aé", 2) == "a")
        #expect(MetadataOutput.prefix("€", 2) == "")
        #expect(MetadataOutput.prefix("", 0) == "")
    }
}
