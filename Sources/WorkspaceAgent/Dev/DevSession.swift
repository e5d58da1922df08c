import AgentCore
import ControlPlaneSimulator
import FoundationEssentials
import Glibc
import LocalAgent
import NIOCore
import NIOPosix

/// One run of `dev`: the simulator on a loop of its own, the daemon as always, and the display.
struct DevSession {
    private let setup: DevSetup
    private let output: DevCommand.Output

    init(_ setup: DevSetup, output: DevCommand.Output) {
        self.setup = setup
        self.output = output
    }

    /// Returns when the daemon has ended in order.
    func run() throws {
        // Another run's token must not be replaced; the daemon takes the lock and keeps it.
        try StateDirectory.open(setup.configuration.stateDirectory).release()
        let token = try HTTPToken.make(setup.tokenFile)
        defer { token.remove() }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        defer { try? group.syncShutdownGracefully() }
        let writer = LineWriter(descriptor: STDOUT_FILENO)
        defer { writer.finish() }
        let server = try start(token, group, writer)
        var configuration = setup.configuration
        configuration.link = LinkSettings(url: server.url, tokenFile: setup.tokenFile)
        writer.write(output == .json ? [startedObject(server.url)] : banner(server.url))
        if output == .text {
            configuration.showPage = { address in
                writer.write(["page           \(address)  (once, within 60 s; later: workspace-agent ui)"])
            }
        }
        let client = try startClient(server, group, writer)
        let result = Result { try Daemon.run(configuration) }
        // What the daemon sent last is recorded by now, since it waited for the answers.
        let recording = server.recorder.recording
        try? wait(group) {
            client?.task.cancel()
            await client?.client.close()
            await server.stop()
        }
        if output == .text, case .success = result { writer.write(["", summary(recording)]) }
        try result.get()
    }

    private func start(
        _ token: HTTPToken, _ group: MultiThreadedEventLoopGroup, _ writer: LineWriter
    ) throws -> SimulatorServer {
        let clock = AgentClock(EventLoopClock(group: group))
        let lines = EventLines(style: style, manifest: setup.manifest.message)
        // Shown as it comes; only counts are asked for afterwards.
        var kept = Recorder.Configuration()
        kept.callsKept = 0
        let recorder = Recorder(configuration: kept, clock: clock, onEvent: { writer.write(lines.lines($0)) })
        let service = AgentService(configuration: .init(manifest: setup.manifest), recorder: recorder, clock: clock)
        var configuration = SimulatorServer.Configuration(token: token.token)
        configuration.stunPort = 0
        return try wait(group) { [configuration] in
            try await SimulatorServer.start(configuration: configuration, service: service, group: group)
        }
    }

    /// The second node of the tailnet, and what it shows. nil where the daemon is none.
    private func startClient(
        _ server: SimulatorServer, _ group: MultiThreadedEventLoopGroup, _ writer: LineWriter
    ) throws -> (client: DevClient, task: Task<Void, Never>)? {
        guard setup.configuration.isTailnetEnabled else { return nil }
        let (loop, isJSON) = (group.next(), output == .json)
        guard
            let client = try DevClient(
                server, tokenFile: setup.tokenFile, loop: loop, pool: BlockingPool("dev-client", threads: 1))
        else { return nil }
        let task = Task(executorPreference: EventLoopTaskExecutor(loop)) {
            do {
                try await client.run { writer.write([isJSON ? Self.json($0) : Self.line($0)]) }
            } catch is CancellationError {
                return
            } catch {
                if !isJSON { writer.write(["tailnet        a second node failed: \(error)"]) }
            }
        }
        return (client, task)
    }

    private static func line(_ request: DevClient.Request) -> String {
        let way = request.endpoint.map { "directly via \($0)" } ?? "by relay"
        return "tailnet        GET \(request.url) from a second node \(way): \(request.status) in "
            + TailnetText.milliseconds(request.milliseconds)
    }

