import AgentCore
import AgentTestSupport
import CPlatform
import Foundation
import Glibc
import Logging
import NIOCore
import NIOPosix
import Testing

@testable import BoundaryLog

/// A served socket with its queue.
struct TestProxy {
    let path: String
    let test: TestQueue
    let proxy: BoundaryProxy

    func connect() throws -> RawConnection { try RawConnection(unix: path) }
}

func withProxy(
    mode: mode_t = 0o600, connections: Int = BoundaryLimits.connections,
    configure: (inout DurableQueue.Configuration) -> Void = { _ in },
    _ body: (TestProxy) async throws -> Void
) async throws {
    let directory = try TemporaryDirectory()
    var configuration = TestQueue.configuration(directory)
    configure(&configuration)
    let test = try TestQueue(configuration)
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let path = "\(directory.path)/audit.sock"
    let proxy = BoundaryProxy(
        configuration: .init(path: path, mode: mode, maximumConnections: connections), queue: test.queue, group: group,
        metrics: test.metrics, logger: test.logger)
    try proxy.bind()
    let run = Task { try await proxy.run() }
    let result: Result<Void, any Error>
    do {
        // Tests that block in writes may take all threads that the service needs to begin.
        var first: RawConnection? = try RawConnection(unix: path)
        try await eventually("it serves") { first != nil && proxy.connections == 1 }
        first = nil
        try await eventually("the first is gone") { proxy.connections == 0 }
        try await body(TestProxy(path: path, test: test, proxy: proxy))
        result = .success(())
    } catch {
        result = .failure(error)
    }
    run.cancel()
    try await run.value
    #expect(access(path, F_OK) != 0, "the socket's file is gone")
    await test.queue.close()
    try await group.shutdownGracefully()
    try result.get()
}

