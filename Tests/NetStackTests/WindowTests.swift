import Testing

@testable import NetStack

/// Windows that both sides fill, with losses.
@Suite struct WindowTests {
    @Test func anAcknowledgmentAtTheEndOfTheWindowCounts() throws {
        var peer = RawPeer()
        try peer.establish()
        #expect(peer.write([UInt8](repeating: 1, count: 500)) == 500)
        let window = Int(try #require(peer.replies().first).window) << 7
        // The peer filled the window, and all of it was lost on the way.
        peer.send(.ack, offset: window)
        #expect(peer.stack.counters[.outsideWindow] == 0)
        #expect(peer.wait(.seconds(5)).allSatisfy { $0.payload.isEmpty }, "it was acknowledged")
        peer.send(.ack, offset: window + 1)
        #expect(peer.stack.counters[.outsideWindow] == 1)
    }

    @Test func progressOfARetransmissionBringsItsWindow() throws {
        var peer = RawPeer()
        try peer.establish()
        #expect(peer.write([UInt8](repeating: 1, count: 3_624)) == 3_624)
        #expect(peer.replies().count == 3)
        let base = peer.expected &- 3_624
        // From here the peer takes 4,096 bytes.
        peer.send(.ack, [1, 2], acknowledges: base, window: 32)
        // A repetition that is older, but acknowledges more: the end of the window stays where it was.
        peer.send(.ack, [1, 2], offset: -2, acknowledges: base &+ 2_416, window: 13)
        _ = peer.replies()
        #expect(peer.write([UInt8](repeating: 2, count: 10_000)) == 10_000)
        let sent = peer.replies() + peer.wait(.milliseconds(150))
        let end = sent.map { $0.sequence &+ UInt32($0.payload.count) }.max() ?? base
        #expect(end &- base <= 4_096, "\(end &- base) bytes from the beginning")
    }
}
