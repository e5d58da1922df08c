import AgentTestSupport
import NIOCore
import Synchronization
import Testing

@testable import AgentHTTP

@Suite(.timeLimit(.minutes(5))) struct OutputQueueTests {
    private final class Closed: Sendable {
        private let names = Mutex<[String]>([])
        var all: [String] { names.withLock { $0 } }
        func add(_ name: String) { names.withLock { $0.append(name) } }
    }

    private func buffer(_ bytes: Int) -> ByteBuffer { ByteBuffer(repeating: 7, count: bytes) }

    @Test func theOneThatDoesNotReadForTheLongestTimeIsClosed() {
        let (queues, closed) = (OutputQueues(limit: 100), Closed())
        let all = ["a", "b", "c", "d"].map { name in
            let queue = queues.make()
            queue.onOverflow = { closed.add(name) }
            return queue
        }
        all[0].add([buffer(40)])
        all[1].add([buffer(40)])
        all[2].add([buffer(20)])
        #expect(queues.bytes == 100 && closed.all.isEmpty)
        // It has read meanwhile, so the second has waited for longer.
        all[0].clear()
        all[0].add([buffer(40)])
        all[3].add([buffer(1)])
        #expect(closed.all == ["b"] && queues.bytes == 61)
        all[3].add([buffer(80)])
        #expect(closed.all == ["b", "c", "a"] && queues.bytes == 81)
        // One alone may be longer.
        all[3].add([buffer(1_000)])
        #expect(closed.all.count == 3)
        all[3].clear()
        #expect(queues.bytes == 0)
    }

    @Test func aSharedBufferCountsOnce() {
        let queues = OutputQueues(limit: 1_000)
        let shared = buffer(600)
        let all = (0..<20).map { _ in queues.make() }
        for queue in all { queue.add([buffer(1), shared]) }
        #expect(queues.bytes == 620)
        for queue in all.dropLast() { queue.clear() }
        #expect(queues.bytes == 601)
        all.last?.clear()
        #expect(queues.bytes == 0)
    }

    @Test func aQueueThatIsGoneHoldsNothing() {
        let queues = OutputQueues(limit: 1_000)
        do { queues.make().add([buffer(10)]) }
        #expect(queues.bytes == 0)
    }

    @Test func signsOfLife() {
        var progress = PeerProgress()
        // We read all the time: a pong would have come.
        progress.pinged(isReading: true, written: 100, unsent: 50)
        #expect(progress.isSilent(written: 200, unsent: 0))
        // Nothing was accepted, though more was written.
        progress.pinged(isReading: false, written: 1_000, unsent: 600)
        #expect(progress.isSilent(written: 1_000, unsent: 600))
        #expect(progress.isSilent(written: 1_500, unsent: 1_100))
        #expect(!progress.isSilent(written: 1_500, unsent: 1_099))
        // The ping is on its way.
        progress.pinged(isReading: true, written: 1_000, unsent: 600)
        #expect(!progress.isSilent(written: 1_000, unsent: 300))
        // The route is busy, and the peer owes us nothing that we would have read.
        progress.pinged(isReading: true, written: 1_000, unsent: 2)
        progress.paused()
        #expect(!progress.isSilent(written: 1_000, unsent: 0))
        #expect(progress.isSilent(written: 1_000, unsent: 2))
    }

    /// A client that does not read is closed by the ping rule, though its output, and so the ping, waits.
    @Test func aClientThatDoesNotReadIsClosed() async throws {
        var limits = HTTPLimits()
        limits.webSocketPingInterval = .milliseconds(50)
        limits.webSocketPongTimeout = .milliseconds(50)
        let ended = AsyncEvent()
        let fixture = try await ServerFixture(limits: limits) { routes in
            routes.webSocket("/flood", changes: false) { request, context in
                try WebSocketUpgrade.respond(to: request, context: context) { webSocket in
                    let data = ByteBuffer(repeating: 1, count: 64 << 10)
                    while (try? await webSocket.send(data)) != nil {}
                    ended.signal()
                }
            }
        }
        let connection = try fixture.connect()
        try connection.send(
            "GET /flood HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        await ended.wait()
        await fixture.server.stop()
        withExtendedLifetime(connection) {}
    }

    /// Answers that are not read do not hold up the end.
    @Test func shutdownDoesNotWaitForClientsThatDoNotRead() async throws {
        var limits = HTTPLimits()
        limits.shutdownGrace = .hours(1)
        limits.shutdownStallTimeout = .milliseconds(50)
        let fixture = try await ServerFixture(limits: limits) { routes in
            routes.get("/large") { _, _ in .text(ByteBuffer(repeating: 65, count: 16 << 20)) }
        }
        let connection = try fixture.connect()
        try connection.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        try await eventually("the answer has begun") { connection.isReadable }
        await fixture.server.stop()
        withExtendedLifetime(connection) {}
    }
}
