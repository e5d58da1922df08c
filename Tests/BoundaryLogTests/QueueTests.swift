import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import BoundaryLog

@Suite(.timeLimit(.minutes(5))) struct QueueTests {
    @Test func keepsOrderAndContentAcrossRestarts() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        let first = try TestQueue(configuration)
        for number in 0..<500 { #expect(first.add(request("s", number, padding: number * 17 % 5_000))) }
        #expect("".withCString { first.queue.enqueue(UnsafeRawBufferPointer(start: $0, count: 0), [0..<0], logs: 0) })
        try await first.stored()
        let batches = await first.read()
        #expect(batches.count == 501)
        #expect(batches.map(\.id) == batches.map(\.id).sorted())
        for (number, batch) in batches.dropLast().enumerated() {
            #expect(batch.payload == encoded(request("s", number, padding: number * 17 % 5_000)) && batch.logs == 1)
        }
        #expect(batches.last?.payload == [])
        first.queue.acknowledge(through: batches[99].id)
        try await eventually("deleted") { first.queue.status.batches == 401 }
        await first.queue.close()
        #expect(await first.read().isEmpty)
        #expect(!first.add(request("s", 1)), "closed")

        var info = stat()
        #expect(stat(configuration.path, &info) == 0 && info.st_mode & 0o777 == 0o600)
        #expect(stat(parentDirectory(of: configuration.path), &info) == 0 && info.st_mode & 0o777 == 0o700)

        let second = try TestQueue(configuration)
        #expect(second.add(request("s", 1_000)))
        try await second.stored()
        let left = await second.read()
        #expect(left.first?.id == batches[100].id && left.count == 402)
        #expect(left.map(\.id) == left.map(\.id).sorted())
        #expect(second.queue.status.bytes == left.reduce(0) { $0 + $1.payload.count })
        await second.queue.close()
    }

    @Test func startsWhenNeeded() async throws {
        let directory = try TemporaryDirectory()
        var configuration = TestQueue.configuration(directory)
        configuration.startsWhenNeeded = true
        func exists() -> Bool { access(configuration.path, F_OK) == 0 }
        let unused = try TestQueue(configuration)
        #expect(unused.queue.status == .init() && unused.metric("queue_batches") == 0)
        await unused.queue.drained()
        await unused.queue.close()
        await unused.queue.close()
        #expect(!unused.add(request("s", 0)), "closed")
        #expect(await unused.read().isEmpty)
        #expect(!exists())

        let used = try TestQueue(configuration)
        for number in 0..<3 { #expect(used.add(request("s", number))) }
        try await used.stored()
        #expect(exists())
        #expect(try await used.numbers() == [0, 1, 2])
        await used.queue.close()

        // Batches of an earlier run are seen without a reader.
        let next = try TestQueue(configuration)
        try await eventually("it is counted") { next.queue.status.batches == 3 }
        await next.queue.close()

        try #require(unlink(configuration.path) == 0)
        let read = try TestQueue(configuration)
        async let batches = read.read()
        try await eventually("a reader starts it") { exists() }
        read.add(request("s", 9))
        #expect(await batches.count == 1)
        await read.queue.close()
    }

    @Test func theLogIsPrivateToo() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        let test = try TestQueue(configuration)
        test.add(request("s", 1))
        try await test.stored()
        var info = stat()
        #expect(stat(configuration.path + "-wal", &info) == 0 && info.st_mode & 0o777 == 0o600)
        await test.queue.close()
    }

    @Test(arguments: [9, 10, 11]) func limitOfBatches(count: Int) async throws {
        let directory = try TemporaryDirectory()
        var configuration = TestQueue.configuration(directory)
        configuration.maximumBatches = 10
        let test = try TestQueue(configuration)
        for number in 0..<count {
            #expect(test.add(request("s", number, logs: 3)) == (number < 10))
            if number == 5 { try await test.stored() }
        }
        try await test.stored()
        #expect(try await test.numbers() == (0..<min(count, 10)).map { $0 * 3 }, "the newest goes")
        #expect(test.metric(#"batches_dropped_total{reason="buffer_full"}"#) == max(0, count - 10))
        #expect(test.metric(#"logs_dropped_total{reason="buffer_full"}"#) == 3 * max(0, count - 10))
        #expect(test.metric("queue_batches") == min(count, 10))
        // Room is there again when the oldest are done.
        test.queue.acknowledge(through: (await test.read())[4].id)
        try await eventually("room") { test.queue.status.batches < 10 }
        #expect(test.add(request("s", 99)))
        await test.queue.close()
    }

    @Test(arguments: [-1, 0, 1]) func limitOfBytes(off: Int) async throws {
        let directory = try TemporaryDirectory()
        let one = encoded(request("s", 1)).count
        var configuration = TestQueue.configuration(directory)
        configuration.maximumBytes = one * 4 - off
        let test = try TestQueue(configuration)
        for number in 0..<4 { #expect(test.add(request("s", 1)) == (number < 3 || off <= 0)) }
        #expect(test.queue.status.bytes == (off <= 0 ? 4 : 3) * one)
        await test.queue.close()
    }

    @Test func whatHealthSays() async throws {
        let directory = try TemporaryDirectory()
        var configuration = TestQueue.configuration(directory)
        configuration.maximumBatches = 10
        let test = try TestQueue(configuration, wall: 1_000_000)
        for number in 0..<5 { test.add(request("s", number)) }
        try await test.stored()
        #expect(test.queue.health() == nil, "half full is not over half full")
        test.add(request("s", 5))
        #expect(test.queue.health()?.text.contains("over half full") == true)
        try await test.stored()
        test.queue.acknowledge(through: (await test.read())[4].id)
        try await eventually("one left") { test.queue.status.batches == 1 }
        test.wall.value = 1_000_300
        #expect(test.queue.health() == nil)
        test.wall.value = 1_000_301
        #expect(test.queue.health()?.text.contains("has waited 301 s") == true)
        await test.queue.close()
    }

    @Test func aReaderWaitsAndIsCancelled() async throws {
        let directory = try TemporaryDirectory()
        let test = try TestQueue(TestQueue.configuration(directory))
        let queue = test.queue
        async let found = queue.read(after: 0, batches: 10, bytes: 1_000)
        test.add(request("s", 7))
        #expect(await found.count == 1)
        let waiting = Task { await queue.read(after: .max, batches: 10, bytes: 1_000) }
        waiting.cancel()
        #expect(await waiting.value.isEmpty)
        let draining = Task { await queue.drained() }
        let id = await test.read()[0].id
        queue.acknowledge(through: id)
        await draining.value
        #expect(queue.status.batches == 0)
        test.add(request("s", 8))
        let cancelled = Task { await queue.drained() }
        cancelled.cancel()
        await cancelled.value
        await queue.close()
        await queue.close()
        await queue.drained()
    }

    /// Waiting for the present batches does not wait for later ones.
    @Test func whatComesLaterIsNotWaitedFor() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        let before = try TestQueue(configuration)
        for number in 0..<3 { before.add(request("s", number)) }
        try await before.stored()
        await before.queue.close()

        // Three of an earlier run and two of this one have to go; the rest may stay.
        let test = try TestQueue(configuration)
        let queue = test.queue
        try await eventually("the file is open") { queue.status.batches == 3 }
        for number in 3..<5 { test.add(request("s", number)) }
        let mark = queue.mark()
        let draining = Task { await queue.drained(through: mark) }
        for number in 5..<8 { test.add(request("s", number)) }
        try await test.stored()
        let batches = await test.read()
        #expect(batches.count == 8)
        queue.acknowledge(through: batches[3].id)
        try await eventually("four are gone") { queue.status.batches == 4 }
        #expect(!queue.isDrained(through: mark))
        queue.acknowledge(through: batches[4].id)
        await draining.value
        #expect(queue.isDrained(through: mark) && !queue.isDrained(through: queue.mark()))
        #expect(queue.status.batches == 3)
        let rest = Task { await queue.drained() }
        queue.acknowledge(through: batches[7].id)
        await rest.value
        #expect(queue.isDrained(through: queue.mark()))
        await queue.close()
    }

    @Test func aSecondDaemonWaitsForTheFirst() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        let first = try TestQueue(configuration)
        first.add(request("s", 1))
        try await first.stored()
        let second = try TestQueue(configuration)
        second.add(request("s", 2))
        try await eventually("it says why") { second.queue.status.trouble?.contains("locked") == true }
        await first.queue.close()
        try await second.stored()
        #expect(try await second.numbers() == [1, 2], "the older ones first")
        await second.queue.close()
    }

    @Test func schemaIsBroughtUpToDate() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/queue.db"
        var chunk = Chunk(received: 5)
        chunk.firstID = 1
        encoded(request("s", 1)).withUnsafeBytes { chunk.append($0, [0..<$0.count], logs: 1) }
        do { _ = try QueueDatabase(path: path).write(doneThrough: nil, chunk: chunk) }
        let steps = QueueDatabase.migrations + ["ALTER TABLE batches ADD COLUMN note TEXT"]
        do {
            let later = try QueueDatabase(path: path, migrations: steps)
            #expect(try later.totals().batches == 1)
        }
        // An earlier program does not touch it.
        #expect(throws: BoundaryError(.newerSchema, "")) { try QueueDatabase(path: path) }
        // A step that fails leaves the version that was.
        #expect(throws: (any Error).self) {
            try QueueDatabase(path: path, migrations: steps + ["CREATE TABLE batches (x)"])
        }
        #expect(try QueueDatabase(path: path, migrations: steps).totals().batches == 1)
    }

    @Test func aNewerQueueIsSetAsideWhole() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        try createDirectories(parentDirectory(of: configuration.path), mode: 0o700)
        do {
            _ = try QueueDatabase(
                path: configuration.path, migrations: QueueDatabase.migrations + ["CREATE TABLE more (x)"])
        }
        let test = try TestQueue(configuration)
        test.add(request("s", 1))
        try await test.stored()
        #expect(access(configuration.path + ".newer-1", F_OK) == 0)
        #expect(test.queue.health()?.degrades == false)
        await test.queue.close()
    }
}
