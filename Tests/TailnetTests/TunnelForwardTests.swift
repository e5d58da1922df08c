import AgentTestSupport
import Foundation
import Glibc
import IPAddresses
import NIOCore
import NIOPosix
import NetStack
import Synchronization
import Testing

@testable import Tailnet

/// Connections through the tunnel to this machine's loopback ports.
@Suite(.timeLimit(.minutes(5))) struct TunnelForwardTests {
    @Test func anEchoKeepsItsTail() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await TunnelWorld.run { world in
            let bytes = randomBytes(16 << 20)
            let answer = try await world.exchange(echo.port, bytes)
            #expect(answer == bytes)
        }
    }

    @Test(arguments: [10, 50]) func lossAndReorderingChangeNothing(lostOfThousand: Int) async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        let path = Impairer.Path(lost: lostOfThousand, delay: .milliseconds(2), jitter: .milliseconds(1))
        try await TunnelWorld.run(path: path) { world in
            let bytes = randomBytes(2 << 20)
            let answer = try await world.exchange(echo.port, bytes)
            #expect(answer == bytes)
            let retransmissions = try await world.look(at: world.client) { $0.stackCounters.retransmissions }
            #expect(retransmissions > 0)
        }
    }

    @Test func whatListensOnIPv6Only() async throws {
        let echo = try LoopbackServer(v6: true, LoopbackServer.echo)
        try await TunnelWorld.run { world in
            let answer = try await world.exchange(echo.port, Array("six".utf8))
            #expect(answer == Array("six".utf8))
        }
    }

    @Test func whatDoesNotListenIsRefused() async throws {
        let own = try LoopbackServer(LoopbackServer.echo)
        try await TunnelWorld.run(ownPorts: [UInt16(own.port)]) { world in
            for port in [1, 2, 22, own.port, 9] {
                await #expect(throws: ConnectionFailure.refused, "port \(port)") { _ = try await world.connect(port) }
            }
            let count = try await world.look(at: world.server) { $0.connectionCount }
            #expect(count == 0)
        }
    }

    @Test func aResetPassesInsteadOfAnEnd() async throws {
        let server = try LoopbackServer { descriptor in
            var byte: UInt8 = 0
            _ = read(descriptor, &byte, 1)
            var option = linger(l_onoff: 1, l_linger: 0)
            setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
        }
        try await TunnelWorld.run { world in
            await #expect(throws: ConnectionFailure.reset) {
                _ = try await world.connect(server.port).executeThenClose { inbound, outbound in
                    try await outbound.write(ByteBuffer(string: "x"))
                    for try await _ in inbound {}
                }
            }
        }
    }

    /// What the server said is delivered, and the client learns that what it sends is not read.
    @Test func aServerThatLeavesWhileTheClientSends() async throws {
        let said = Said()
        let server = try LoopbackServer { descriptor in
            var byte: UInt8 = 0
            _ = read(descriptor, &byte, 1)
            _ = send(descriptor, "bye", 3, Int32(MSG_NOSIGNAL))
            shutdown(descriptor, CInt(SHUT_WR))
            // What it leaves unread then is a reset.
            for _ in 0..<60_000 where said.text.withLock({ $0.isEmpty }) { poll(nil, 0, 1) }
        }
        try await TunnelWorld.run { world in
            await #expect(throws: (any Error).self) {
                try await world.connect(server.port).executeThenClose { inbound, outbound in
                    async let read: Void = {
                        for try await data in inbound { said.text.withLock { $0 += String(buffer: data) } }
                    }()
                    while true { try await outbound.write(ByteBuffer(repeating: 1, count: 10_000)) }
                    try await read
                }
            }
            #expect(said.text.withLock { $0 } == "bye")
        }
    }

    @Test func aClientsResetReachesTheServer() async throws {
        let problem = Mutex<CInt?>(nil)
        let server = try LoopbackServer { descriptor in
            var area = [UInt8](repeating: 0, count: 16)
            while case let count = read(descriptor, &area, 16), count != 0 {
                if count < 0 { return problem.withLock { $0 = errno } }
            }
            problem.withLock { $0 = 0 }
        }
        try await TunnelWorld.run { world in
            let tunnel = world.client.tunnel
            let channel = try await tunnel.loop.flatSubmit {
                tunnel.connect(to: Endpoint(serverAddress, UInt16(server.port)))
            }.get()
            try await channel.writeAndFlush(ByteBuffer(string: "hello"))
            try await tunnel.loop.submit { (channel as? StackChannel)?.abort() }.get()
            try await eventually("the server's error") { problem.withLock { $0 } != nil }
            #expect(problem.withLock { $0 } == ECONNRESET)
        }
    }

    /// The sender at loopback waits: the tunnel does not take more than its buffers hold.
    @Test func aReaderThatDoesNotReadHoldsTheWriterUp() async throws {
        let sent = Mutex(0)
        let total = 64 << 20
        let server = try LoopbackServer { descriptor in
            let chunk = [UInt8](repeating: 7, count: 65_536)
            for _ in 0..<(total / chunk.count) {
                var done = 0
                while done < chunk.count {
                    let step = send(descriptor, chunk, chunk.count - done, Int32(MSG_NOSIGNAL))
                    guard step > 0 else { return }
                    done += step
                }
                sent.withLock { $0 += chunk.count }
            }
        }
        try await TunnelWorld.run { world in
            try await world.connect(server.port).executeThenClose { inbound, _ in
                var (last, looks) = (0, 0)
                try await eventually("the writer waits") {
                    let now = sent.withLock { $0 }
                    looks = now > 0 && now == last ? looks + 1 : 0
                    last = now
                    return looks == 200
                }
                #expect(sent.withLock { $0 } < 32 << 20)
                var count = 0
                for try await data in inbound { count += data.readableBytes }
                #expect(count == total)
            }
        }
    }

    @Test func aThousandConnectionsAtOnce() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await TunnelWorld.run { world in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<1_000 {
                    group.addTask {
                        let bytes = Array("connection \(number)".utf8)
                        let answer = try await world.exchange(echo.port, bytes)
                        #expect(answer == bytes)
                    }
                }
                try await group.waitForAll()
            }
            try await eventually("all have ended") {
                try await world.look(at: world.server) { $0.connectionCount } == 0
            }
        }
    }

    @Test func theHTTPPortNamesItsPeer() async throws {
        try await TunnelWorld.run { world in
            _ = try await world.connect(4).executeThenClose { _, _ in }
            // The client is done with the handshake before the server is.
            try await eventually("the server's end") { world.http.withLock { $0.map(\.address) } == [clientAddress] }
        }
    }

    private final class Said: Sendable {
        let text = Mutex("")
    }

    // MARK: Paths

    @Test func aPeerThatMovesKeepsItsConnection() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await TunnelWorld.run { world in
            try await world.connect(echo.port).executeThenClose { inbound, outbound in
                var iterator = inbound.makeAsyncIterator()
                for text in ["before", "after", "later"] {
                    try await outbound.write(ByteBuffer(string: text))
                    var answer = ByteBuffer()
                    while answer.readableBytes < text.utf8.count, let next = try await iterator.next() {
                        answer.writeImmutableBuffer(next)
                    }
                    #expect(String(buffer: answer) == text)
                    let port = world.impairer.outerPort
                    try await world.impairer.move()
                    #expect(world.impairer.outerPort != port)
                }
            }
        }
    }

    @Test func aNameIsLookedUp() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await TunnelWorld.run(name: "workspace.example") { world in
            let answer = try await world.exchange(echo.port, [1, 2, 3])
            #expect(answer == [1, 2, 3])
        }
    }
}
