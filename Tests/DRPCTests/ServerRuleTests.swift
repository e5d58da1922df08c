import DRPC
import NIOCore
import Testing

/// Each rule of the page that a server keeps, at the machine without I/O.
@Suite struct ServerRuleTests {
    private var server = ServerConnection<Int>(methods: [
        "/u": .init(kind: .unary, handler: 1), "/c": .init(kind: .clientStreaming, handler: 2),
        "/s": .init(kind: .serverStreaming, handler: 3), "/b": .init(kind: .bidirectional, handler: 4),
    ])
    private var out = ByteBuffer()

    private mutating func send(
        _ kind: PacketKind, _ stream: UInt64, _ message: UInt64, _ data: String = ""
    ) throws -> [String] {
        try server.receive(Packet(kind, stream: stream, message: message, data: ByteBuffer(string: data)), into: &out)
            .map { action in
                switch action {
                case .start(let stream, let rpc, _, let metadata, let request):
                    "start \(stream) \(rpc) \(metadata) \(request.map { String(buffer: $0) } ?? "-")"
                case .deliver(let stream, let data): "deliver \(stream) \(String(buffer: data))"
                case .endInput(let stream): "end \(stream)"
                case .cancel(let stream): "cancel \(stream)"
                }
            }
    }

    private mutating func sent() throws -> [Packet] {
        defer { out = ByteBuffer() }
        return try packets(out)
    }

    private func error(_ stream: UInt64, _ code: UInt64, _ text: String) -> [Packet] {
        [Packet(.error, stream: stream, message: 1, data: ErrorPayload(code: code, text: text).encoded())]
    }

