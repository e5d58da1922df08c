// A stand-in until the real command line is merged: it lists the sync commands, maps bad usage to
// exit code 2, and serves the agent socket for tests by hand.
import AgentCore
import AgentSocket
import ArgumentParser
import Glibc
import Logging
import NIOPosix
import ServiceLifecycle

struct Root: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "workspace-agent", subcommands: [ExpCommand.self, SyncCommand.self, ServeSocket.self])
}

struct ServeSocket: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "serve-socket", shouldDisplay: false)
    @OptionGroup var agent: AgentOptions

    func run() async throws {
        let logger = Logger(label: "agent")
        let server = AgentSocketServer(
            configuration: .init(path: agent.path), units: UnitStore(),
            group: MultiThreadedEventLoopGroup(numberOfThreads: 1), logger: logger, metrics: MetricsRegistry())
        try await ServiceGroup(
            services: [server], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger
        ).run()
    }
}

func runCommand() async {
    do {
        let parsed = try Root.parseAsRoot()
        if var command = parsed as? any AsyncParsableCommand {
            try await command.run()
        } else {
            var command = parsed
            try command.run()
        }
    } catch {
        let code = Root.exitCode(for: error)
        if code == .success || code == .validationFailure {
            let bytes = Array((Root.fullMessage(for: error) + "\n").utf8)
            _ = bytes.withUnsafeBytes { write(code == .success ? 1 : 2, $0.baseAddress, $0.count) }
            exit(code == .success ? 0 : 2)
        }
        exit(code.rawValue)
    }
}

await runCommand()