@Suite(.timeLimit(.minutes(5))) struct ProxyTests {
    @Test func recordedFramesOverTheSocket() async throws {
        try await withProxy { served in
            for vector in try CodecTests.vectors() {
                guard let hex = vector.hex else { continue }
                let writer = try served.connect()
                try? writer.send(Data(Bytes.fromHex(hex)))
                if vector.server.contains("connection closed") {
                    #expect(try writer.isAtEnd(), Comment(rawValue: vector.description))
                } else {
                    // It stays open: what comes after is taken in.
                    let before = served.test.queue.status.batches
                    if !vector.server.contains("ends with") {
                        try writer.send(Data(frame(request("after", 1))))
                        try await eventually("the next frame") { served.test.queue.status.batches > before }
                    }
                }
            }
            try await eventually("all writers are gone") { served.proxy.connections == 0 }
            for (reason, count) in [
                ("unknown_tag", 3), ("too_large", 2), ("undecodable", 3), ("empty", 2), ("truncated", 2),
            ] {
                try await eventually("\(count) of \(reason)") {
                    served.test.metric("frames_rejected_total{reason=\"\(reason)\"}") == count
                }
            }
            #expect(served.test.metric(#"logs_dropped_total{reason="boundary_channel_full"}"#) == 15)
            #expect(served.test.metric(#"logs_dropped_total{reason="boundary_batch_full"}"#) == 900)
        }
    }

    @Test func modeFromTheFirstMoment() async throws {
        for mode: mode_t in [0o600, 0o660, 0o666] {
            try await withProxy(mode: mode) { served in
                var info = stat()
                #expect(lstat(served.path, &info) == 0 && info.st_mode & 0o777 == mode)
            }
        }
    }

    @Test(.enabled(if: geteuid() == 0, "writing as another user needs root")) func aWriterOfAnotherUser() async throws {
        for (mode, allowed) in [(0o600, false), (0o666, true)] as [(mode_t, Bool)] {
            try await withProxy(mode: mode) { served in
                chmod(parentDirectory(of: served.path), 0o755)
                let code = try CommandResult.of([
                    "python3", "-c",
                    "import os,socket,sys; os.setgid(65534); os.setuid(65534); s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(bytes.fromhex('01000000'))",
                    served.path,
                ]).code
                #expect((code == 0) == allowed)
                if allowed { try await eventually("taken in") { served.test.queue.status.batches == 1 } }
            }
        }
    }

    @Test func whatIsInTheWay() async throws {
        let directory = try TemporaryDirectory()
        let test = try TestQueue(TestQueue.configuration(directory))
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let path = "\(directory.path)/audit.sock"
        func proxy() -> BoundaryProxy {
            BoundaryProxy(
                configuration: .init(path: path), queue: test.queue, group: group, metrics: test.metrics,
                logger: test.logger)
        }
        try Data("precious".utf8).write(to: URL(fileURLWithPath: path))
        #expect(throws: CoreError(.pathOccupied, "")) { try proxy().bind() }
        unlink(path)
        close(try UnixListener.bind(path: path).descriptor)
        // Other tests' children hold it until they have executed.
        try await eventually("no process listens") { wa_unix_probe(path) == -ECONNREFUSED }
        let first = proxy()
        try first.bind()
        #expect(throws: CoreError(.socketInUse, "")) { try proxy().bind() }
        let run = Task { try await first.run() }
        try RawConnection(unix: path).send(Data(frame(request("s", 1))))
        try await eventually("taken in") { test.queue.status.batches == 1 }
        unlink(path)
        try Data("theirs".utf8).write(to: URL(fileURLWithPath: path))
        run.cancel()
        try await run.value
        #expect(try String(contentsOfFile: path, encoding: .utf8) == "theirs")
        await test.queue.close()
        try await group.shutdownGracefully()
    }

    @Test(arguments: [3, 4, 5]) func limitOfConnections(count: Int) async throws {
        try await withProxy(connections: 4) { served in
            var writers: [RawConnection] = []
            for _ in 0..<count {
                let writer = try served.connect()
                try? writer.send(Data(frame(request("s", 1))))
                writers.append(writer)
                let expected = min(writers.count, 4)
                try await eventually("served") { served.test.queue.status.batches == expected }
            }
            // A reset where it had written already.
            if count > 4 { #expect((try? writers[4].isAtEnd()) ?? true) }
            #expect(served.proxy.connections == min(count, 4))
        }
    }

    @Test func writersThatStallDelayNoOther() async throws {
        try await withProxy { served in
            let long = frame(request("slow", 1, padding: 30_000))
            var stalled: [RawConnection] = []
            for number in 0..<50 {
                let writer = try served.connect()
                try writer.send(Data(long.prefix(number % 2 == 0 ? long.count - 1 : 3)))
                stalled.append(writer)
            }
            let quick = try served.connect()
            for number in 0..<100 { try quick.send(Data(frame(request("quick", number)))) }
            try await eventually("the quick one") { served.test.queue.status.batches == 100 }
            for writer in stalled.prefix(10).enumerated().filter({ $0.offset % 2 == 0 }) {
                try writer.element.send(Data(long.suffix(1)))
            }
            try await eventually("those that went on") { served.test.queue.status.batches == 105 }
            stalled = []
            try await eventually("counted") { served.test.metric(#"frames_rejected_total{reason="truncated"}"#) == 45 }
        }
    }

    @Test func twoHundredWriters() async throws {
        try await withProxy { served in
            let each = 40
            try await withThrowingTaskGroup(of: Void.self) { group in
                for writer in 0..<200 {
                    group.addTask(executorPreference: BlockingExecutor.shared) {
                        let connection = try RawConnection(unix: served.path)
                        var bytes = Data()
                        for number in 0..<each {
                            bytes += frame(request("w\(writer)", number, logs: 2), tag: UInt8(number % 2 + 1))
                        }
                        try connection.send(bytes)
                    }
                }
                try await group.waitForAll()
            }
            try await eventually("all are taken in") { served.test.queue.status.batches == 200 * each }
            try await served.test.stored()
            var next: [String: UInt64] = [:]
            for batch in await served.test.read() {
                let request = try Request(serializedBytes: batch.payload)
                #expect(request.logs[0].sequenceNumber == next[request.sessionID, default: 0])
                next[request.sessionID] = request.logs[1].sequenceNumber + 1
            }
            #expect(next.count == 200 && next.values.allSatisfy { $0 == UInt64(each * 2) })
            #expect(served.test.metric("sequence_gaps_total") == 0)
        }
    }

    @Test func holesAreCounted() async throws {
        try await withProxy { served in
            let writer = try served.connect()
            for number in [0, 1, 3, 4, 9] { try writer.send(Data(frame(request("s", number, logs: 3), tag: 2))) }
            try await eventually("taken in") { served.test.queue.status.batches == 5 }
            #expect(served.test.metric("sequence_gaps_total") == 2)
        }
    }

    @Test func theWriterIsNeverBlocked() async throws {
        try await withProxy(configure: { $0.maximumBatches = 100 }) { served in
            let writer = try served.connect()
            let total = 3_000
            var bytes = Data()
            for number in 0..<total { bytes += frame(request("s", number, padding: 500)) }
            // More than any socket holds: it only ends when all is read.
            try writer.send(bytes)
            try await eventually("dropped") {
                served.test.metric(#"batches_dropped_total{reason="buffer_full"}"#) == total - 100
            }
            #expect(served.test.queue.status.batches == 100)
        }
    }

    /// A disk that is slower than the writer: a pause, and nothing is lost. One that hangs is worse:
    /// the writer goes on after ``BoundaryLimits/pauseMilliseconds``.
    @Test func aBurstWaitsForTheDisk() async throws {
        try await withProxy(configure: {
            $0.maximumStagedBytes = 1 << 20
            $0.commitInterval = .milliseconds(30)
        }) { served in
            let writer = try served.connect()
            let total = 5_000
            let one = Data(frame(request("s", 1, padding: 900)))
            var bytes = Data()
            for _ in 0..<total { bytes += one }
            try writer.send(bytes)
            try await eventually("all is taken in") { served.test.queue.status.batches == total }
            #expect(served.test.queue.status.dropped == 0)
        }
    }

    /// A reader that waits for the disk is not one that has nothing to read.
    @Test func whatWaitsForTheDiskIsReadAtTheEnd() async throws {
        let directory = try TemporaryDirectory()
        var configuration = TestQueue.configuration(directory)
        configuration.maximumStagedBytes = 256 << 10
        configuration.commitInterval = .milliseconds(30)
        let test = try TestQueue(configuration)
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let path = "\(directory.path)/audit.sock"
        let proxy = BoundaryProxy(
            configuration: .init(path: path), queue: test.queue, group: group, metrics: test.metrics,
            logger: test.logger)
        try proxy.bind()
        let run = Task { try await proxy.run() }
        let writer = try RawConnection(unix: path)
        var bytes = Data()
        for number in 0..<1_000 { bytes += frame(request("s", number, padding: 900)) }
        try writer.send(bytes)
        run.cancel()
        try await run.value
        try await eventually("all is there") { test.queue.status.batches == 1_000 }
        #expect(test.queue.status.dropped == 0)
        await test.queue.close()
        try await group.shutdownGracefully()
    }

    @Test func whatWasWrittenIsReadAtTheEnd() async throws {
        let directory = try TemporaryDirectory()
        let test = try TestQueue(TestQueue.configuration(directory))
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let path = "\(directory.path)/audit.sock"
        let proxy = BoundaryProxy(
            configuration: .init(path: path), queue: test.queue, group: group, metrics: test.metrics,
            logger: test.logger)
        try proxy.bind()
        let run = Task { try await proxy.run() }
        let writer = try RawConnection(unix: path)
        try await eventually("connected") { proxy.connections == 1 }
        var bytes = Data()
        for number in 0..<200 { bytes += frame(request("s", number, padding: 300)) }
        try writer.send(bytes)
        // Some that are not accepted yet, one of them closed again.
        let late = try (0..<20).map { _ in try RawConnection(unix: path) }
        for (number, writer) in late.enumerated() { try writer.send(Data(frame(request("late", number)))) }
        try RawConnection(unix: path).send(Data(frame(request("gone", 1))))
        run.cancel()
        try await run.value
        #expect(throws: RawConnection.Failure.self) { try RawConnection(unix: path) }
        await test.queue.close()
        let second = try TestQueue(TestQueue.configuration(directory))
        try await eventually("opened") { second.queue.status.batches == 221 }
        await second.queue.close()
        try await group.shutdownGracefully()
    }

    @Test func defaultPath() {
        #expect(BoundaryProxy.Configuration.defaultPath(temporary: nil) == "/tmp/boundary-audit.sock")
        #expect(BoundaryProxy.Configuration.defaultPath(temporary: "") == "/tmp/boundary-audit.sock")
        #expect(BoundaryProxy.Configuration.defaultPath(temporary: "/var/tmp/") == "/var/tmp/boundary-audit.sock")
        #expect(BoundaryProxy.Configuration.defaultPath(temporary: "/") == "/boundary-audit.sock")
    }
}