    @Test mutating func answersAtTheMessageWithoutCloseSend() throws {
        #expect(try send(.invoke, 1, 1, "/u") == [])
        #expect(try send(.message, 1, 2, "q") == ["start 1 /u [:] q"])
        server.finish(.success(ByteBuffer(string: "r")), stream: 1, into: &out)
        #expect(
            try sent() == [
                Packet(.message, stream: 1, message: 1, data: ByteBuffer(string: "r")),
                Packet(.closeSend, stream: 1, message: 2),
            ])
        // Late packets of a finished stream.
        #expect(try send(.closeSend, 1, 3) == [])
        #expect(try send(.close, 1, 4) == [])
        #expect(try sent() == [])
    }

    @Test mutating func anErrorLeavesTheConnectionUsable() throws {
        _ = try send(.invoke, 1, 1, "/u")
        _ = try send(.message, 1, 2)
        server.finish(.failure(ErrorPayload(code: 7, text: "seven")), stream: 1, into: &out)
        #expect(try sent() == error(1, 7, "seven"))
        _ = try send(.invoke, 2, 1, "/u")
        #expect(try send(.message, 2, 2) == ["start 2 /u [:] "])
    }

    @Test mutating func unknownRPCsAreAnsweredAtOnce() throws {
        #expect(try send(.invoke, 1, 1, "/no \"such\"") == [])
        #expect(try sent() == error(1, 0, #"protocol error: unknown rpc: "/no \"such\"""#))
        #expect(try send(.message, 1, 2) == [])
        #expect(try send(.closeSend, 1, 3) == [])
        #expect(try sent() == [])
    }

    @Test(arguments: ["/u", "/s"])
    mutating func closeSendWithoutMessageIsEOF(rpc: String) throws {
        _ = try send(.invoke, 1, 1, rpc)
        #expect(try send(.closeSend, 1, 2) == [])
        #expect(try sent() == error(1, 0, "EOF"))
    }

    @Test mutating func invokeThenCloseGetsNoAnswer() throws {
        _ = try send(.invoke, 1, 1, "/u")
        #expect(try send(.close, 1, 2) == [])
        #expect(try send(.message, 1, 3) == [])
        #expect(try sent() == [])
        _ = try send(.invoke, 2, 1, "/u")
        #expect(try send(.message, 2, 2) == ["start 2 /u [:] "])
    }

    @Test mutating func messageWithoutInvokeGetsNoAnswer() throws {
        #expect(try send(.message, 1, 1, "x") == [])
        #expect(try send(.message, 5, 1, "x") == [])
        #expect(try sent() == [])
    }

    @Test mutating func aNewInvokeCancelsTheRunningCallSilently() throws {
        _ = try send(.invoke, 1, 1, "/u")
        _ = try send(.message, 1, 2)
        #expect(try send(.invoke, 2, 1, "/u") == ["cancel 1"])
        server.finish(.success(ByteBuffer(string: "late")), stream: 1, into: &out)
        #expect(try sent() == [])
        #expect(try send(.message, 2, 2) == ["start 2 /u [:] "])
    }

    @Test(arguments: [PacketKind.cancel, .close, .error])
    mutating func theClientCanGiveACallUp(kind: PacketKind) throws {
        _ = try send(.invoke, 1, 1, "/b")
        #expect(try send(kind, 1, 2) == ["cancel 1"])
        #expect(throws: DRPCError(.cancelled, "")) { try server.send(ByteBuffer(), stream: 1, into: &out) }
        server.finish(.failure(ErrorPayload(code: 0, text: "cancelled")), stream: 1, into: &out)
        #expect(try sent() == [])
        #expect(!server.isBusy)
    }

    @Test mutating func aSecondInvokeOnAStreamIsRefused() throws {
        _ = try send(.invoke, 1, 1, "/u")
        #expect(throws: DRPCError(.protocolViolation, "")) { try send(.invoke, 1, 2, "/u") }
    }

    @Test mutating func metadataBelongsToTheInvokeOfItsStream() throws {
        let pairs = String(buffer: Metadata.encode(["k": "v"]))
        _ = try send(.invokeMetadata, 1, 1, pairs)
        _ = try send(.invoke, 1, 2, "/u")
        #expect(try send(.message, 1, 3) == [#"start 1 /u ["k": "v"] "#])
        _ = try send(.invokeMetadata, 2, 1, pairs)
        _ = try send(.invoke, 3, 1, "/u")
        #expect(try send(.message, 3, 2).last == "start 3 /u [:] ")
    }

    @Test(arguments: [-1, 0, 1])
    mutating func metadataHasALimitOfBytes(difference: Int) throws {
        // 11 bytes are around the value.
        let value = String(repeating: "v", count: DRPCLimits.metadataBytes - 11 + difference)
        let pairs = Metadata.encode(["k": value])
        #expect(pairs.readableBytes == DRPCLimits.metadataBytes + difference)
        let packet = Packet(.invokeMetadata, stream: 1, message: 1, data: pairs)
        var client = ClientConnection()
        if difference > 0 {
            #expect(throws: DRPCError(.protocolViolation, "")) { try server.receive(packet, into: &out) }
            #expect(throws: DRPCError(.limit, "")) {
                try client.open(rpc: "/r", kind: .unary, metadata: ["k": value], into: &out)
            }
        } else {
            #expect(try server.receive(packet, into: &out).isEmpty)
            #expect(server.heldBytes == pairs.readableBytes)
            _ = try client.open(rpc: "/r", kind: .unary, metadata: ["k": value], into: &out)
        }
    }

    @Test(arguments: [-1, 0, 1])
    mutating func metadataHasALimitOfPairs(difference: Int) throws {
        let pair = String(buffer: Metadata.encode(["k": "v"]))
        let pairs = String(repeating: pair, count: DRPCLimits.metadataPairs + difference)
        if difference > 0 {
            #expect(throws: DRPCError(.protocolViolation, "")) { try send(.invokeMetadata, 1, 1, pairs) }
        } else {
            #expect(try send(.invokeMetadata, 1, 1, pairs) == [])
        }
    }

    @Test mutating func metadataIsHeldUntilItsCallBegins() throws {
        let pairs = String(buffer: Metadata.encode(["k": "v"]))
        _ = try send(.invokeMetadata, 1, 1, pairs)
        _ = try send(.message, 2, 1)
        #expect(server.heldBytes == 0, "a newer stream came")
        _ = try send(.invokeMetadata, 3, 1, pairs)
        _ = try send(.invoke, 3, 2, "/u")
        #expect(server.heldBytes == pairs.utf8.count)
        #expect(try send(.message, 3, 3) == [#"start 3 /u ["k": "v"] "#])
        #expect(server.heldBytes == 0)
        _ = try send(.invokeMetadata, 4, 1, pairs)
        _ = try send(.invoke, 4, 2, "/no")
        #expect(server.heldBytes == 0)
    }

    @Test mutating func metadataAfterTheInvokeIsRefused() throws {
        _ = try send(.invoke, 1, 1, "/u")
        let pairs = String(buffer: Metadata.encode(["k": "v"]))
        #expect(throws: DRPCError(.protocolViolation, "")) { try send(.invokeMetadata, 1, 2, pairs) }
    }

    @Test(arguments: ["/u", "/s", "/c", "/b"])
    mutating func aCallIsServedOnceItHasInput(rpc: String) throws {
        _ = try send(.invoke, 1, 1, rpc)
        #expect(server.isBusy && !server.isServing)
        _ = try send(.message, 1, 2)
        #expect(server.isServing)
        _ = try send(.cancel, 1, 3)
        #expect(!server.isServing)
    }

    @Test mutating func anUnknownNameIsQuotedByteByByte() throws {
        let name = ByteBuffer(bytes: [0x2F, 0xFF, 0xC3, 0xA9, 0xE2, 0x82, 0x61, 0xED, 0xA0, 0x80])
        _ = try server.receive(Packet(.invoke, stream: 1, message: 1, data: name), into: &out)
        #expect(try sent() == error(1, 0, #"protocol error: unknown rpc: "/\xffé\xe2\x82a\xed\xa0\x80""#))
    }

    @Test mutating func aLongUnknownNameIsCutBeforeItIsQuoted() throws {
        let name = ByteBuffer(repeating: 1, count: DRPCLimits.packetBytes)
        let start = ContinuousClock.now
        _ = try server.receive(Packet(.invoke, stream: 1, message: 1, data: name), into: &out)
        #expect(ContinuousClock.now - start < .seconds(60))
        let text = "protocol error: unknown rpc: \"" + String(repeating: "\\x01", count: 16_375)
        #expect(try sent() == error(1, 0, String(text.prefix(DRPCLimits.errorTextBytes))))
    }

    @Test mutating func undecodableMetadataIsRefused() {
        #expect(throws: DRPCError(.protocolViolation, "")) { try send(.invokeMetadata, 1, 1, "?") }
    }

    @Test mutating func clientStreaming() throws {
        #expect(try send(.invoke, 1, 1, "/c") == ["start 1 /c [:] -"])
        #expect(try send(.message, 1, 2, "a") == ["deliver 1 a"])
        #expect(try send(.message, 1, 3, "b") == ["deliver 1 b"])
        #expect(try send(.closeSend, 1, 4) == ["end 1"])
        #expect(try send(.message, 1, 5, "late") == [])
        server.finish(.success(ByteBuffer(string: "sum")), stream: 1, into: &out)
        #expect(try sent().map(\.kind) == [.message, .closeSend])
    }

    @Test(arguments: [("/s", [PacketKind.message, .message, .close]), ("/b", [.message, .message, .close])])
    mutating func responsesOfAStreamEndWithClose(rpc: String, kinds: [PacketKind]) throws {
        _ = try send(.invoke, 1, 1, rpc)
        _ = try send(.message, 1, 2)
        try server.send(ByteBuffer(string: "1"), stream: 1, into: &out)
        try server.send(ByteBuffer(string: "2"), stream: 1, into: &out)
        server.finish(.success(nil), stream: 1, into: &out)
        let answer = try sent()
        #expect(answer.map(\.kind) == kinds)
        #expect(answer.map(\.message) == [1, 2, 3])
    }

    @Test mutating func aSingleRequestIsTakenOnce() throws {
        _ = try send(.invoke, 1, 1, "/u")
        _ = try send(.message, 1, 2)
        #expect(try send(.message, 1, 3) == [])
    }

    @Test(arguments: [-1, 0, 1])
    mutating func responsesHaveTheLimitOfPackets(difference: Int) throws {
        let data = ByteBuffer(repeating: 1, count: DRPCLimits.packetBytes + difference)
        _ = try send(.invoke, 1, 1, "/u")
        _ = try send(.message, 1, 2)
        server.finish(.success(data), stream: 1, into: &out)
        #expect(try sent().map(\.kind) == (difference > 0 ? [.error] : [.message, .closeSend]))
        _ = try send(.invoke, 2, 1, "/s")
        _ = try send(.message, 2, 2)
        if difference > 0 {
            #expect(throws: DRPCError(.limit, "")) { try server.send(data, stream: 2, into: &out) }
        } else {
            try server.send(data, stream: 2, into: &out)
        }
    }

    @Test mutating func cancelledHandlersThatLingerHoldTheConnectionUp() throws {
        for stream in 1...UInt64(DRPCLimits.lingeringHandlers) {
            #expect(server.wantsPackets)
            _ = try send(.invoke, stream, 1, "/b")
            _ = try send(.cancel, stream, 2)
        }
        #expect(!server.wantsPackets)
        server.finish(.failure(ErrorPayload(code: 0, text: "")), stream: 3, into: &out)
        #expect(server.wantsPackets)
        #expect(try sent() == [])
    }

    @Test mutating func aLostConnectionCancels() throws {
        _ = try send(.invoke, 1, 1, "/b")
        #expect(server.connectionClosed().count == 1)
        #expect(server.connectionClosed().isEmpty)
    }
}

