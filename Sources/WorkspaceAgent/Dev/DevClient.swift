import AgentCore
import AgentProto
import ControlPlane
import ControlPlaneAPI
import ControlPlaneSimulator
import DERP
import FoundationEssentials
import IPAddresses
import LocalAgent
import Logging
import NIOCore
import Sodium
import Tailnet

/// The second node of a `dev` run: a client that asks the agent's HTTP API over the tailnet, as `coder` would.
///
/// Its node and everything else of it is on the simulator's event loop.
struct DevClient: Sendable {
    /// One request of the demonstration.
    struct Request: Encodable {
        var event = "tailnet"
        var url: String
        var status: Int
        var milliseconds: Double
        /// `relay` or `direct`.
        var path: String
        /// Of a direct path.
        var endpoint: String?
    }

    /// How long each step may take.
    private static let patience = Duration.seconds(20)
    private static let look = Duration.milliseconds(50)
    private static let answerBytes = 64 << 10

    let node: TailnetNode
    /// 16 bytes.
    let id: [UInt8]
    private let server: SimulatorServer
    private let access: ControlPlaneAccess
    private let clock: AgentClock
    private let agent: (id: [UInt8], address: IPAddress)

    /// nil where there is no libsodium: the daemon says so.
    /// - Throws: when the node cannot be made.
    init?(_ server: SimulatorServer, tokenFile: String, loop: any EventLoop, pool: BlockingPool) throws {
        let agentID = [UInt8](server.service.manifest.agentID)
        var random = SystemRandomNumberGenerator()
        let id = (0..<16).map { _ in UInt8.random(in: .min ... .max, using: &random) }
        guard Sodium.problem == nil, let agent = TailnetAddresses(agentID: agentID),
            let own = TailnetAddresses(agentID: id)
        else { return nil }
        let logger = Logger(label: "dev-client") { _ in SwiftLogNoOpLogHandler() }
        clock = AgentClock(EventLoopClock(group: loop))
        let settings = LinkSettings(url: server.url, tokenFile: tokenFile)
        access = ControlPlaneAccess(
            try LinkConfiguration(settings.input([:])), group: loop, pool: pool, clock: clock, runner: NoCommands(),
            environment: [:], logger: logger)
        node = try TailnetNode(
            .init(addresses: own, controlPlane: ControlPlaneAddress(server.url)), transport: access.relays,
            machine: Machine(pool: pool), on: loop, logger: logger)
        (self.server, self.agent) = (server, (agentID, agent.client))
        self.id = id
    }

    /// Shows two requests: the first, with the whole way to a connection in it, and one more once there is a direct path.
    func run(_ show: @escaping @Sendable (Request) -> Void) async throws {
        try await join()
        show(try await get("/healthz"))
        // It is looked for with the first packets; where there is none the relay remains.
        try? await waitFor("a direct path") { $0.isDirect }
        show(try await get("/healthz"))
    }

    /// Returns once the agent can be reached.
    func join() async throws {
        let node = node
        try await node.onLoop { $0.start(.init(services: [:])) }
        // Not before the agent is there: nothing would answer.
        try await server.recorder.wait("the agent's node", within: .seconds(600)) {
            $0.count(TailnetAPI.coordinate) > 0
        }
        let attachment = server.coordination.attach(id, isAgent: false) { response in
            node.loop.execute { node.streamReceived(response) }
        } end: {
        }
        let map = DERPMap(server.derpMap)
        try await node.onLoop { node in
            node.update({ _ in }, map: map)
            node.streamOpened { attachment.receive($0) }
        }
        var request = Coder_Tailnet_V2_CoordinateRequest()
        request.addTunnel.id = Data(agent.id)
        attachment.receive(request)
        try await waitFor("the agent's node and a relay") { $0.isReady }
    }

    struct State: Sendable {
        var isReady: Bool
        var isDirect: Bool
        var endpoint: String?
    }

    private func state() async throws -> State {
        let report = try await node.onLoop { $0.report() }
        return State(
            isReady: !report.peers.isEmpty && report.home_region > 0 && report.problem == nil,
            isDirect: report.peers.first?.path == .direct, endpoint: report.peers.first?.endpoint)
    }

    func waitFor(_ what: String, _ condition: @escaping @Sendable (State) -> Bool) async throws {
        let late = CommandFailure(message: "not within \(Self.patience): \(what)")
        try await withTimeLimit(Self.patience, clock, late) {
            while !condition(try await state()) { try await clock.sleep(Self.look) }
        }
    }

    func get(_ path: String) async throws -> Request {
        let url = "http://[\(agent.address)]:\(TunnelPorts.http)\(path)"
        let before = try await state()
        let began = clock.now()
        let late = CommandFailure(message: "\(url) gave no answer within \(Self.patience)")
        let (node, address) = (node, agent.address)
        let status = try await withTimeLimit(Self.patience, clock, late) {
            try await node.loop.flatSubmit {
                let answer = node.loop.makePromise(of: Int.self)
                let head = "GET \(path) HTTP/1.1\r\nHost: [\(address)]\r\nConnection: close\r\n\r\n"
                node.tunnel.connect(to: Endpoint(address, TunnelPorts.http)) { channel in
                    try channel.pipeline.syncOperations.addHandler(StatusReader(head, answer, Self.answerBytes))
                }.whenFailure { answer.fail($0) }
                return answer.futureResult
            }.get()
        }
        return Request(
            url: url, status: status, milliseconds: (clock.now() - began) / .milliseconds(1),
            path: before.isDirect ? "direct" : "relay", endpoint: before.isDirect ? before.endpoint : nil)
    }

    func close() async {
        try? await node.onLoop { $0.close() }
        await access.shutdown()
    }

    /// The simulator's client has no header command.
    private struct NoCommands: CommandRunner {
        func start(
            _ command: Command, output: @escaping @Sendable (CommandStream, UnsafeRawBufferPointer) -> Void
        ) async throws -> any RunningCommand { throw CommandFailure(message: "nothing is started here") }
    }
}

/// Sends a request and gives the answer's status once all of it came.
private final class StatusReader: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let request: String
    private let status: EventLoopPromise<Int>
    private let limit: Int
    private var answer = ByteBuffer()

    init(_ request: String, _ status: EventLoopPromise<Int>, _ limit: Int) {
        (self.request, self.status, self.limit) = (request, status, limit)
    }

    func channelActive(context: ChannelHandlerContext) {
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: request)), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        answer.writeImmutableBuffer(unwrapInboundIn(data))
        if answer.readableBytes > limit { context.close(promise: nil) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        status.fail(error)
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        let line = String(decoding: answer.readableBytesView.prefix { $0 != 13 }, as: UTF8.self).split(separator: " ")
        if line.count > 1, let code = Int(line[1]) {
            status.succeed(code)
        } else {
            status.fail(CommandFailure(message: "the answer is no HTTP"))
        }
    }
}
