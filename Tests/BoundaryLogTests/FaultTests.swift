import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

@testable import BoundaryLog

/// The disk in all its moods: the writer is never held up, the daemon lives, and every batch is
/// either forwarded or counted.
@Suite(.timeLimit(.minutes(3)), .serialized) struct FaultTests {
    private func overwrite(_ path: String, at offset: Int, _ bytes: [UInt8]) throws {
        let descriptor = open(path, O_WRONLY)
        #expect(descriptor >= 0)
        #expect(pwrite(descriptor, bytes, bytes.count, offset) == bytes.count)
        close(descriptor)
    }

    private func size(_ path: String) -> Int {
        var info = stat()
        return stat(path, &info) == 0 ? Int(info.st_size) : -1
    }

    /// Fills a queue and closes it.
    private func filled(_ configuration: DurableQueue.Configuration, _ count: Int, padding: Int) async throws {
        let test = try TestQueue(configuration)
        for number in 0..<count { #expect(test.add(request("s", number, padding: padding))) }
        try await test.stored()
        await test.queue.close()
    }

    @Test func aDamagedHeader() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        try await filled(configuration, 10, padding: 10)
        for round in 1...5 {
            try overwrite(configuration.path, at: 0, [UInt8](repeating: 0xEE, count: 100))
            let test = try TestQueue(configuration)
            #expect(test.add(request("s", round)))
            try await test.stored()
            #expect(try await test.numbers() == [round])
            #expect(test.queue.health()?.text.contains("corrupt-\(round)") == true)
            #expect(test.queue.health()?.degrades == false)
            await test.queue.close()
        }
        let kept = directoryEntries(parentDirectory(of: configuration.path)).filter { $0.contains("corrupt") }
        #expect(Set(kept) == ["queue.db.corrupt-3", "queue.db.corrupt-4", "queue.db.corrupt-5"])
    }

    @Test func noDatabaseAtAll() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        try await filled(configuration, 1, padding: 10)
        try Data("not a database, but long enough to be looked at".utf8).write(
            to: URL(fileURLWithPath: configuration.path))
        let test = try TestQueue(configuration)
        #expect(test.add(request("s", 5)))
        try await test.stored()
        #expect(try await test.numbers() == [5])
        await test.queue.close()
    }

    @Test func damageInTheMiddleIsFoundAtOpening() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        try await filled(configuration, 300, padding: 900)
        let bytes = size(configuration.path)
        try overwrite(configuration.path, at: bytes / 2 & ~4_095, [UInt8](repeating: 0xA5, count: 4_096))
        let test = try TestQueue(configuration)
        #expect(test.add(request("s", 1_000)))
        try await test.stored()
        let numbers = try await test.numbers()
        print("damage in the middle: \(numbers.count - 1) of 300 recovered")
        #expect(numbers.count > 280 && numbers.count < 301, "one page is gone")
        #expect(numbers == numbers.sorted() && numbers.last == 1_000)
        #expect(access(configuration.path + ".corrupt-1", F_OK) == 0)
        await test.queue.close()
    }

    @Test func damageWhileOpenIsCounted() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        let test = try TestQueue(configuration)
        let count = 400
        for number in 0..<count { #expect(test.add(request("s", number, logs: 2, padding: 12_000))) }
        try await test.stored()
        let bytes = size(configuration.path)
        #expect(bytes > 4 << 20, "the first checkpoint was made")
        for offset in stride(from: bytes / 4 & ~4_095, to: bytes / 2, by: 4_096) {
            try overwrite(configuration.path, at: offset, [UInt8](repeating: 0x5A, count: 4_096))
        }
        try await eventually("the damage is found") {
            _ = await test.queue.read(after: 0, batches: 100_000, bytes: .max)
            return test.queue.status.setAside != nil && test.queue.status.trouble == nil
        }
        // Not decoded: a debug build takes a microsecond for each byte of text.
        let left = await test.read().map(\.id)
        #expect(left == left.sorted() && Set(left).count == left.count)
        let lost = test.metric(#"batches_dropped_total{reason="queue_damaged"}"#)
        print("damage while open: \(left.count) of \(count) left, \(lost) counted as lost")
        #expect(lost > 0 && left.count + lost == count && test.queue.status.batches == left.count)
        #expect(test.metric(#"logs_dropped_total{reason="queue_damaged"}"#) == 2 * lost)
        #expect(test.add(request("s", 10_000)))
        try await test.stored()
        await test.queue.close()
    }

    @Test func aRemovedDirectoryIsMadeAnew() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        let test = try TestQueue(configuration)
        for number in 0..<100 { test.add(request("s", number)) }
        try await test.stored()
        try FileManager.default.removeItem(atPath: parentDirectory(of: configuration.path))
        for number in 100..<200 { #expect(test.add(request("s", number))) }
        try await test.stored()
        #expect(size(configuration.path) > 0)
        var info = stat()
        #expect(stat(configuration.path, &info) == 0 && info.st_mode & 0o777 == 0o600)
        await test.queue.close()
        let second = try TestQueue(configuration)
        try await eventually("opened") { second.queue.status.batches == 200 }
        #expect(try await second.numbers() == Array(0..<200))
        await second.queue.close()
    }

    @Test func aDirectoryThatCannotBeMadeAnew() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        let test = try TestQueue(configuration)
        for number in 0..<10 { test.add(request("s", number)) }
        try await test.stored()
        let parent = parentDirectory(of: configuration.path)
        try FileManager.default.removeItem(atPath: parent)
        try Data().write(to: URL(fileURLWithPath: parent))
        for number in 10..<20 { #expect(test.add(request("s", number))) }
        try await eventually("it says so") { test.queue.status.trouble?.contains("was removed") == true }
        // The open file goes on, and what was in it can be forwarded.
        try await eventually("written") { test.queue.status.stagedBatches == 0 }
        #expect(await test.read(exactly: 20).count == 20)
        unlink(parent)
        test.add(request("s", 20))
        try await test.stored()
        #expect(size(configuration.path) > 0)
        #expect(try await test.numbers() == Array(0...20))
        await test.queue.close()
    }

    @Test func noDirectoryFromTheStart() async throws {
        let directory = try TemporaryDirectory()
        var configuration = TestQueue.configuration(directory)
        configuration.maximumStagedBatches = 50
        let parent = parentDirectory(of: configuration.path)
        try Data().write(to: URL(fileURLWithPath: parent))
        let test = try TestQueue(configuration)
        for number in 0..<60 { #expect(test.add(request("s", number, logs: 2)) == (number < 50)) }
        #expect(test.metric(#"batches_dropped_total{reason="buffer_full"}"#) == 10)
        #expect(test.metric(#"logs_dropped_total{reason="buffer_full"}"#) == 20)
        try await eventually("it says why") {
            test.queue.health()?.text.contains("50 batches are in memory only") == true
        }
        // Forwarded from memory nevertheless.
        let batches = await test.read(exactly: 50)
        try #require(batches.count == 50)
        test.queue.acknowledge(through: batches[19].id)
        unlink(parent)
        try await test.stored()
        try await eventually("deleted") { test.queue.status.batches == 30 }
        #expect(try await test.numbers() == (20..<50).map { $0 * 2 })
        await test.queue.close()
    }

    @Test func afterMemoryWasForwardedOlderBatchesStillAre() async throws {
        let directory = try TemporaryDirectory()
        var configuration = TestQueue.configuration(directory)
        try await filled(configuration, 5, padding: 0)
        var holder: QueueDatabase? = try QueueDatabase(path: configuration.path)
        configuration.openGrace = .zero
        let test = try TestQueue(configuration)
        for number in 100..<105 { test.add(request("s", number)) }
        let batches = await test.read(exactly: 5)
        try #require(batches.count == 5, "the older ones cannot be read: out of memory")
        test.queue.acknowledge(through: batches[2].id)
        #expect(holder != nil)
        holder = nil
        try await test.stored()
        try await eventually("acknowledged") { test.queue.status.batches == 7 }
        #expect(try await test.numbers() == [103, 104, 0, 1, 2, 3, 4])
        await test.queue.close()
    }

    @Test func anOpenFileAtItsPageLimit() async throws {
        let directory = try TemporaryDirectory()
        var configuration = TestQueue.configuration(directory)
        configuration.maximumPages = 64
        configuration.maximumStagedBatches = 20
        let test = try TestQueue(configuration)
        try await fillUp(test, room: 20)
        await test.queue.close()
    }

    @Test(.enabled(if: geteuid() == 0, "mounting a small file system needs root")) func aFullDisk() async throws {
        let directory = try TemporaryDirectory()
        guard mount(["-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs", directory.path]) else {
            print("no tmpfs may be mounted here: the full disk is not tested")
            return
        }
        defer { _ = mount(["-l", directory.path], "umount") }
        var configuration = TestQueue.configuration(directory)
        configuration.maximumStagedBatches = 20
        let test = try TestQueue(configuration)
        try await fillUp(test, room: 20)
        await test.queue.close()
    }

    /// Writes until batches are dropped, counts, then forwards all and writes again.
    private func fillUp(_ test: TestQueue, room: Int) async throws {
        var taken: [Int] = []
        var dropped = 0
        for number in 0..<400 {
            if test.add(request("s", number, padding: 3_000)) { taken.append(number) } else { dropped += 1 }
            // At the disk's pace while it works.
            try await eventually("written or full") {
                test.queue.status.stagedBatches == 0 || test.queue.status.trouble != nil
            }
        }
        print("full: \(taken.count) taken, \(dropped) dropped, \(test.queue.status.trouble ?? "")")
        #expect(dropped > 0 && test.metric(#"batches_dropped_total{reason="buffer_full"}"#) == dropped)
        #expect(test.queue.status.trouble?.contains("full") == true)
        #expect(test.queue.status.batches == taken.count)
        let receiver = Receiver()
        let forwarder = test.forwarder()
        let run = Task { try await forwarder.run(report: receiver.report, classify: Receiver.classify) }
        try await eventually("all is forwarded") { receiver.count == taken.count }
        await forwarder.drained()
        run.cancel()
        try await run.value
        #expect(receiver.numbers("s") == taken, "the disk's part first, then memory's, in order")
        #expect(test.add(request("s", 1_000)))
        try await test.stored()
    }

    /// The queue's thread hangs in its clock here as it would in the kernel.
    @Test func aDiskThatDoesNotAnswer() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        let clock = HangingClock()
        let test = try TestQueue(configuration, clock: clock)
        test.add(request("s", 0))
        try await test.stored()
        let cursor = await test.read()[0].id
        clock.hang()
        test.add(request("s", 1))
        async let reading = test.queue.read(after: cursor, batches: 1, bytes: .max)
        async let draining: Void = test.queue.drained()
        try await eventually("the thread hangs") { clock.hanging }
        #expect(test.queue.health() == nil)
        clock.advance(by: BoundaryLimits.slowDisk + .seconds(1))
        #expect(
            test.queue.health()?.text.contains("has not answered the boundary log queue for 11 s; 1 batches") == true)

        async let second = test.queue.close(within: .seconds(3_600))
        #expect(await test.queue.close(within: .milliseconds(20)) == 1)
        #expect(await second == 1 && BoundaryLimits.closeLimit == .seconds(5))
        #expect(await reading.isEmpty)
        await draining
        #expect(!test.add(request("s", 2)), "closed")
        #expect(await test.queue.close() == 1)

        // A disk that comes back before the process is gone gets what there was.
        clock.release()
        let next = try TestQueue(configuration)
        try await eventually("both are there") { next.queue.status.batches == 2 }
        await next.queue.close()
    }

    @Test func whatADiskThatFailsLosesIsSaid() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        try Data().write(to: URL(fileURLWithPath: parentDirectory(of: configuration.path)))
        let test = try TestQueue(configuration)
        for number in 0..<3 { test.add(request("s", number)) }
        #expect(await test.queue.close() == 3)
    }

    @Test(.enabled(if: geteuid() == 0, "mounting a file system read-only needs root"))
    func aReadOnlyFileSystem() async throws {
        let directory = try TemporaryDirectory()
        guard mount(["-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", directory.path]) else {
            print("no tmpfs may be mounted here: the read-only disk is not tested")
            return
        }
        defer { _ = mount(["-l", directory.path], "umount") }
        var configuration = TestQueue.configuration(directory)
        configuration.maximumStagedBatches = 10
        try await filled(configuration, 3, padding: 0)
        #expect(mount(["-o", "remount,ro", directory.path]))
        let test = try TestQueue(configuration)
        for number in 3..<15 { #expect(test.add(request("s", number)) == (number < 13)) }
        try await eventually("it says why") { test.queue.status.trouble != nil }
        print("read-only: \(test.queue.status.trouble ?? "")")
        #expect(test.metric(#"batches_dropped_total{reason="buffer_full"}"#) == 2)
        #expect(mount(["-o", "remount,rw", directory.path]))
        try await test.stored()
        #expect(try await test.numbers() == Array(0..<13))
        await test.queue.close()
    }

    private func mount(_ arguments: [String], _ command: String = "mount") -> Bool {
        (try? CommandResult.of([command] + arguments))?.code == 0
    }
}