/// Each rule that a client keeps.
@Suite struct ClientRuleTests {
    private var client = ClientConnection()
    private var out = ByteBuffer()

    private mutating func open(_ kind: MethodKind = .unary, request: String? = "q") throws -> UInt64 {
        let id = try client.open(rpc: "/r", kind: kind, metadata: [:], into: &out)
        if let request {
            try client.send(ByteBuffer(string: request), stream: id, into: &out)
            client.closeSend(stream: id, into: &out)
        }
        return id
    }

    private mutating func receive(
        _ kind: PacketKind, _ stream: UInt64, _ data: ByteBuffer = ByteBuffer()
    ) throws -> ClientConnection.Event? {
        try client.receive(Packet(kind, stream: stream, message: 1, data: data), into: &out)
    }

    @Test mutating func aReplyIsTakenWithOrWithoutCloseSend() throws {
        let id = try open()
        #expect(try receive(.message, id, ByteBuffer(string: "r")) == .reply(ByteBuffer(string: "r")))
        #expect(try packets(out).map(\.kind) == [.invoke, .message, .closeSend, .close])
        #expect(try receive(.closeSend, id) == nil)
        #expect(try open() == 2)
        #expect(try receive(.closeSend, 1) == nil)
        #expect(try receive(.message, 2) == .reply(ByteBuffer()))
    }

