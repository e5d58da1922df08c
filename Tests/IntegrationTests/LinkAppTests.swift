import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import FoundationEssentials
import NIOCore
import NIOPosix
import Synchronization
import Testing

@testable import ControlPlaneSimulator

/// The health of apps, by the built daemon.
@Suite("Link: apps", .blocking, .timeLimit(.minutes(5))) struct LinkAppTests {
    /// Counts requests and answers each, or none.
    private final class App: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        private let count = Mutex(0)
        private let answers: Bool
        var requests: Int { count.withLock { $0 } }

        init(answers: Bool) { self.answers = answers }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            count.withLock { $0 += 1 }
            let answer = ByteBuffer(string: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            if answers { context.channel.writeAndFlush(answer, promise: nil) }
        }

        func listen() async throws -> any Channel {
            try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .childChannelInitializer { $0.pipeline.addHandler(self) }
                .bind(host: "127.0.0.1", port: 0).get()
        }
    }

    /// Three turns make it UNHEALTHY, one more than its threshold: nothing is tried twice within one, and none waits longer than until
    /// the next. Counted in turns of an app that is well, so that a slow machine changes nothing.
    @Test(arguments: [false, true]) func failuresComeAtTheAppsOwnPace(somethingListens: Bool) async throws {
        let (well, silent) = (App(answers: true), App(answers: false))
        let servers = [try await well.listen(), try await silent.listen()]
        func url(_ server: any Channel) -> String { "http://127.0.0.1:\(server.localAddress?.port ?? 0)/" }
        let bad = LinkWorld.app("bad", health: somethingListens ? url(servers[1]) : "http://127.0.0.1:1/")
        let world = try await LinkWorld { manifest, _ in
            manifest.apps = [LinkWorld.app("well", health: url(servers[0])), bad]
            manifest.apps[1].healthcheck.threshold = 2
        }
        let daemon = try world.daemon()
        try await world.recorder.wait("the bad one is UNHEALTHY") { seen in
            seen.requests(AgentAPI.batchUpdateAppHealths).flatMap(\.updates)
                .contains { $0.id == bad.id && $0.health == .unhealthy }
        }
        #expect(well.requests <= 6)
        if somethingListens { #expect(silent.requests <= 4) }
        #expect(try await daemon.stop() == 0)
        #expect(world.recorder.recording.violations == [])
        for server in servers { try await server.close() }
        await world.stop()
    }
}
