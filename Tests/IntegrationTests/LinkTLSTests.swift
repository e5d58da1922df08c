import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import Foundation
import Glibc
import NIOPosix
import Testing

@testable import ControlPlaneSimulator

/// The built daemon and a control plane over TLS, with a CA of the test's own.
@Suite("Link: TLS", .blocking, .timeLimit(.minutes(5))) struct LinkTLSTests {
    /// A CA and certificates that it signed, made with the openssl command.
    struct Authority {
        let directory: TemporaryDirectory
        var ca: String { "\(directory.path)/ca.pem" }

        init() throws {
            directory = try TemporaryDirectory()
            try Self.openssl(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-ca "
                    + "-keyout \(directory.path)/ca.key -out \(ca)")
        }

        /// - Parameter names: `DNS:localhost,IP:127.0.0.1`.
        func issue(_ names: String = "DNS:localhost,IP:127.0.0.1") throws -> (certificate: String, key: String) {
            let base = "\(directory.path)/\(UUID().uuidString)"
            try Data("subjectAltName=\(names)\n".utf8).write(to: URL(fileURLWithPath: base + ".ext"))
            try Self.openssl(
                "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test -keyout \(base).key "
                    + "-out \(base).csr")
            try Self.openssl(
                "x509 -req -in \(base).csr -CA \(ca) -CAkey \(directory.path)/ca.key -CAcreateserial -days 2 "
                    + "-extfile \(base).ext -out \(base).pem")
            return ("\(base).pem", "\(base).key")
        }

        private static func openssl(_ arguments: String) throws {
            let result = try CommandResult.of(["openssl"] + arguments.split(separator: " ").map(String.init))
            try #require(result.code == 0, "\(result.errors)")
        }
    }

    private func world(
        _ tls: (certificate: String, key: String), isPrebuild: Bool = false
    ) async throws -> LinkWorld {
        try await LinkWorld(
            server: { ($0.tls, $0.isPrebuild) = (tls, isPrebuild) }
        ) { manifest, _ in manifest.scripts = [LinkWorld.script("start", "echo run >> runs")] }
    }

    private func copy(_ from: String, to path: String) throws {
        let data = try Data(contentsOf: URL(fileURLWithPath: from))
        try data.write(to: URL(fileURLWithPath: path), options: .atomic)
    }

    @Test(arguments: ["localhost", "127.0.0.1"]) func theCAFileIsTrusted(host: String) async throws {
        let authority = try Authority()
        let world = try await world(try authority.issue())
        let port = world.server.address?.port ?? 0
        let daemon = try world.daemon(
            arguments: ["--agent-ca-file", authority.ca], url: "https://\(host):\(port)")
        try await world.reported(.ready)
        // REST goes the same way: the daemon asks whether it is to start anew.
        try await world.recorder.wait("a REST request") { seen in
            seen.connectionEvents.contains {
                if case .answered(_, let path, 409) = $0.change { path.contains("reinit") } else { false }
            }
        }
        #expect(try daemon.linkHealth().contains("connected since"))
        #expect(try await daemon.stop() == 0)
        let over = try await world.recorder.wait("the connection's end") { $0.open == 0 }
        #expect(over.states == [.starting, .ready, .shuttingDown, .off])
        #expect(over.ends == ["closed"])
        await world.stop()
    }

    /// A certificate that is not trusted, or is another host's, is a reason of its own; once the right CA is in
    /// the file everything goes on without a restart.
    @Test func aWrongCAIsNamedAndItsSuccessorTaken() async throws {
        let (right, wrong) = (try Authority(), try Authority())
        let world = try await world(try right.issue())
        let file = "\(world.directory.path)/trusted.pem"
        try copy(wrong.ca, to: file)
        let daemon = try world.daemon(arguments: ["--agent-ca-file", file])
        try await eventually("it says why") {
            try daemon.linkHealth().contains("its certificate is not trusted (--agent-ca-file adds a CA)")
        }
        #expect(try daemon.connect().request("GET", "/healthz").json["status"] as? String == "degraded")
        #expect(try daemon.connect().run("echo here")["output"] as? String == "here\n")
        #expect(world.recorder.recording.connectionEvents.isEmpty, "no request, and no token, went out")
        try copy(right.ca, to: file)
        try await world.reported(.ready)
        try await world.recorder.wait("a REST request") { seen in
            seen.connectionEvents.contains {
                if case .answered(_, let path, 409) = $0.change { path.contains("reinit") } else { false }
            }
        }
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    @Test func anotherHostsCertificateIsRefused() async throws {
        let authority = try Authority()
        for (names, host) in [("DNS:other.example", "localhost"), ("DNS:localhost,IP:127.0.0.2", "127.0.0.1")] {
            let world = try await world(try authority.issue(names))
            let port = world.server.address?.port ?? 0
            let daemon = try world.daemon(
                arguments: ["--agent-ca-file", authority.ca], url: "https://\(host):\(port)")
            try await eventually("it says why") {
                try daemon.linkHealth().contains("its certificate is for another host name")
            }
            #expect(world.recorder.recording.connectionEvents.isEmpty)
            daemon.signal(SIGTERM)
            daemon.signal(SIGTERM)
            _ = try await daemon.wait()
            await world.stop()
        }
    }

    /// The control plane comes back with a certificate of another CA, which takes the place of the first in the
    /// file: the link and REST follow.
    @Test func aCAThatIsReplacedIsTakenByAll() async throws {
        let (old, new) = (try Authority(), try Authority())
        let world = try await world(try old.issue(), isPrebuild: true)
        let port = world.server.address?.port ?? 0
        let file = "\(world.directory.path)/trusted.pem"
        try copy(old.ca, to: file)
        let daemon = try world.daemon(arguments: ["--agent-ca-file", file])
        try await world.reported(.ready)
        let issued = try new.issue()
        await world.server.stop()
        try copy(new.ca, to: file)
        var configuration = SimulatorServer.Configuration(token: Secret(LinkWorld.token))
        configuration.address = .tcp(port: port)
        (configuration.tls, configuration.isPrebuild) = (issued, true)
        // Another test's connection may have the port for a moment, or a child that has yet to execute its program.
        var started: SimulatorServer?
        try await eventually("the control plane listens again") {
            started = try? await SimulatorServer.start(
                configuration: configuration, service: world.server.service,
                group: MultiThreadedEventLoopGroup.singleton)
            return started != nil
        }
        let second = try #require(started)
        try await world.recorder.wait("the link is back") { $0.opened > 1 }
        func sync(_ arguments: String...) throws -> CommandResult {
            let environment = ["CODER_AGENT_SOCKET_PATH": "\(daemon.directory.path)/agent.sock"]
            return try RunningProgram([DaemonProcess.binary, "sync"] + arguments, environment: environment).end()
        }
        #expect(try sync("start", "git").code == 0)
        // The claim comes over REST.
        second.claim(owner: UUID().uuidString, workspace: UUID().uuidString)
        let life: [LifecycleState] = [.starting, .ready]
        let seen = try await world.recorder.wait("a second life", within: .seconds(60)) {
            $0.states.count > life.count && $0.states.suffix(life.count) == life
        }
        #expect(seen.states == life + [.shuttingDown, .off] + life)
        // The scripts of the second life begin anew, and so do their units.
        #expect(try sync("list").output == "No units registered\n")
        #expect(try await daemon.stop() == 0)
        await second.stop()
        await world.stop()
    }
}
