import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Logging
import NIOCore
import Synchronization
import Testing

@testable import ControlPlane

@Suite struct TokenTests {
    private let directory: TemporaryDirectory
    private let path: String
    init() throws {
        directory = try TemporaryDirectory()
        path = directory.path + "/token"
    }

    private func write(_ text: String, mode: Int = 0o600) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: path)
    }

    @Test func theTokenFileIsReadAtEachConnect() async throws {
        let server = try await StandIn { $1.upgrade($0) }
        let configuration = try DialTest.configuration("http://127.0.0.1:\(server.port)") {
            $0.authentication = .tokenFile(path)
        }
        let link = DialTest.link(configuration)
        for token in ["one", "two"] {
            try write("  \(token)\n\n")
            let (channel, _) = try await link.dialler.connectTransport { _ in }
            try await channel.close()
        }
        #expect(server.requests.flatMap { $0.headers["Coder-Session-Token"] } == ["one", "two"])
    }

    @Test func aTokenFileThatIsOfNoUseIsNamed() async throws {
        let configuration = try DialTest.configuration("http://127.0.0.1:1") { $0.authentication = .tokenFile(path) }
        func message() async throws -> String {
            let error = try await DialTest.dialError(configuration)
            #expect(error.code == .token && error.description.contains(path), "\(error)")
            return error.description
        }
        #expect(try await message().contains("No such file"))
        try write(" \n\t\n")
        #expect(try await message().contains("is empty"))
        try write("SECRET with spaces")
        #expect(try await message().contains("no header may hold"))
        try write(String(repeating: "a", count: DialLimits.tokenFileBytes + 1))
        #expect(try await message().contains("larger"))
        unlink(path)
        mkdir(path, 0o700)
        #expect(try await message().contains("is a directory"))
        rmdir(path)
        mkfifo(path, 0o600)
        #expect(try await message().contains("is a named pipe"))
        unlink(path)
        if geteuid() == 0 {
            try write("planted")
            chown(path, 65_534, 65_534)
            #expect(try await message().contains("belongs to uid 65534"))
        }
    }

    private struct Warnings: LogHandler {
        final class Box: Sendable { let lines = Mutex<[String]>([]) }
        let box: Box
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace
        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { nil }
            set {}
        }
        func log(event: LogEvent) {
            box.lines.withLock { $0.append("\(event.level) \(event.message)") }
        }
    }

    @Test func aTokenFileThatOthersMayReadIsWarnedOfOnce() async throws {
        let box = Warnings.Box()
        let file = TokenFile(path: path, pool: DialTest.pool, logger: Logger(label: "t") { _ in Warnings(box: box) })
        try write("t", mode: 0o600)
        _ = try await file.refresh()
        #expect(box.lines.withLock { $0 }.isEmpty)
        try write("t", mode: 0o640)
        for _ in 0..<3 { #expect(try await file.refresh().reveal() == "t") }
        #expect(box.lines.withLock { $0.count } == 1)
    }

    // MARK: Instance identity

    private func identity(
        _ cloud: LinkConfiguration.Authentication, metadata: StandIn, controlPlane: StandIn
    ) throws -> LinkConfiguration {
        try DialTest.configuration("http://127.0.0.1:\(controlPlane.port)") {
            $0.authentication = cloud
            $0.agentName = "main"
            $0.headers = ["X-Extra": "1"]
            let address = "http://127.0.0.1:\(metadata.port)"
            ($0.metadata.aws, $0.metadata.azure, $0.metadata.google) = (address, address, address)
            $0.times.metadata = .seconds(10)
        }
    }

    private func controlPlane() async throws -> StandIn {
        let count = Atomic(0)
        return try await StandIn { request, connection in
            if request.method == "POST" {
                let number = count.add(1, ordering: .relaxed).newValue
                connection.answer(200, #"{"session_token":"session-\#(number)"}"#)
            } else {
                connection.upgrade(request)
            }
        }
    }

    /// Connects twice and checks exchange and dial; returns the first exchange.
    private func exchange(
        _ cloud: LinkConfiguration.Authentication, _ metadata: StandIn
    ) async throws -> StandIn.Request {
        let server = try await controlPlane()
        let link = DialTest.link(try identity(cloud, metadata: metadata, controlPlane: server))
        for _ in 0..<2 {
            let (channel, _) = try await link.dialler.connectTransport { _ in }
            try await channel.close()
        }
        // Cached between connects.
        #expect(try await link.tokens.token().reveal() == "session-2")
        await link.shutdown()
        let requests = server.requests
        try #require(requests.map(\.method) == ["POST", "GET", "POST", "GET"])
        #expect(requests[1].headers["Coder-Session-Token"] == ["session-1"])
        #expect(requests[3].headers["Coder-Session-Token"] == ["session-2"])
        #expect(requests[0].headers["Coder-Session-Token"] == [])
        #expect(requests[0].headers["X-Extra"] == ["1"])
        #expect(requests[0].headers["Content-Type"] == ["application/json"])
        return requests[0]
    }

    /// At start the dial and the reinit stream ask at about the same time, in either order.
    @Test(arguments: ["reinit, then dial", "dial, then reinit", "at once"])
    func dialAndReinitShareOneExchange(order: String) async throws {
        let metadata = try await StandIn { $1.answer(200, "a.b.c") }
        let count = Atomic(0)
        let server = try await StandIn { request, connection in
            if request.method == "POST" {
                let number = count.add(1, ordering: .relaxed).newValue
                connection.answer(200, #"{"session_token":"session-\#(number)"}"#)
            } else if request.uri.contains("/reinit") {
                connection.answer(409, "{}")
            } else {
                connection.upgrade(request)
            }
        }
        var configuration = try identity(.google, metadata: metadata, controlPlane: server)
        // A busy machine.
        configuration.times.metadata = .seconds(60)
        let link = DialTest.link(configuration)
        @Sendable func dial() async throws {
            let (channel, _) = try await link.dialler.connectTransport { _ in }
            try await channel.close()
        }
        @Sendable func reinit() async {
            await #expect(throws: ControlPlaneError(.http(409), "")) { try await link.rest.reinit() }
        }
        switch order {
        case "at once":
            async let first: Void = dial()
            await reinit()
            try await first
        case "reinit, then dial":
            await reinit()
            try await dial()
        default:
            try await dial()
            await reinit()
        }
        func tokens() -> [String] { server.requests.flatMap { $0.headers["Coder-Session-Token"] } }
        #expect(tokens() == ["session-1", "session-1"] && metadata.requests.count == 1)
        try await dial()
        #expect(tokens().last == "session-2", "each further connect has its own")
        await link.shutdown()
    }

    /// A connect that is given up leaves the others theirs.
    @Test func anExchangeOutlivesTheCancelledOneBesideIt() async throws {
        let asked = Atomic(0)
        let metadata = try await StandIn { _, connection in
            // The first is never answered.
            if asked.add(1, ordering: .relaxed).newValue > 1 { connection.answer(200, "a.b.c") }
        }
        let link = DialTest.link(try identity(.google, metadata: metadata, controlPlane: try await controlPlane()))
        let first = Task { try await link.tokens.refresh() }
        try await eventually("it has asked") { metadata.requests.count == 1 }
        let second = Task { try await link.tokens.token() }
        first.cancel()
        #expect(try await second.value.reveal() == "session-1")
        await #expect(throws: (any Error).self) { try await first.value }
        await link.shutdown()
    }

    @Test func awsSendsSignatureAndDocument() async throws {
        let metadata = try await StandIn { request, connection in
            let session = request.headers["X-aws-ec2-metadata-token"]
            switch (request.method, request.uri) {
            case ("PUT", "/latest/api/token"):
                connection.answer(
                    request.headers.contains(name: "X-aws-ec2-metadata-token-ttl-seconds") ? 200 : 400, "imds")
            case ("GET", "/latest/dynamic/instance-identity/signature") where session == ["imds"]:
                connection.answer(200, "sig\nnature")
            case ("GET", "/latest/dynamic/instance-identity/document") where session == ["imds"]:
                connection.answer(200, #"{"instanceId":"i-1"}"#)
            default: connection.answer(404)
            }
        }
        let request = try await exchange(.aws, metadata)
        #expect(request.uri == "/api/v2/workspaceagents/aws-instance-identity")
        #expect(
            request.body == #"{"agent_name":"main","document":"{\"instanceId\":\"i-1\"}","signature":"sig\nnature"}"#)
    }

    @Test func azureSendsTheAttestedDocument() async throws {
        let metadata = try await StandIn { request, connection in
            let fits =
                request.uri == "/metadata/attested/document?api-version=2020-09-01"
                && request.headers["Metadata"] == ["true"]
            connection.answer(fits ? 200 : 404, #"{"encoding":"pkcs7","signature":"c2ln","more":1}"#)
        }
        let request = try await exchange(.azure, metadata)
        #expect(request.uri == "/api/v2/workspaceagents/azure-instance-identity")
        #expect(request.body == #"{"encoding":"pkcs7","signature":"c2ln"}"#)
    }

    @Test func googleSendsItsIdentityToken() async throws {
        let metadata = try await StandIn { request, connection in
            let uri = "/computeMetadata/v1/instance/service-accounts/default/identity?audience=coder&format=full"
            let fits = request.uri == uri && request.headers["Metadata-Flavor"] == ["Google"]
            connection.answer(fits ? 200 : 404, "a.b.c")
        }
        let request = try await exchange(.google, metadata)
        #expect(request.uri == "/api/v2/workspaceagents/google-instance-identity")
        #expect(request.body == #"{"json_web_token":"a.b.c"}"#)
    }

    @Test func aMetadataServiceThatFailsIsATokenError() async throws {
        let server = try await controlPlane()
        let answers: [@Sendable (StandIn.Connection) -> Void] = [
            { $0.answer(403, "SECRET") }, { $0.answer(200, "") }, { $0.close() }, { $0.send("SSH-2.0-x\r\n\r\n") },
            { $0.answer(200, String(repeating: "SECRET", count: 200_000)) },
        ]
        for answer in answers {
            for cloud in [LinkConfiguration.Authentication.aws, .azure, .google] {
                let metadata = try await StandIn { answer($1) }
                let error = try await DialTest.dialError(try identity(cloud, metadata: metadata, controlPlane: server))
                #expect(error.code == .token, "\(error)")
                await metadata.stop()
            }
        }
        let silent = try await StandIn { _, _ in }
        var hanging = try identity(.google, metadata: silent, controlPlane: server)
        hanging.times.metadata = .milliseconds(50)
        #expect(try await DialTest.dialError(hanging).code == .token)
        #expect(server.requests.isEmpty)
    }

    @Test func anExchangeThatFailsKeepsTheControlPlanesWords() async throws {
        let metadata = try await StandIn { $1.answer(200, "a.b.c") }
        let refusing = try await StandIn { $1.answer(401, #"{"message":"no such instance"}"#) }
        let error = try await DialTest.dialError(try identity(.google, metadata: metadata, controlPlane: refusing))
        #expect(error.code == .http(401) && error.message.contains("no such instance"))
        for body in ["", "{}", #"{"session_token":""}"#, #"{"session_token":"SECRET\r\nX: y"}"#] {
            let odd = try await StandIn { $1.answer(200, body) }
            #expect(
                try await DialTest.dialError(try identity(.google, metadata: metadata, controlPlane: odd)).code
                    == .token)
        }
    }

    @Test func theMetadataServiceIsNeverAskedThroughTheProxy() async throws {
        let metadata = try await StandIn { $1.answer(200, "a.b.c") }
        let server = try await controlPlane()
        let proxy = try await StandIn { $1.tunnel(to: server.port) }
        var configuration = try identity(.google, metadata: metadata, controlPlane: server)
        configuration.url = try ServerAddress("http://coder.example", what: "url")
        configuration.proxies = try ProxySettings(environment: ["HTTP_PROXY": "127.0.0.1:\(proxy.port)"])
        // This machine, in a spelling that no rule of its own keeps from the proxy.
        configuration.metadata.google = "http://0.0.0.0:\(metadata.port)"
        _ = try await DialTest.echo(configuration)
        #expect(metadata.requests.count == 1)
        #expect(proxy.requests.allSatisfy { !$0.uri.contains("0.0.0.0") })
    }
}