    @Test(arguments: [PacketKind.closeSend, .close])
    mutating func anEmptyReplyIsEndOfStream(kind: PacketKind) throws {
        let id = try open()
        #expect(try receive(kind, id) == .failed(DRPCError(.endOfStream, "EOF")))
        #expect(!client.isBusy)
    }

    @Test mutating func errorsKeepTheirCode() throws {
        let id = try open()
        let event = try receive(.error, id, ErrorPayload(code: 7, text: "seven").encoded())
        #expect(event == .failed(DRPCError(.remote(7), "seven")))
        #expect(try packets(out).map(\.kind) == [.invoke, .message, .closeSend])
    }

    @Test mutating func aCancelOfTheServerFailsTheCall() throws {
        let id = try open()
        #expect(try receive(.cancel, id) == .failed(DRPCError(.cancelled, "")))
    }

    @Test mutating func aServerCannotInvokeNorOpen() throws {
        let id = try open()
        #expect(throws: DRPCError(.protocolViolation, "")) { try receive(.invoke, id) }
        #expect(throws: DRPCError(.protocolViolation, "")) { try receive(.message, id + 1) }
    }

    @Test mutating func responsesStreamUntilTheEnd() throws {
        let id = try open(.serverStreaming)
        #expect(try receive(.message, id) == .message(ByteBuffer()))
        #expect(try receive(.message, id) == .message(ByteBuffer()))
        #expect(try receive(.close, id) == .end)
        #expect(!client.isBusy)
    }

    @Test mutating func aHalfClosedServerStillListens() throws {
        let id = try open(.bidirectional, request: nil)
        #expect(try receive(.closeSend, id) == .end)
        #expect(client.isBusy)
        try client.send(ByteBuffer(), stream: id, into: &out)
        client.closeSend(stream: id, into: &out)
        #expect(!client.isBusy)
        #expect(throws: DRPCError(.cancelled, "")) { try client.send(ByteBuffer(), stream: id, into: &out) }
    }

    @Test mutating func oneCallAtATime() throws {
        _ = try open()
        #expect(throws: DRPCError(.limit, "")) { try open() }
    }

    @Test mutating func nothingIsSentAfterCloseSend() throws {
        let id = try open()
        #expect(throws: DRPCError(.closed, "")) { try client.send(ByteBuffer(), stream: id, into: &out) }
        let before = out
        client.closeSend(stream: id, into: &out)
        #expect(out == before)
    }

    @Test(arguments: [-1, 0, 1])
    mutating func requestsHaveTheLimitOfPackets(difference: Int) throws {
        let id = try open(.bidirectional, request: nil)
        let data = ByteBuffer(repeating: 1, count: DRPCLimits.packetBytes + difference)
        if difference > 0 {
            #expect(throws: DRPCError(.limit, "")) { try client.send(data, stream: id, into: &out) }
        } else {
            try client.send(data, stream: id, into: &out)
        }
    }
}
