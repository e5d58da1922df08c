import AgentTestSupport
import NIOCore
import NIOWebSocket
import Testing

@testable import WebSockets

@Suite struct FrameReaderTests {
    private let key: [UInt8] = [1, 2, 3, 4]

    private func code(_ input: ByteBuffer, role: WebSocketRole = .client) -> WebSocketError.Code? {
        do {
            _ = try events(input, role: role)
            return nil
        } catch { return (error as? WebSocketError)?.code }
    }

    @Test func bordersOfFramesAndMessagesMeanNothing() throws {
        var input = frame(0x02, [1, 2])  // binary, more to come
        for part in [
            frame(0x89, [9]), frame(0x00, [3]), frame(0x00), frame(0x8A, [8]), frame(0x80, [4]), frame(0x82),
            frame(0x82, [5]),
        ] { input.writeImmutableBuffer(part) }
        let expected: [WebSocketFrameReader.Event] = [
            .data(ByteBuffer(bytes: [1, 2])), .ping(ByteBuffer(bytes: [9])), .data(ByteBuffer(bytes: [3])),
            .pong(ByteBuffer(bytes: [8])), .data(ByteBuffer(bytes: [4, 5])),
        ]
        for step in [1, 2, 5, .max] { #expect(try events(input, role: .client, step: step) == expected) }
    }

    @Test func payloadIsHandedOnBeforeItsFrameIsComplete() throws {
        var reader = WebSocketFrameReader(role: .client)
        // 2^40 bytes are promised.
        var input = frame(0x82, [7, 8], length: [127, 0, 0, 1, 0, 0, 0, 0, 0])
        #expect(try reader.next(&input) == .data(ByteBuffer(bytes: [7, 8])))
        #expect(try reader.next(&input) == nil)
        #expect(reader.isInsideData)
    }

    @Test func violations() {
        let violation = WebSocketError.Code.violation(.protocolError)
        for bad in [
            frame(0xC2, [1]), frame(0xA2, [1]), frame(0x92, [1]),  // reserved bits
            frame(0x83, [1]), frame(0x8B, [1]), frame(0x8F),  // reserved opcodes
            frame(0x09, [1]), frame(0x08),  // control frames in fragments
            frame(0x89, [UInt8](repeating: 0, count: 126)),
            frame(0x80, [1]), frame(0x00, [1]),  // continuation of nothing
            frame(0x82, [1], length: [126, 0, 125]), frame(0x82, [1], length: [127, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]),
            frame(0x82, [1], length: [127, 0x80, 0, 0, 0, 0, 0, 0, 0]),
            frame(0x82, [1], key: key),  // a server must not mask
            frame(0x88, [3]), frame(0x88, [0x03, 0xED]), frame(0x88, [0x03, 0xE7]), frame(0x88, [0x07, 0xD0]),
        ] { #expect(code(bad) == violation, "\(bad.hexDump(format: .compact))") }
        #expect(code(frame(0x82, [1]), role: .server) == violation)  // a client must mask
        #expect(code(frame(0x81, [65])) == .violation(.unsupportedData))
        #expect(code(frame(0x88, [0x03, 0xE8, 0xFF])) == .violation(.invalidPayload))
        var nested = frame(0x02, [1])
        nested.writeImmutableBuffer(frame(0x82, [1]))
        #expect(code(nested) == violation)
        #expect(code(frame(0x89, [UInt8](repeating: 0, count: 125))) == nil)
        #expect(code(frame(0x82, [1], length: [126, 0, 126])) == nil)
    }

    @Test func closeCodes() throws {
        #expect(try events(frame(0x88), role: .client) == [.close(nil, reason: "")])
        for code: UInt16 in [1000, 1001, 1003, 1007, 1011, 1014, 3000, 4999] {
            let payload = [UInt8(code >> 8), UInt8(code & 255)] + Array("grüß".utf8)
            #expect(
                try events(frame(0x88, payload), role: .client) == [.close(WebSocketCloseCode(code), reason: "grüß")])
        }
    }

    /// Against NIO's encoder: masked frames of all length forms, read in random pieces.
    @Test func whatNIOWritesIsRead() throws {
        var random = SeededGenerator("whatNIOWritesIsRead")
        for size in [0, 1, 7, 8, 9, 63, 64, 65, 79, 125, 126, 127, 65_535, 65_536, 100_000] {
            let payload = ByteBuffer(bytes: (0..<size).map { _ in UInt8.random(in: 0...255, using: &random) })
            let nioKey = try #require(
                WebSocketMaskingKey((0..<4).map { _ in UInt8.random(in: 0...255, using: &random) }))
            var masked = payload
            masked.webSocketMask(nioKey)
            var input = ByteBuffer()
            let word = nioKey.reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
            WebSocketFrameHeader(opcode: .binary, mask: word, length: size).write(into: &input)
            input.writeImmutableBuffer(masked)
            let step = Int.random(in: 1...max(1, size), using: &random)
            #expect(try events(input, role: .server, step: step) == (size == 0 ? [] : [.data(payload)]))
        }
    }
}

