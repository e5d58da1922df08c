import NIOCore
import NIOEmbedded
import Synchronization
import Testing

@testable import DRPC

@Suite struct UnsentBudgetTests {
    private final class Closed: Sendable {
        private let names = Mutex<[String]>([])
        var all: [String] { names.withLock { $0 } }
        func close(_ name: String) -> @Sendable () -> Void {
            { self.names.withLock { $0.append(name) } }
        }
    }

    @Test(arguments: [-1, 0, 1])
    func theOneStuckLongestGoes(difference: Int) {
        let closed = Closed()
        let budget = UnsentBudget(limit: 100)
        let first = budget.book(40, ticket: nil, close: closed.close("first"))
        let second = budget.book(50, ticket: nil, close: closed.close("second"))
        #expect(budget.book(10 + difference, ticket: second, close: closed.close("second")) == second)
        #expect(closed.all == (difference > 0 ? ["first"] : []))
        #expect(budget.held == 100 + difference)
        budget.release(first)
        budget.release(first)
        #expect(budget.held == 60 + difference)
    }

    @Test func whoLeavesIsChosenOnce() {
        let closed = Closed()
        let budget = UnsentBudget(limit: 100)
        let first = budget.book(60, ticket: nil, close: closed.close("first"))
        let second = budget.book(60, ticket: nil, close: closed.close("second"))
        let third = budget.book(40, ticket: nil, close: closed.close("third"))
        #expect(closed.all == ["first"], "what leaves counts no more")
        _ = budget.book(1, ticket: first, close: closed.close("first"))
        #expect(closed.all == ["first"])
        _ = budget.book(101, ticket: third, close: closed.close("third"))
        #expect(closed.all == ["first", "second", "third"], "one that alone is too much goes, too")
        for ticket in [first, second, third] { budget.release(ticket) }
        #expect(budget.held == 0)
        _ = budget.book(100, ticket: nil, close: closed.close("fourth"))
        #expect(closed.all.count == 3)
    }

    /// What a connection books: from the answer that filled it until it takes more.
    @Test func aConnectionBooksWhatItsClientLeaves() throws {
        var router = Router()
        router.immediate(echo) { request, _ in request }
        let budget = UnsentBudget()
        let channel = EmbeddedChannel(handler: RPCServerHandler(router: router, unsentBudget: budget))
        func call(_ stream: UInt64) throws -> Int {
            let text: [UInt8] = try Text(String(repeating: "x", count: 1_000)).serializedBytes()
            var bytes = ByteBuffer()
            Packet(.invoke, stream: stream, message: 1, data: ByteBuffer(string: echo.name)).write(into: &bytes)
            Packet(.message, stream: stream, message: 2, data: ByteBuffer(bytes: text)).write(into: &bytes)
            try channel.writeInbound(bytes)
            return try channel.readOutbound(as: ByteBuffer.self)?.readableBytes ?? 0
        }
        #expect(try call(1) > 1_000)
        #expect(budget.held == 0, "it takes more")
        channel.isWritable = false
        channel.pipeline.fireChannelWritabilityChanged()
        #expect(try call(2) == 0, "no call is worked on while its answers aren't read")
        channel.isWritable = true
        channel.pipeline.fireChannelWritabilityChanged()
        #expect(try (channel.readOutbound(as: ByteBuffer.self)?.readableBytes ?? 0) > 1_000)
        _ = try channel.finish()
        #expect(budget.held == 0)
    }
}
