import AgentCore
import AgentTestSupport
import AsyncHTTPClient
import NIOCore
import NIOPosix
import Testing

@testable import ControlPlane

/// One request and its answer, with a server that says each byte.
@Suite(.timeLimit(.minutes(2))) struct ExchangeTests {
    private struct Progress: Sendable {
        var connection: StandIn.Connection?
        var isOver = false
    }

    private struct Failure: Error {}

    private let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Test: yes\r\n\r\n"

    /// Performs a request whose connection the test gets hold of.
    private func perform<T: Sendable>(
        deadline: NIODeadline = .now() + .seconds(120),
        server script: @escaping @Sendable (StandIn.Connection) async throws -> Void,
        _ read: @escaping @Sendable (Int, HTTPExchange.Body) async throws -> T
    ) async throws -> T {
        let progress = Watched(Progress())
        let server = try await StandIn { _, connection in progress.update { $0.connection = connection } }
        let client = HTTPClient(eventLoopGroupProvider: .shared(MultiThreadedEventLoopGroup.singleton))
        let request = try HTTPClient.Request(url: "http://127.0.0.1:\(server.port)/")
        let work = Task {
            defer { progress.update { $0.isOver = true } }
            return try await HTTPExchange.perform(request, on: client, deadline: deadline) { head, body in
                try await read(Int(head.status.code), body)
            }
        }
        // On a machine that is slow the deadline may be over before the request has come.
        _ = try? await progress.first { $0.connection != nil || $0.isOver ? true : nil }
        var isClosed = true
        if let connection = progress.value.connection {
            do { try await script(connection) } catch { work.cancel() }
            if case .failure(let error) = await work.result {
                isClosed =
                    (try? await eventually("an end after \(error)") {
                        !connection.channel.isActive
                    }) != nil
            }
        }
        let result = await work.result
        try await client.shutdown()
        await server.stop()
        #expect(isClosed, "nothing is left open")
        return try result.get()
    }

    @Test func theBodyIsReadAsItComes() async throws {
        let read = Watched<[String]>([])
        let head = head
        let status = try await perform { connection in
            connection.send(head + "3\r\none\r\n")
            _ = try await read.first { $0 == ["one"] ? true : nil }
            connection.send("3\r\ntwo\r\n0\r\n\r\n")
        } _: { status, body in
            for try await chunk in body { read.update { $0.append(String(buffer: chunk)) } }
            return status
        }
        #expect(status == 200)
        #expect(read.value == ["one", "two"])
    }

    /// A reader that takes its time holds the sender up, and gets everything.
    @Test func aSlowReaderHoldsTheSenderUp() async throws {
        let size = 24 << 20
        let mayGoOn = Watched(false)
        let total = try await perform { connection in
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
            let written = Watched(false)
            connection.channel.writeAndFlush(ByteBuffer(repeating: 0x78, count: size)).whenComplete { _ in
                written.update { $0 = true }
            }
            // For as long as another answer of that size takes from end to end.
            let other = try await perform { other in
                other.send("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
                other.channel.writeAndFlush(ByteBuffer(repeating: 0x78, count: size), promise: nil)
            } _: { _, body in
                try await Self.count(body)
            }
            #expect(other == size)
            #expect(!written.value)
            mayGoOn.update { $0 = true }
        } _: { _, body in
            _ = try await mayGoOn.first { $0 ? true : nil }
            return try await Self.count(body)
        }
        #expect(total == size)
    }

    private static func count(_ body: HTTPExchange.Body) async throws -> Int {
        var total = 0
        for try await chunk in body { total += chunk.readableBytes }
        return total
    }

    @Test func whatIsNotReadIsAbandoned() async throws {
        let head = head
        let ended = Watched(false)
        let first = try await perform { connection in
            connection.channel.closeFuture.whenComplete { _ in ended.update { $0 = true } }
            connection.send(head + "3\r\none\r\n")
            // Goes on and on; the client must not wait for its end.
            connection.send("3\r\ntwo\r\n")
        } _: { _, body in
            try await body.next().map { String(buffer: $0) }
        }
        #expect(first?.hasPrefix("one") == true)
        try await eventually("the connection is closed") { ended.value }
    }

    @Test func theReadersErrorIsPassedOn() async throws {
        let head = head
        await #expect(throws: Failure.self) {
            try await perform {
                $0.send(head + "3\r\none\r\n")
            } _: { _, _ in
                throw Failure()
            }
        }
    }

    /// Cancelled before there is an answer, and in the middle of one.
    @Test(arguments: [false, true]) func cancellingEndsIt(_ hasHead: Bool) async throws {
        let head = head
        let reads = Watched(false)
        await #expect(throws: (any Error).self) {
            try await perform { connection in
                if hasHead {
                    connection.send(head + "3\r\none\r\n")
                    _ = try await reads.first { $0 ? true : nil }
                }
                throw Failure()
            } _: { _, body in
                for try await _ in body { reads.update { $0 = true } }
            }
        }
    }

    /// A part is never taken for the whole.
    @Test(arguments: ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
    func anAnswerThatEndsTooSoonIsAnError(_ text: String) async throws {
        await #expect(throws: (any Error).self) {
            try await perform { connection in
                connection.send(text)
                connection.close()
            } _: { _, body in
                for try await _ in body {}
            }
        }
    }

    @Test func theDeadlineIsForTheWholeAnswer() async throws {
        let head = head
        await #expect(throws: (any Error).self) {
            try await perform(deadline: .now() + .seconds(3)) {
                $0.send(head + "3\r\none\r\n")
            } _: { _, body in
                for try await _ in body {}
            }
        }
    }
}
