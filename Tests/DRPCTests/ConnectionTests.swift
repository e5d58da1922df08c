import AgentCore
import DRPC
import Foundation
import NIOCore
import NIOPosix
import SwiftProtobuf
import Synchronization
import Testing

typealias Text = Google_Protobuf_StringValue
typealias Number = Google_Protobuf_Int64Value

let echo = Method<Text, Text>("/t/Echo")
let fail = Method<Text, Text>("/t/Fail")
let slow = Method<Text, Text>("/t/Slow")
let count = Method<Number, Number>("/t/Count", .serverStreaming)
let sum = Method<Number, Number>("/t/Sum", .clientStreaming)
let gated = Method<Number, Number>("/t/Gated", .clientStreaming)
let double = Method<Number, Number>("/t/Double", .bidirectional)

/// What a test's server has seen.
final class Seen: Sendable {
    let started = Mutex(0)
    let cancelled = Mutex(0)
    let sent = Mutex(0)
    /// Ended when the gated call may read.
    let gate = AsyncStream<Void>.makeStream()
    let violations = Mutex<[DRPCError]>([])
}

func testRouter(_ seen: Seen) -> Router {
    var router = Router()
    router.immediate(echo) { request, context in
        context.metadata["suffix"].map { Text(request.value + $0) } ?? request
    }
    router.unary(fail) { request, _ in
        throw DRPCError(.remote(UInt64(request.value) ?? 0), "failed with \(request.value)")
    }
    router.unary(slow) { _, _ in
        seen.started.withLock { $0 += 1 }
        let forever = AsyncStream<Void> { _ in }
        for await _ in forever {}
        seen.cancelled.withLock { $0 += 1 }
        throw CancellationError()
    }
    router.serverStreaming(count) { request, responses, _ in
        for number in 0..<request.value {
            try await responses.send(Number(number))
            seen.sent.withLock { $0 += 1 }
        }
    }
    router.clientStreaming(sum) { requests, _ in
        var total: Int64 = 0
        for try await request in requests {
            if request.value < 0 { return Number(-1) }
            total += request.value
        }
        return Number(total)
    }
    router.clientStreaming(gated) { requests, _ in
        for await _ in seen.gate.stream {}
        var total: Int64 = 0
        for try await _ in requests { total += 1 }
        return Number(total)
    }
    router.bidirectional(double) { requests, responses, _ in
        for try await request in requests { try await responses.send(Number(2 * request.value)) }
    }
    return router
}

/// A server on a socket of its own and whatever connects to it.
func withServer(
    _ seen: Seen = Seen(), budget: UnfinishedBudget = UnfinishedBudget(),
    _ body: (String, MultiThreadedEventLoopGroup) async throws -> Void
) async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let path = NSTemporaryDirectory() + "wa-test-\(UUID().uuidString.prefix(8)).sock"
    let router = testRouter(seen)
    let server = try await ServerBootstrap(group: group)
        .childChannelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(
                    RPCServerHandler(
                        router: router, budget: budget,
                        observer: .init(violated: { error in seen.violations.withLock { $0.append(error) } })))
            }
        }
        .bind(unixDomainSocketPath: path).get()
    defer { unlink(path) }
    do { try await body(path, group) } catch {
        try await server.close()
        try await group.shutdownGracefully()
        throw error
    }
    try await server.close()
    try await group.shutdownGracefully()
}

/// A server that answers nothing: it keeps what its one client sends.
final class SilentServer: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer
    private let bytes = Mutex(ByteBuffer())
    private let channel = Mutex<(any Channel)?>(nil)
    private let ended = Mutex(false)

    var hasEnded: Bool { ended.withLock { $0 } }
    func received() throws -> [PacketKind] { try packets(bytes.withLock { $0 }).map(\.kind) }
    func close() { channel.withLock { $0 }?.close(promise: nil) }

    func channelActive(context: ChannelHandlerContext) { channel.withLock { $0 = context.channel } }
    func channelInactive(context: ChannelHandlerContext) { ended.withLock { $0 = true } }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let part = unwrapInboundIn(data)
        _ = bytes.withLock { $0.writeImmutableBuffer(part) }
    }
}

func withSilentServer(_ body: (SilentServer, RPCClient) async throws -> Void) async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let path = NSTemporaryDirectory() + "wa-test-\(UUID().uuidString.prefix(8)).sock"
    let silent = SilentServer()
    let server = try await ServerBootstrap(group: group)
        .childChannelInitializer { channel in
            channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(silent) }
        }
        .bind(unixDomainSocketPath: path).get()
    defer { unlink(path) }
    let client = try await RPCClient.connect(unixPath: path, group: group)
    try await body(silent, client)
    await client.close()
    try await server.close()
    try await group.shutdownGracefully()
}

/// Waits until something holds, looking at each turn of the scheduler; fails after 60 s.
func eventually(_ what: String, _ condition: () async throws -> Bool) async throws {
    let deadline = ContinuousClock.now + .seconds(60)
    while true {
        // Checked once more after a deadline that passed while this test did not run.
        let late = ContinuousClock.now >= deadline
        if try await condition() { return }
        if late {
            Issue.record("never happened: \(what)")
            return
        }
        await Task.yield()
    }
}

