import AgentCore
import AgentProto
import AgentTestSupport
import DRPC
import FoundationEssentials
import Glibc
import Synchronization
import Testing

@testable import ControlPlane
@testable import WorkspaceScripts

private typealias Script = Coder_Agent_V2_WorkspaceAgentScript

/// Scripts that disturb others, outlive what they belong to, or whose results nobody takes.
@Suite(.serialized, .timeLimit(.minutes(2))) struct ScriptFaultTests {
    /// With one thread for all files: a script that never stops writing must leave it to others.
    @Test func aNoisyScriptHoldsUpNobody() async throws {
        try await ScriptFixture.with(threads: 1) { fixture in
            try fixture.manifest(scripts: [
                .make(
                    // Long lines: what many short ones cost is the test's own time.
                    "yes $(head -c 4000 /dev/zero | tr '\\0' x) & touch ~/noisy; until [ -e ~/stop ]; do sleep 0.05; done; kill $!"
                ),
                .make("until [ -e ~/noisy ]; do sleep 0.01; done; echo quiet; exit 3", number: 2),
            ])
            let result = Task(executorPreference: fixture.executor) { try await fixture.scripts.runStartScripts() }
            try await eventually("the quiet script's result is there while the other writes") {
                fixture.metrics.render().contains(#"agent_scripts_total{stage="start",status="exit_failure"} 1"#)
            }
            let path = "\(fixture.home)/logs/coder-script-02020202-0202-0202-0202-020202020202.log"
            #expect(readTextFile(path) == "quiet\n")
            #expect(fixture.commands.running == 1)
            creat("\(fixture.home)/stop", 0o600)
            #expect(try await result.value == .failed)
        }
    }

    /// A scheduled run that still goes on when its life ends is ended with it, and reported in it.
    @Test func aScheduledRunDoesNotOutliveItsLife() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(scripts: [
                .make("echo scheduled; touch ~/runs; exec sleep 1000") {
                    ($0.runOnStart, $0.cron) = (false, "TZ=UTC 0 */1 * * * *")
                },
                .make("echo stopping", number: 2) { ($0.runOnStart, $0.runOnStop) = (false, true) },
            ])
            fixture.scripts.startCron()
            await fixture.time.manual.sleepers(1)
            fixture.time.manual.advance(by: .seconds(40))
            try await eventually("it runs") { access("\(fixture.home)/runs", F_OK) == 0 }
            let ended = Mutex(false)
            Task {
                await fixture.scripts.cancelStart()
                ended.withLock { $0 = true }
            }
            try await eventually("it has ended") { ended.withLock { $0 } }
            #expect(fixture.commands.running == 0)
            // No more come, and those that are to run at the end do.
            fixture.scripts.startCron()
            fixture.time.manual.advance(by: .seconds(600))
            #expect(await fixture.scripts.runStopScripts() == .succeeded)
            let connection = try await fixture.delivered()
            #expect(connection.lines.count == 3 && connection.lines.last == "stopping")
            #expect(connection.lines.first == "scheduled")
            #expect(connection.lines.contains { $0.hasPrefix("The script was killed by signal") })
            #expect(connection.scripts.map(\.stage) == [.cron, .stop])
            #expect(connection.scripts.first?.status == .exitFailure)
        }
    }

    /// A result that the control plane never takes must not keep those behind it for ever.
    @Test func aResultIsGivenUpAfterThreeRefusals() async throws {
        try await ScriptFixture.with { fixture in
            for number in 1...3 as ClosedRange<UInt8> {
                var timing = Coder_Agent_V2_Timing()
                timing.scriptID = Data(repeating: number, count: 16)
                fixture.reports.add(timing)
            }
            let reporter = ScriptReporter(reports: fixture.reports)
            let dropped = "agent_script_reports_dropped_total"
            let first = RecordingConnection()
            // Two refusals and a success are no reason to give anything up; the count begins anew.
            for _ in 0..<2 {
                first.plan([.refuse])
                await #expect(throws: DRPCError(.remote(0), "")) { try await reporter.run(first) }
            }
            first.plan([nil, .refuse])
            await #expect(throws: DRPCError(.remote(0), "")) { try await reporter.run(first) }
            #expect(first.scripts.map(\.scriptID.first) == [1])
            // Of the second this is the second and third refusal; a lost connection is none.
            first.plan([.drop(delivered: false)])
            await #expect(throws: DRPCError(.closed, "")) { try await reporter.run(first) }
            first.plan([.refuse])
            await #expect(throws: DRPCError(.remote(0), "")) { try await reporter.run(first) }
            #expect(fixture.metrics.render().contains("\(dropped) 0"))
            let second = RecordingConnection()
            second.plan([.refuse])
            fixture.reports.close()
            try await reporter.run(second)
            #expect(second.scripts.map(\.scriptID.first) == [3])
            #expect(fixture.metrics.render().contains("\(dropped) 1"))
            #expect(fixture.log.lines.count { $0.contains("refuses the result of a script") } == 1)
            #expect(fixture.log.lines.contains { $0.contains("02020202-0202-0202-0202-020202020202") })
        }
    }

    /// What comes from the header command in pieces, over a real pipe.
    @Test func aHeaderCommandMayWriteInPieces() async throws {
        try await ScriptFixture.with { fixture in
            func headers(_ command: String) async throws -> [String] {
                var configuration = try linkConfiguration("http://127.0.0.1:1")
                (configuration.headerCommand, configuration.times.headerCommand) = (command, .seconds(60))
                let source = HeaderSource(
                    configuration, runner: fixture.commands, environment: ["PATH": "/usr/bin:/bin"],
                    clock: AgentClock(ContinuousClock()))
                return try await source.headers().map { "\($0.name)=\($0.value)" }
            }
            #expect(
                try await headers(
                    "printf 'X-A=caf\\303'; sleep 0.1; printf '\\251\\nX-'; sleep 0.1; echo B=2; echo; echo X-C=")
                    == ["X-A=café", "X-B=2", "X-C="])
            // Much on stderr neither fills a pipe nor counts.
            #expect(try await headers("head -c 1000000 /dev/zero >&2; echo X-A=1") == ["X-A=1"])
            // 65,536 bytes are taken and one more is not.
            let padding = DialLimits.headerCommandBytes - "X-A=\n".utf8.count
            let text = try await headers("printf X-A=; head -c \(padding) /dev/zero | tr '\\0' x; echo")
            #expect(text.first?.utf8.count == padding + 4)
            await #expect(throws: ControlPlaneError(.configuration, "")) {
                _ = try await headers("printf X-A=; head -c \(padding + 1) /dev/zero | tr '\\0' x; echo")
            }
        }
    }
}
