import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import FoundationEssentials
import NIOCore
import NIOPosix
import NIOSSL
import Synchronization
import Testing
import WebSockets

@testable import ControlPlaneSimulator

/// A socket whose bytes a test writes and reads itself.
private final class RawClient: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer

    private struct State {
        var bytes: [UInt8] = []
        var ended = false
        var failed = false
    }

    private let state = Mutex(State())
    private let channel = Mutex<(any Channel)?>(nil)

    static func connect(_ server: SimulatorServer, tls: NIOSSLContext? = nil) async throws -> RawClient {
        let client = RawClient()
        let bootstrap = ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if let tls {
                        try pipeline.addHandler(NIOSSLClientHandler(context: tls, serverHostname: "localhost"))
                    }
                    try pipeline.addHandler(client)
                }
            }
        let channel = try await bootstrap.connect(to: #require(server.address)).get()
        client.channel.withLock { $0 = channel }
        return client
    }

    func write(_ bytes: [UInt8]) async throws {
        try await channel.withLock { $0 }?.writeAndFlush(ByteBuffer(bytes: bytes))
    }

    func write(_ text: String) async throws { try await write(Array(text.utf8)) }

    func close() async { try? await channel.withLock { $0 }?.close() }

    var bytes: [UInt8] { state.withLock { $0.bytes } }
    var text: String { String(decoding: bytes, as: UTF8.self) }
    var ended: Bool { state.withLock { $0.ended } }
    var failed: Bool { state.withLock { $0.failed } }

    /// Status lines so far.
    var answers: Int {
        text.split(separator: "\r\n").count { $0.hasPrefix("HTTP/1.1 ") || $0.hasSuffix("HTTP/1.1 404 Not Found") }
    }

    var hasHead: Bool { headEnd != nil }

    /// What came behind the HTTP head.
    var afterHead: [UInt8] { headEnd.map { Array(bytes[$0...]) } ?? [] }

    private var headEnd: Int? {
        let bytes = bytes
        for index in bytes.indices.dropLast(3) where Array(bytes[index..<index + 4]) == [13, 10, 13, 10] {
            return index + 4
        }
        return nil
    }

    /// Frames of the server's side of a WebSocket: complete, short and unmasked.
    var frames: [(opcode: UInt8, payload: [UInt8])] {
        var rest = afterHead[...]
        var frames: [(UInt8, [UInt8])] = []
        while rest.count >= 2 {
            let first = rest[rest.startIndex]
            let length = Int(rest[rest.startIndex + 1])
            guard length < 126, rest.count >= 2 + length else { break }
            frames.append((first & 0x0f, Array(rest.dropFirst(2).prefix(length))))
            rest = rest.dropFirst(2 + length)
        }
        return frames
    }

    /// What the binary messages carry.
    var stream: [UInt8] { frames.filter { $0.opcode == 2 }.flatMap(\.payload) }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data)
        state.withLock { $0.bytes += bytes.readableBytesView }
    }

    func channelInactive(context: ChannelHandlerContext) { state.withLock { $0.ended = true } }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        state.withLock { $0.failed = true }
        context.close(promise: nil)
    }
}

private let token = "5c5f5d1e-8a7e-4d6e-9a5d-0f6c2d5b7a11"

private func start(
    _ configure: (inout SimulatorServer.Configuration) -> Void = { _ in },
    service change: (inout AgentService.Configuration) -> Void = { _ in }
) async throws -> SimulatorServer {
    let group = MultiThreadedEventLoopGroup.singleton
    let clock = AgentClock(EventLoopClock(group: group))
    var service = AgentService.Configuration(
        manifest: .demonstration(executable: "/bin/true", agentSocket: nil, healthURL: nil))
    change(&service)
    var configuration = SimulatorServer.Configuration(token: Secret(token))
    configure(&configuration)
    return try await SimulatorServer.start(
        configuration: configuration,
        service: AgentService(configuration: service, recorder: Recorder(clock: clock), clock: clock), group: group)
}