    private static func json(_ value: some Encodable) -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: (try? encoder.encode(value)) ?? Data(), as: UTF8.self)
    }

    private var style: EventLines.Style {
        if output == .json { return .json }
        let environment = ProcessEnvironment.current
        let wanted = (environment["NO_COLOR"] ?? "").isEmpty && environment["TERM"] != "dumb"
        return .text(colours: wanted && isatty(STDOUT_FILENO) == 1)
    }

    /// The main thread waits while the loop works, as it does for the daemon.
    @discardableResult
    private func wait<T: Sendable>(
        _ group: MultiThreadedEventLoopGroup, _ body: @escaping @Sendable () async throws -> T
    ) throws -> T {
        let promise = group.next().makePromise(of: T.self)
        let executor = EventLoopTaskExecutor(group.next())
        Task(executorPreference: executor) {
            do { promise.succeed(try await body()) } catch { promise.fail(error) }
        }
        return try promise.futureResult.wait()
    }

    // MARK: What is printed

    private func banner(_ url: String) -> [String] {
        let configuration = setup.configuration
        var lines = ["control plane  \(url)  (simulated)", "its token      \(setup.tokenFile)"]
        let addresses = configuration.httpAddresses.map { "http://\($0)" }
        let api = (configuration.httpSocket.map { ["unix:\($0)"] } ?? []) + addresses
        lines.append("HTTP API       \(api.joined(separator: "  "))")
        if let socket = configuration.agentSocket { lines.append("agent socket   \(socket)") }
        if let socket = configuration.boundarySocket { lines.append("boundary logs  \(socket)") }
        lines.append("daemon log     \(configuration.logDirectory)/workspace-agent.log")
        lines +=
            ["", "Try in another terminal:"] + examples.map { "  \($0)" } + [""] + pathHint + ["Ctrl-C ends it.", ""]
        return lines
    }

    /// How the terminal finds this program by its name; none where it does already.
    private var pathHint: [String] {
        let directory = parentDirectory(of: OwnProgram.path)
        let places = (ProcessEnvironment.current["PATH"] ?? "").split(separator: ":")
        guard !places.contains(where: { $0 == directory }) else { return [] }
        return ["Put workspace-agent on the PATH there:", "  export PATH=\(shellQuoted(directory)):\"$PATH\"", ""]
    }

    private var examples: [String] {
        let configuration = setup.configuration
        let program = shellQuoted(OwnProgram.path)
        let target: (curl: String, base: String) =
            if let socket = configuration.httpSocket {
                ("curl -s --unix-socket \(shellQuoted(socket))", "http://localhost")
            } else if let address = configuration.httpAddresses.first, let file = configuration.httpTokenFile {
                ("curl -s -H \"Authorization: Bearer $(cat \(shellQuoted(file)))\"", "http://\(address)")
            } else {
                ("curl -s", configuration.httpAddresses.first.map { "http://\($0)" } ?? "")
            }
        let unit =
            configuration.agentSocket.map { "\(program) sync list --socket-path \(shellQuoted($0))" }
            ?? "\(program) version"
        return [
            "\(target.curl) \(target.base)/healthz",
            "\(target.curl) -H 'Content-Type: application/json' -d '{\"command\":\"uname -a; sleep 1; date\"}' "
                + "\(target.base)/api/v0/processes/start",
            unit,
        ]
    }

    private struct Started: Encodable {
        var event = "started"
        var controlPlane: String
        var tokenFile: String
        var httpSocket: String?
        var httpAddresses: [String]
        var agentSocket: String?
        var boundarySocket: String?

        enum CodingKeys: String, CodingKey {
            case event
            case controlPlane = "control_plane"
            case tokenFile = "token_file"
            case httpSocket = "http_socket"
            case httpAddresses = "http_addresses"
            case agentSocket = "agent_socket"
            case boundarySocket = "boundary_socket"
        }
    }

    private func startedObject(_ url: String) -> String {
        let configuration = setup.configuration
        let started = Started(
            controlPlane: url, tokenFile: setup.tokenFile, httpSocket: configuration.httpSocket,
            httpAddresses: configuration.httpAddresses.map { "http://\($0)" },
            agentSocket: configuration.agentSocket, boundarySocket: configuration.boundarySocket)
        return Self.json(started)
    }

    private func summary(_ recording: Recording) -> String {
        let refused = recording.refusals.isEmpty ? "" : ", \(recording.refusals.count) refused"
        return "ended: \(recording.calls) calls on \(recording.opened) connections\(refused)"
    }

    private func shellQuoted(_ text: String) -> String {
        let plain = text.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                true
            default: "/._-+,:@".utf8.contains(byte)
            }
        }
        guard !plain || text.isEmpty else { return text }
        return "'" + text.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
    }
}