@Suite struct FrameWriterTests {
    private func drain(_ writer: inout WebSocketFrameWriter, key: UInt32 = 0x0102_0304) -> [ByteBuffer] {
        var out: [ByteBuffer] = []
        while let next = writer.next(mask: { key }) { out.append(next) }
        return out
    }

    @Test func smallWritesShareAFrameAndLargeOnesAreSplit() throws {
        for masks in [true, false] {
            var random = SeededGenerator("split \(masks)")
            for _ in 0..<50 {
                var writer = WebSocketFrameWriter(masks: masks)
                var all = ByteBuffer()
                for _ in 0..<Int.random(in: 1...6, using: &random) {
                    let size =
                        [0, 1, 12, 8_191, 8_192, 65_535, 65_536, 65_537, 200_000].randomElement(using: &random) ?? 0
                    let part = ByteBuffer(repeating: UInt8.random(in: 0...255, using: &random), count: size)
                    all.writeImmutableBuffer(part)
                    writer.append(part)
                }
                var wire = ByteBuffer()
                for piece in drain(&writer) { wire.writeImmutableBuffer(piece) }
                #expect(writer.isEmpty)
                let frames = (all.readableBytes + WebSocketLimits.frameBytes - 1) / WebSocketLimits.frameBytes
                #expect(wire.readableBytes <= all.readableBytes + frames * WebSocketLimits.headerBytes)
                let expected: [WebSocketFrameReader.Event] = all.readableBytes == 0 ? [] : [.data(all)]
                #expect(try events(wire, role: masks ? .server : .client) == expected)
            }
        }
    }

    @Test func frameSizeAtBelowAndAboveTheLimit() throws {
        for (size, frames) in [(131_057, 1), (131_058, 1), (131_059, 2)] {
            #expect(WebSocketLimits.frameBytes == 131_058)
            var writer = WebSocketFrameWriter(masks: true)
            writer.append(ByteBuffer(repeating: 1, count: size))
            #expect(drain(&writer).count == frames)
        }
        for (size, isFull) in [(65_535, false), (65_536, true), (65_537, true)] {
            var writer = WebSocketFrameWriter(masks: true)
            writer.append(ByteBuffer(repeating: 1, count: size))
            #expect(writer.isFull == isFull)
        }
    }

    @Test func aFrameIsNotTouchedWhileTheTransportHasIt() {
        var writer = WebSocketFrameWriter(masks: true)
        writer.append(ByteBuffer(repeating: 1, count: 100))
        let first = writer.next(mask: { 0 })
        writer.append(ByteBuffer(repeating: 2, count: 100))
        _ = writer.next(mask: { 0 })
        #expect(first?.readableBytesView.suffix(100) == ByteBuffer(repeating: 1, count: 100).readableBytesView)
    }
}

@Suite struct KeepaliveTests {
    private func at(_ seconds: Int64) -> NIODeadline { .uptimeNanoseconds(0) + .seconds(seconds) }
    private func make() -> Keepalive { Keepalive(interval: .seconds(15), timeout: .seconds(15), now: at(0)) }

    @Test func aPeerThatAnswersStays() {
        var keepalive = make()
        for second in stride(from: Int64(15), to: 300, by: 15) {
            #expect(keepalive.timerFired(now: at(second), insideData: false) == (.ping, .seconds(15)))
            keepalive.pong()
        }
    }

    @Test func aPeerThatDoesNotAnswerIsGoneAfterTheTimeout() {
        var keepalive = make()
        #expect(keepalive.timerFired(now: at(15), insideData: false).0 == .ping)
        #expect(keepalive.timerFired(now: at(30), insideData: false).0 == .gone)
    }

    @Test func timeInWhichWeDoNotReadDoesNotCount() {
        var keepalive = make()
        _ = keepalive.timerFired(now: at(15), insideData: false)
        keepalive.reading(false, now: at(20))
        #expect(keepalive.timerFired(now: at(30), insideData: false) == (.none, .seconds(10)))
        #expect(keepalive.timerFired(now: at(40), insideData: false) == (.none, .seconds(10)))
        keepalive.reading(true, now: at(45))
        #expect(keepalive.timerFired(now: at(50), insideData: false) == (.none, .seconds(5)))
        #expect(keepalive.timerFired(now: at(55), insideData: false).0 == .gone)
    }

    @Test func aLongFrameThatKeepsComingCoversThePongBehindIt() {
        var keepalive = make()
        _ = keepalive.timerFired(now: at(15), insideData: true)
        keepalive.dataCame()
        #expect(keepalive.timerFired(now: at(30), insideData: true) == (.none, .seconds(15)))
        // Nothing came any more.
        #expect(keepalive.timerFired(now: at(45), insideData: true).0 == .gone)
    }
}
