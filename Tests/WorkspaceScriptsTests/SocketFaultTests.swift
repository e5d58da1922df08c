import AgentCore
import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import Glibc
import Testing

@testable import ControlPlaneSimulator

private typealias State = Coder_Agent_V2_Lifecycle.State

/// The link over real sockets that are cut: at every byte, and many times in a row.
@Suite(.serialized, .timeLimit(.minutes(10))) struct SocketFaultTests {
    /// Writes lines for as long as the test likes, and says so in a file when it begins.
    private static let script = """
        echo run >> ~/runs; i=0
        until [ -e ~/go ]; do echo "line $i of a script that goes on while connections come and go"; i=$((i+1)); \
        sleep 0.02; done; echo last
        """

    /// Every byte of what an agent sends first, or gets first: in the HTTP request or its answer, in a frame's
    /// header, a yamux header, a dRPC frame, the manifest. Even places end with a FIN, odd ones with a RST.
    @Test(arguments: [FaultProxy.Direction.toServer, .toClient])
    func survivesACutAtEveryByte(_ direction: FaultProxy.Direction) async throws {
        // The control plane has less to say.
        let places = 0..<(direction == .toServer ? 900 : 420)
        let cuts = places.map { FaultProxy.Cut(after: $0, direction, reset: $0 % 2 == 1) }
        let session = try await SocketSession(scripts: [.make(Self.script)], cuts: cuts)
        defer { print("cuts \(direction): \(session.proxy.accepted) connections, \(session.proxy.cutsLeft) cuts left") }
        try await eventually("all cuts are made", within: .seconds(240)) { session.proxy.cutsLeft == 0 }
        let seen = session.recording
        // They were made before the upgrade and after it.
        if direction == .toServer { #expect(session.proxy.accepted - seen.opened > 50) }
        #expect(seen.opened > 200 && seen.calls > 200)
        try await finish(session)
    }

    @Test func survivesFiftyDropsInARow() async throws {
        var random = SeededGenerator("fifty drops")
        let cuts = (0..<50).map { _ in
            let direction: FaultProxy.Direction = Bool.random(using: &random) ? .toServer : .toClient
            return FaultProxy.Cut(
                after: Int.random(in: 0..<(direction == .toServer ? 4_000 : 800), using: &random), direction,
                reset: Bool.random(using: &random))
        }
        let session = try await SocketSession(scripts: [.make(Self.script)], cuts: cuts)
        try await eventually("all drops are made; \(cuts)", within: .seconds(240)) { session.proxy.cutsLeft == 0 }
        try await finish(session)
    }

    /// From here on the network is well.
    private func finish(_ session: SocketSession) async throws {
        creat("\(session.fixture.home)/go", 0o600)
        let ready = try await session.server.recorder.wait("READY and the script's end", within: .seconds(60)) {
            $0.statesOnce.last == .ready && $0.linesOnce.last == "last"
                && !$0.requests(AgentAPI.scriptCompleted).isEmpty
        }
        #expect(ready.statesOnce == [.starting, .ready])
        // One connection is left of them all, with its two ends at the proxy.
        try await eventually("the others are gone: \(session.sockets())") {
            // The last cut may still come, and a connection after it.
            session.proxy.open == 1 && session.server.open == 1 && session.sockets().count == 4
                && session.fixture.metrics.render().contains("agent_control_plane_state 2")
        }
        #expect(session.log.count(.error, "") == 0, "\(session.log.all.suffix(2_000))")

        let file = "\(session.fixture.home)/logs/coder-script-01010101-0101-0101-0101-010101010101.log"
        let written = (readTextFile(file) ?? "").split(separator: "\n").map(String.init)
        #expect(readTextFile("\(session.fixture.home)/runs") == "run\n")
        #expect(try await session.end())
        let over = session.recording
        #expect(over.statesOnce == [.starting, .ready, .shuttingDown, .off])
        #expect(over.linesOnce == written)
        #expect(over.requests(AgentAPI.scriptCompleted).map(\.timing.exitCode).allSatisfy { $0 == 0 })
        #expect(over.refusals.isEmpty, "\(over.refusals)")
    }
}
