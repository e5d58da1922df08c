import AgentCore
import AgentTestSupport
import ArgumentParser
import Glibc
import LocalAgent
import NIOCore
import NIOPosix
import Testing

@testable import WorkspaceAgent

/// The sync commands within this process.
@Suite(.timeLimit(.minutes(2))) struct SyncCommandTests {
    /// An agent that accepts connections and never says anything.
    private func withMuteAgent(_ body: (String) async throws -> Void) async throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/mute.sock"
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let server = try await ServerBootstrap(group: group).bind(unixDomainSocketPath: path).get()
        try await body(path)
        try await server.close()
        try await group.shutdownGracefully()
    }

    @Test(arguments: [
        ["ping"], ["want", "a", "b"], ["complete", "a"], ["status", "a"], ["list"], ["graph"], ["timeline"],
    ])
    func anAgentHasHalfAMinuteToAnswer(arguments: [String]) async throws {
        try await withMuteAgent { path in
            let clock = ManualClock()
            let run = Task {
                try await LocalAgentSocket.$clock.withValue(AgentClock(clock)) {
                    let parsed = try WorkspaceAgent.parseAsRoot(["exp", "sync"] + arguments + ["--socket-path", path])
                    var command = try #require(parsed as? any AsyncParsableCommand)
                    try await command.run()
                }
            }
            await clock.sleepers(1)
            clock.advance(by: .milliseconds(29_999))
            #expect(clock.sleeping == 1, "it still waits")
            clock.advance(by: .milliseconds(1))
            #expect(clock.sleeping == 0)
            // Should it have waited for longer, it ends all the same.
            clock.advance(by: .seconds(3_600))
            await #expect(throws: ExitCode(1)) { try await run.value }
        }
    }

    @Test func whoIsTooSlowIsNamed() async throws {
        try await withMuteAgent { path in
            let clock = ManualClock()
            let run = Task {
                try await LocalAgentSocket.$clock.withValue(AgentClock(clock)) {
                    try await LocalAgentSocket(path: path).use { try await $0.ping() }
                }
            }
            await clock.sleepers(1)
            clock.advance(by: LocalAgentSocket.callTimeout)
            let error = await #expect(throws: CommandFailure.self) { try await run.value }
            #expect(error?.message == "the agent at \(path) did not answer within 30 s")
        }
    }

    @Test func anAgentThatDoesNotComeBackIsWaitedForHalfAMinute() async throws {
        try await withMuteAgent { path in
            let clock = ManualClock()
            let run = Task {
                try await LocalAgentSocket.$clock.withValue(AgentClock(clock)) {
                    let agent = LocalAgentSocket(path: path)
                    try await agent.use(within: .seconds(3_600)) { client in
                        try await agent.throughRestarts(client) { client in
                            unlink(path)
                            await client.close()
                            try await client.ping()
                        }
                    }
                }
            }
            for _ in 0..<299 {
                await clock.sleepers(2)
                clock.advance(by: .milliseconds(100))
            }
            await clock.sleepers(2)
            clock.advance(by: .milliseconds(100))
            let error = await #expect(throws: CommandFailure.self) { try await run.value }
            #expect(error?.message.hasPrefix("lost the agent at \(path) and found no other within 30 s: ") == true)
        }
    }

    /// Each command shows an example, which is one that it takes.
    @Test func everyHelpHasAnExample() throws {
        var seen: [String] = []
        func check(_ command: any ParsableCommand.Type, _ path: [String]) throws {
            seen.append(path.joined(separator: " "))
            let help = WorkspaceAgent.helpMessage(for: command, columns: 200)
            let lines = help.split(separator: "\n").map { $0.trimmingPrefix { $0 == " " } }
            let heading = try #require(lines.firstIndex(of: "Example:"), "\(path)")
            let example = lines[(heading + 1)...].prefix { $0.hasPrefix("workspace-agent ") }
            #expect(!example.isEmpty, "\(path)")
            for line in example {
                // Without what is only a comment or another program.
                var words: [String] = []
                // A quoted word may have spaces.
                for (number, part) in line.split(separator: "\"", omittingEmptySubsequences: false).enumerated() {
                    words += number % 2 == 1 ? [String(part)] : part.split(separator: " ").map(String.init)
                }
                words = Array(words.prefix { $0 != "#" && $0 != "|" }.dropFirst())
                #expect(words.starts(with: path) || words.starts(with: ["exp"] + path), "\(line)")
                _ = try WorkspaceAgent.parseAsRoot(words)
            }
            for child in command.configuration.subcommands {
                try check(child, path + [try #require(child.configuration.commandName)])
            }
        }
        try check(WorkspaceAgent.self, [])
        for command in ["ping", "want", "start", "complete", "status", "list", "graph", "timeline"] {
            #expect(seen.contains("exp sync \(command)"))
            #expect(seen.contains("sync \(command)"))
        }
    }
}