/// The machine's clock, in which the queue's thread can be made to hang. For all others it stands still
/// meanwhile, so that no slow machine adds to what a test advances it by.
private struct HangingClock: Clock {
    private struct State {
        var hangs = false
        var hanging = false
        var stopped: ContinuousClock.Instant?
        var offset = Duration.zero
    }
    private final class Gate: Sendable {
        let state = Mutex(State())
        let (reading, writing): (CInt, CInt)
        init() {
            var pair: [CInt] = [-1, -1]
            #expect(pipe(&pair) == 0)
            (reading, writing) = (pair[0], pair[1])
        }
        deinit { close(reading) }
    }
    private let gate = Gate()

    var now: ContinuousClock.Instant {
        var name = [UInt8](repeating: 0, count: 16)
        let descriptor = open("/proc/thread-self/comm", O_RDONLY)
        defer { close(descriptor) }
        let count = max(0, read(descriptor, &name, name.count))
        let isQueue = name.prefix(count).elementsEqual("boundary-queue\n".utf8)
        let hangs = gate.state.withLock { state in
            if isQueue, state.hangs { state.hanging = true }
            return isQueue && state.hangs
        }
        var byte: UInt8 = 0
        // Until the other end is closed.
        if hangs { _ = read(gate.reading, &byte, 1) }
        return gate.state.withLock { ($0.stopped ?? ContinuousClock.now) + $0.offset }
    }
    var minimumResolution: Duration { .nanoseconds(1) }
    func sleep(until deadline: ContinuousClock.Instant, tolerance: Duration?) async throws {
        try await ContinuousClock().sleep(until: deadline, tolerance: tolerance)
    }

    var hanging: Bool { gate.state.withLock { $0.hanging } }
    func hang() {
        gate.state.withLock { state in
            state.hangs = true
            state.stopped = ContinuousClock.now
        }
    }
    func advance(by duration: Duration) { gate.state.withLock { $0.offset += duration } }
    func release() {
        gate.state.withLock { state in
            state.hangs = false
            state.stopped = nil
        }
        close(gate.writing)
    }
}