private func upgrade(version: String = "2.9", token: String? = token) -> String {
    "GET /api/v2/workspaceagents/me/rpc?version=\(version)&role=agent HTTP/1.1\r\nHost: x\r\n"
        + (token.map { "Coder-Session-Token: \($0)\r\n" } ?? "")
        + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        + "Sec-WebSocket-Key: VEOc9MRXppfmfaJY477HIg==\r\n\r\n"
}

private func request(_ method: String, _ path: String, token: String? = token, body: String = "") -> String {
    "\(method) /api/v2/workspaceagents/\(path) HTTP/1.1\r\nHost: x\r\nContent-Length: \(body.utf8.count)\r\n"
        + (token.map { "Coder-Session-Token: \($0)\r\n" } ?? "") + "\r\n\(body)"
}

@Suite("Simulator: server")
struct SimulatorServerTests {
    private func answer(_ server: SimulatorServer, _ request: String, _ ending: String = "}") async throws -> String {
        let client = try await RawClient.connect(server)
        try await client.write(request)
        try await eventually("an answer") { !client.afterHead.isEmpty && client.text.hasSuffix(ending) }
        await client.close()
        return client.text
    }

    /// A client whose connection is upgraded.
    private func connected(_ server: SimulatorServer) async throws -> RawClient {
        let client = try await RawClient.connect(server)
        let before = server.recorder.recording.opened
        try await client.write(upgrade())
        try await server.recorder.wait("the upgrade") { $0.opened == before + 1 }
        try await eventually("the 101") { client.hasHead }
        return client
    }