@Suite(.timeLimit(.minutes(5))) struct ConnectionTests {
    @Test func unaryWithMetadata() async throws {
        try await withServer { path, group in
            let client = try await RPCClient.connect(unixPath: path, group: group)
            #expect(try await client.unary(echo, Text("a")).value == "a")
            #expect(try await client.unary(echo, Text("a"), metadata: ["suffix": "b"]).value == "ab")
            #expect(try await client.unary(echo, Text("")).value == "")
            await client.close()
            await #expect(throws: DRPCError(.closed, "")) { try await client.unary(echo, Text("a")) }
        }
    }

    @Test func errorsKeepCodeAndTextAndTheConnection() async throws {
        try await withServer { path, group in
            let client = try await RPCClient.connect(unixPath: path, group: group)
            for code in [7, 12, 0] as [UInt64] {
                let error = await #expect(throws: DRPCError.self) { try await client.unary(fail, Text("\(code)")) }
                #expect(error?.code == .remote(code))
                #expect(error?.message == "failed with \(code)")
            }
            let missing = await #expect(throws: DRPCError.self) {
                try await client.unary(Method<Text, Text>("/t/None"), Text())
            }
            #expect(missing?.isUnknownRPC == true)
            #expect(missing?.message == #"protocol error: unknown rpc: "/t/None""#)
            #expect(try await client.unary(echo, Text("still")).value == "still")
        }
    }

    @Test func serverStreaming() async throws {
        try await withServer { path, group in
            let client = try await RPCClient.connect(unixPath: path, group: group)
            let numbers = try await client.withServerStream(count, Number(1_000)) { responses in
                var numbers: [Int64] = []
                for try await response in responses { numbers.append(response.value) }
                return numbers
            }
            #expect(numbers == Array(0..<1_000))
            #expect(try await client.unary(echo, Text("after")).value == "after")
        }
    }

    @Test func clientStreaming() async throws {
        try await withServer { path, group in
            let client = try await RPCClient.connect(unixPath: path, group: group)
            let total = try await client.withClientStream(sum) { requests in
                for number in 1...500 { try await requests.send(Number(Int64(number))) }
            }
            #expect(total.value == 125_250)
            // The server may answer before it has heard everything.
            let early = try await client.withClientStream(sum) { requests in
                try await requests.send(Number(-1))
                for _ in 0..<100 { try await requests.send(Number(1)) }
            }
            #expect(early.value == -1)
            #expect(try await client.unary(echo, Text("after")).value == "after")
        }
    }

    @Test func bidirectional() async throws {
        try await withServer { path, group in
            let client = try await RPCClient.connect(unixPath: path, group: group)
            try await client.withBidirectional(double) { requests, responses in
                var iterator = responses.makeAsyncIterator()
                for number in 1...200 as ClosedRange<Int64> {
                    try await requests.send(Number(number))
                    #expect(try await iterator.next()?.value == 2 * number)
                }
                try await requests.finish()
                #expect(try await iterator.next() == nil)
            }
            #expect(try await client.unary(echo, Text("after")).value == "after")
        }
    }

    @Test func callsMadeTogetherRunInTurn() async throws {
        try await withServer { path, group in
            let client = try await RPCClient.connect(unixPath: path, group: group)
            try await withThrowingTaskGroup(of: Bool.self) { tasks in
                for number in 0..<300 {
                    tasks.addTask { try await client.unary(echo, Text("\(number)")).value == "\(number)" }
                }
                for try await same in tasks { #expect(same) }
            }
        }
    }

    @Test(arguments: [-1, 0, 1])
    func packetsUpToTheLimitTravelBothWays(difference: Int) async throws {
        try await withServer { path, group in
            let client = try await RPCClient.connect(unixPath: path, group: group)
            // 5 bytes of tag and length precede the text in a message of this size.
            let text = String(repeating: "x", count: DRPCLimits.packetBytes - 5 + difference)
            if difference > 0 {
                await #expect(throws: DRPCError(.limit, "")) { try await client.unary(echo, Text(text)) }
                #expect(try await client.unary(echo, Text("after")).value == "after")
            } else {
                #expect(try await client.unary(echo, Text(text)).value == text)
            }
        }
    }

    @Test func givingUpClosesTheConnectionByDefault() async throws {
        try await withSilentServer { server, client in
            let call = Task { try await client.unary(slow, Text()) }
            try await eventually("the request is there") { try server.received().last == .closeSend }
            call.cancel()
            await #expect(throws: (any Error).self) { try await call.value }
            try await eventually("the connection ends") { server.hasEnded }
            #expect(try server.received() == [.invoke, .message, .closeSend])
        }
    }

    @Test func givingUpCancelsTheHandler() async throws {
        let seen = Seen()
        try await withServer(seen) { path, group in
            let client = try await RPCClient.connect(unixPath: path, group: group)
            let call = Task { try await client.unary(slow, Text()) }
            try await eventually("the call runs") { seen.started.withLock { $0 } == 1 }
            call.cancel()
            await #expect(throws: (any Error).self) { try await call.value }
            try await eventually("handler is cancelled") { seen.cancelled.withLock { $0 } == 1 }
        }
    }

    @Test func aCancelPacketKeepsTheConnection() async throws {
        let seen = Seen()
        try await withServer(seen) { path, group in
            let client = try await RPCClient.connect(unixPath: path, group: group, cancelStyle: .cancelPacket)
            for round in 1...20 {
                let call = Task { try await client.unary(slow, Text()) }
                let next = Task { try await client.unary(echo, Text("next")) }
                call.cancel()
                await #expect(throws: (any Error).self) { try await call.value }
                #expect(try await next.value.value == "next", "round \(round)")
            }
            let first = try await client.withServerStream(count, Number(.max)) { responses in
                var iterator = responses.makeAsyncIterator()
                return try await iterator.next()?.value
            }
            #expect(first == 0)
            #expect(try await client.unary(echo, Text("after")).value == "after")
        }
    }

    @Test func aStreamWhoseReaderStopsHoldsTheSenderUp() async throws {
        let seen = Seen()
        try await withServer(seen) { path, group in
            let client = try await RPCClient.connect(unixPath: path, group: group)
            try await client.withServerStream(count, Number(.max)) { responses in
                var iterator = responses.makeAsyncIterator()
                #expect(try await iterator.next()?.value == 0)
                // The sender stops once socket buffers and queues are full: then it sends nothing
                // however often its loop turns.
                try await eventually("the sender is held up") {
                    let before = seen.sent.withLock { $0 }
                    var turns = client.eventLoop.makeSucceededVoidFuture()
                    for _ in 0..<200 {
                        for loop in group.makeIterator() { turns = turns.flatMap { loop.submit {} } }
                    }
                    try await turns.get()
                    return seen.sent.withLock { $0 } == before
                }
                #expect(seen.sent.withLock { $0 } < 1_000_000)
                for expected in 1...50_000 as ClosedRange<Int64> {
                    #expect(try await iterator.next()?.value == expected)
                }
            }
        }
    }

    @Test func unfinishedPacketsOfAllConnectionsAreBounded() async throws {
        let seen = Seen()
        let budget = UnfinishedBudget(limit: 1_000_000)
        try await withServer(seen, budget: budget) { path, group in
            var half = ByteBuffer()
            FrameHeader(kind: 2, stream: 1, message: 1, length: UInt64(DRPCLimits.packetBytes)).write(into: &half)
            half.writeRepeatingByte(0, count: 400_000)
            var channels: [any Channel] = []
            for _ in 0..<3 {
                let channel = try await ClientBootstrap(group: group).connect(unixDomainSocketPath: path).get()
                channels.append(channel)
                try? await channel.writeAndFlush(half)
            }
            try await eventually("one is closed") { seen.violations.withLock { $0.count } >= 1 }
            #expect(seen.violations.withLock { $0.first } == DRPCError(.limit, ""))
            let client = try await RPCClient.connect(unixPath: path, group: group)
            #expect(try await client.unary(echo, Text(String(repeating: "s", count: 1_000))).value.count == 1_000)
            for channel in channels { try? await channel.close() }
            try await eventually("all is given back") { budget.held == 0 }
        }
    }

    @Test func aClosedServerFailsTheCall() async throws {
        try await withSilentServer { server, client in
            let first = Task { try await client.unary(slow, Text()) }
            try await eventually("the request is there") { try server.received().last == .closeSend }
            // Starts at once, so it is in line before the loop's next turn.
            let second = Task.immediate { try await client.unary(echo, Text()) }
            try await client.eventLoop.submit {}.get()
            server.close()
            await #expect(throws: DRPCError(.closed, "")) { try await first.value }
            await #expect(throws: DRPCError(.closed, "")) { try await second.value }
            #expect(try server.received() == [.invoke, .message, .closeSend])
        }
    }

    @Test func whatWaitsForAReaderIsBookedUntilItIsRead() async throws {
        let seen = Seen()
        let budget = UnfinishedBudget()
        try await withServer(seen, budget: budget) { path, group in
            var bytes = ByteBuffer()
            Packet(.invoke, stream: 1, message: 1, data: ByteBuffer(string: gated.name)).write(into: &bytes)
            for message in 2...60 as ClosedRange<UInt64> {
                Packet(.message, stream: 1, message: message).write(into: &bytes)
            }
            let channel = try await ClientBootstrap(group: group).connect(unixDomainSocketPath: path).get()
            try await channel.writeAndFlush(bytes)
            try await eventually("what waits is booked") { budget.held > 0 }
            seen.gate.continuation.finish()
            try await eventually("it is given back") { budget.held == 0 }
            try await channel.close()
        }
    }

    @Test func noServerListening() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let error = await #expect(throws: DRPCError.self) {
            _ = try await RPCClient.connect(unixPath: "/tmp/no-such-drpc.sock", group: group)
        }
        #expect(error?.message == "cannot connect to /tmp/no-such-drpc.sock: No such file or directory")
        try await group.shutdownGracefully()
    }
}