    @Test("the recorded client gets the recorded server's bytes, read by read")
    func recorded() async throws {
        let server = try await start(service: { $0.statsInterval = .milliseconds(500) })
        server.faults.plan(.unimplemented, on: AgentAPI.updateLifecycle)
        let vector = try RecordedExchange.load()
        let client = try await RawClient.connect(server)
        var expected: [UInt8] = []
        for (index, step) in vector.tcp.enumerated() {
            if step.dir == "c2s" {
                // What the recorded client had read by then. Ours may have accepted the next stream already.
                try await eventually("the answer before step \(index)") { [expected] in
                    RecordedExchange.yamuxFrames(client.stream).starts(with: RecordedExchange.yamuxFrames(expected))
                }
                try await client.write(step.bytes)
            } else if index > 1, step.bytes.first == 0x82 {
                expected += step.bytes.dropFirst(2)
            }
        }
        try await eventually("the end") { client.ended }
        #expect(client.text.hasPrefix("HTTP/1.1 101 "))
        #expect(client.text.lowercased().contains("sec-websocket-accept: q/l4pbkaha+9qgdsfa7h/nbfowo=\r\n"))
        #expect(
            RecordedExchange.yamuxFrames(client.stream)
                == RecordedExchange.yamuxFrames(RecordedExchange.bytes(vector.server_to_client_hex)))
        #expect(client.frames.last?.opcode == 8)
        #expect(client.frames.last?.payload == [0x03, 0xe8])
        try await server.recorder.wait("the end") { $0.closed == 1 }
        #expect(server.recorder.count(AgentAPI.updateLifecycle) == 1)
        #expect(server.recorder.count(AgentAPI.updateStats) == 1)
        #expect(server.recorder.recording.connectionEvents.first?.change == .opened(version: "2.10", role: "agent"))
        await server.stop()
    }

    @Test("a token that is wrong, missing or there twice is 401")
    func tokens() async throws {
        let server = try await start()
        #expect(try await answer(server, upgrade(token: "wrong")).hasPrefix("HTTP/1.1 401 "))
        #expect(try await answer(server, upgrade(token: nil)).contains("Coder-Session-Token is missing"))
        let twice = try await answer(server, upgrade(token: "\(token)\r\nCoder-Session-Token: \(token)"))
        #expect(twice.hasPrefix("HTTP/1.1 401 "))
        #expect(!twice.contains(token))
        #expect(server.recorder.recording.refused == 3 && server.recorder.recording.opened == 0)
        await server.stop()
    }

    @Test("a version that is not spoken is 400 and names the field; the highest is taken")
    func versions() async throws {
        let server = try await start { $0.maximumVersion = APIVersion(2, 8) }
        for version in ["2.9", "1.8", "3.0", "", "2", "2.x", "2.-1", "2.99999999999999999999"] {
            let text = try await answer(server, upgrade(version: version))
            #expect(text.hasPrefix("HTTP/1.1 400 "), "\(version)")
            #expect(text.contains(#""message":"Unknown or unsupported API version","validations":[{"detail":""#))
            #expect(text.contains(#""field":"version""#))
        }
        let client = try await RawClient.connect(server)
        try await client.write(upgrade(version: "2.8"))
        try await eventually("the 101") { client.text.hasPrefix("HTTP/1.1 101 ") }
        await server.stop()
    }

    @Test("what is no proper upgrade is 400, what does not exist 404 and 405")
    func badRequests() async throws {
        let server = try await start()
        #expect(try await answer(server, request("GET", "me/rpc?version=2.9")).hasPrefix("HTTP/1.1 400 "))
        #expect(try await answer(server, request("GET", "me/other")).hasPrefix("HTTP/1.1 404 "))
        #expect(try await answer(server, request("POST", "me/gitsshkey")).hasPrefix("HTTP/1.1 405 "))
        #expect(try await answer(server, request("GET", "me/gitsshkey")).hasPrefix("HTTP/1.1 404 "))
        #expect(try await answer(server, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").hasPrefix("HTTP/1.1 404 "))
        await server.stop()
    }

    @Test("keys, external auth and instance identities")
    func rest() async throws {
        let server = try await start {
            $0.gitSSHKey = .init(publicKey: "ssh-ed25519 AAAA", privateKey: "PRIVATE")
            $0.externalAuth = .init(accessToken: "gho_x", url: "https://git", username: "u", serves: ["git/"])
        }
        #expect(
            try await answer(server, request("GET", "me/gitsshkey")).contains(
                #"{"private_key":"PRIVATE","public_key":"#))
        let auth = try await answer(server, request("GET", "me/external-auth?match=git%2Fhub"))
        #expect(auth.contains(#""access_token":"gho_x""#))
        let other = try await answer(server, request("GET", "me/external-auth?match=https://other"))
        #expect(other.hasPrefix("HTTP/1.1 404 "))
        // One that listens waits for the user.
        async let listening = answer(server, request("GET", "me/external-auth?match=git%2Fhub&listen=true"))
        try await eventually("it waits") { server.waitingForLogin == 1 }
        server.logIn(.init(accessToken: "gho_y", username: "u"))
        #expect(try await listening.contains(#""access_token":"gho_y""#))
        #expect(try await answer(server, request("GET", "me/gitsshkey", token: nil)).hasPrefix("HTTP/1.1 401 "))
        for (name, body) in [
            ("aws", #"{"signature":"s","document":"d","agent_name":"main"}"#),
            ("azure", #"{"signature":"s","encoding":"pkcs7"}"#), ("google", #"{"json_web_token":"t"}"#),
        ] {
            let path = "\(name)-instance-identity"
            let good = try await answer(server, request("POST", path, token: nil, body: body))
            #expect(good.hasSuffix(#"{"session_token":"\#(token)"}"#), "\(name)")
            #expect(try await answer(server, request("POST", path, token: nil, body: "{}")).hasPrefix("HTTP/1.1 400 "))
        }
        let long = String(repeating: "x", count: SimulatorLimits.requestBodyBytes + 1)
        #expect(
            try await answer(server, request("POST", "aws-instance-identity", body: long)).hasPrefix("HTTP/1.1 413 "))
        await server.stop()
    }

    @Test("several requests on one connection, as they come and at once")
    func keepAlive() async throws {
        let server = try await start()
        let client = try await RawClient.connect(server)
        try await client.write(request("GET", "me/gitsshkey") + request("GET", "me/gitsshkey"))
        try await eventually("two answers") { client.answers == 2 }
        try await client.write(request("GET", "me/gitsshkey"))
        try await eventually("a third") { client.answers == 3 }
        await client.close()
        await server.stop()
    }

    @Test("reinit is 409 for what is no prebuild, else an event for who waits and who comes later")
    func reinit() async throws {
        let plain = try await start()
        #expect(try await answer(plain, request("GET", "me/reinit?wait=true")).hasPrefix("HTTP/1.1 409 "))
        await plain.stop()
        let server = try await start { $0.isPrebuild = true }
        let event = #"data: {"owner_id":"o","reason":"prebuild_claimed","workspace_id":"w"}"# + "\n\n"
        let early = try await RawClient.connect(server)
        try await early.write(request("GET", "me/reinit?wait=true"))
        try await eventually("the head") { early.text.contains("text/event-stream") }
        #expect(early.afterHead.isEmpty)
        server.claim(owner: "o", workspace: "w")
        try await eventually("the event") { early.text.contains(event) }
        let late = try await RawClient.connect(server)
        try await late.write(request("GET", "me/reinit?wait=true"))
        try await eventually("the event") { late.text.contains(event) }
        await early.close()
        await late.close()
        await server.stop()
    }

    @Test("the link works over TLS, and a certificate that cannot be read is named")
    func tls() async throws {
        let directory = try TemporaryDirectory()
        let (certificate, key) = ("\(directory.path)/c.pem", "\(directory.path)/k.pem")
        try Data(SimulatorCertificate.certificate.utf8).write(to: URL(filePath: certificate))
        try Data(SimulatorCertificate.key.utf8).write(to: URL(filePath: key))
        let server = try await start { $0.tls = (certificate, key) }
        #expect(server.url.hasPrefix("https://127.0.0.1:"))
        var settings = TLSConfiguration.makeClientConfiguration()
        settings.trustRoots = .file(certificate)
        let client = try await RawClient.connect(server, tls: try NIOSSLContext(configuration: settings))
        try await client.write(upgrade())
        try await eventually("the 101") { client.text.hasPrefix("HTTP/1.1 101 ") }
        server.cut()
        try await eventually("the end") { client.ended }
        await server.stop()
        do {
            _ = try await start { $0.tls = ("/no/such.pem", key) }
            Issue.record("no error")
        } catch {
            #expect("\(error)".contains("/no/such.pem"))
        }
    }

    @Test("a unix socket serves as well, and an address in use is named")
    func addresses() async throws {
        let directory = try TemporaryDirectory()
        let server = try await start { $0.address = .unix(path: "\(directory.path)/s") }
        #expect(server.url == "unix:\(directory.path)/s")
        #expect(try await connected(server).text.hasPrefix("HTTP/1.1 101 "))
        await server.stop()
        let first = try await start()
        let port = try #require(first.address?.port)
        do {
            _ = try await start { $0.address = .tcp(port: port) }
            Issue.record("no error")
        } catch {
            #expect("\(error)" == "cannot listen on 127.0.0.1:\(port): Address already in use")
        }
        await first.stop()
    }

    @Test("planned refusals, hangs and resets of a connection")
    func refusals() async throws {
        let server = try await start()
        server.faults.planConnection(.refuse(status: 503, body: #"{"message":"later"}"#))
        server.faults.planConnection(.reset)
        server.faults.planConnection(.hang)
        let refused = try await answer(server, upgrade())
        #expect(refused.hasPrefix("HTTP/1.1 503 ") && refused.hasSuffix(#"{"message":"later"}"#))
        let reset = try await RawClient.connect(server)
        try await reset.write(upgrade())
        try await eventually("the reset") { reset.failed && reset.ended }
        let hung = try await RawClient.connect(server)
        try await hung.write(upgrade())
        try await eventually("it has had its turn") { server.faults.connectionsLeft == 0 }
        #expect(try await connected(server).text.hasPrefix("HTTP/1.1 101 "))
        #expect(hung.bytes.isEmpty && !hung.ended)
        await hung.close()
        await server.stop()
    }

    @Test("goodbyes with any code: yamux GoAway, WebSocket close")
    func goodbyes() async throws {
        let server = try await start()
        server.faults.planConnection(.goAway(code: 2))
        let client = try await connected(server)
        try await eventually("the GoAway") { client.stream == [0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2] }
        server.closeWebSockets(1011)
        try await eventually("the close frame") { client.frames.last?.opcode == 8 }
        #expect(client.frames.last?.payload == [0x03, 0xf3])
        await client.close()
        try await server.recorder.wait("the end") { $0.open == 0 }
        server.faults.planConnection(.close(code: 1001))
        let second = try await connected(server)
        try await eventually("the close frame") { second.frames.last?.payload == [0x03, 0xe9] }
        await second.close()
        await server.stop()
    }

    @Test("connections that are cut after a time, at once, or reset")
    func cuts() async throws {
        let server = try await start()
        server.faults.planConnection(.cut(after: .milliseconds(20)), times: 2)
        for _ in 0..<2 {
            let client = try await connected(server)
            try await eventually("the cut") { client.ended }
            #expect(client.frames.isEmpty)
        }
        let cut = try await connected(server)
        server.cut()
        try await eventually("the cut") { cut.ended && !cut.failed }
        let reset = try await connected(server)
        server.reset()
        try await eventually("the reset") { reset.ended && reset.failed }
        try await server.recorder.wait("the ends") { $0.closed == 4 }
        #expect(server.open == 0)
        await server.stop()
    }

    @Test("pings go unanswered where planned, and are answered otherwise")
    func pings() async throws {
        // Masked with zeros: a WebSocket ping, and a yamux ping in a binary message.
        let webSocketPing: [UInt8] = [0x89, 0x80, 0, 0, 0, 0]
        let yamuxPing: [UInt8] = [0x82, 0x8c, 0, 0, 0, 0] + [0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7]
        let answer: [UInt8] = [0, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7]
        let server = try await start()
        let both = try await connected(server)
        try await both.write(webSocketPing + yamuxPing)
        try await eventually("both answers") { both.stream == answer && both.frames.contains { $0.opcode == 10 } }
        server.faults.planConnection(.ignoreWebSocketPings)
        let yamuxOnly = try await connected(server)
        try await yamuxOnly.write(webSocketPing + yamuxPing)
        try await eventually("one answer") { yamuxOnly.stream == answer }
        #expect(!yamuxOnly.frames.contains { $0.opcode == 10 })
        server.faults.planConnection(.ignoreYamuxPings)
        let webSocketOnly = try await connected(server)
        try await webSocketOnly.write(yamuxPing + webSocketPing)
        try await eventually("one answer") { webSocketOnly.frames.contains { $0.opcode == 10 } }
        #expect(webSocketOnly.stream.isEmpty)
        await server.stop()
    }

    @Test("the filter of yamux pings keeps everything else, however it is cut")
    func filter() {
        let data: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 14] + [0, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2]
        let ping: [UInt8] = [0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5]
        let pong: [UInt8] = [0, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5]
        let all = pong + data + pong + ping + data + pong
        for size in 1...all.count {
            let filter = YamuxPongFilter()
            var passed: [UInt8] = []
            for start in stride(from: 0, to: all.count, by: size) {
                var part = ByteBuffer(bytes: all[start..<min(start + size, all.count)])
                passed += filter.filter(&part).readableBytesView
            }
            #expect(passed == data + ping + data)
        }
    }

    @Test("many connections at once are counted, and end with the server")
    func many() async throws {
        let server = try await start()
        let clients = try await withThrowingTaskGroup(of: RawClient.self) { group in
            for _ in 0..<200 {
                group.addTask {
                    let client = try await RawClient.connect(server)
                    try await client.write(upgrade())
                    return client
                }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        try await server.recorder.wait("all of them") { $0.opened == 200 }
        #expect(server.open == 200)
        await server.stop()
        for client in clients { try await eventually("its end") { client.ended } }
        #expect(server.recorder.recording.closed == 200)
    }
}
