import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import BoundaryLog

/// Order and completeness where memory and the file both hold batches, and where the file is not what
/// it should be.
@Suite(.timeLimit(.minutes(5))) struct RecoveryTests {
    @Test func memoryIsServedInOrderAcrossChunks() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        let parent = parentDirectory(of: configuration.path)
        try Data().write(to: URL(fileURLWithPath: parent))
        let test = try TestQueue(configuration)
        let count = 1_200
        for number in 0..<count { #expect(test.add(request("s", number, padding: 2_900))) }
        try await eventually("it fails") { test.queue.status.trouble != nil }
        #expect(test.queue.status.bytes > 3 * BoundaryLimits.chunkBytes)
        var (after, found): (Int64, [QueuedBatch]) = (0, [])
        while found.count < count {
            let more = await test.read(after: after)
            found += more
            after = more.last?.id ?? .max
            // Deleting from the front must not disturb what comes next; the last ten stay.
            if found.count % 3 == 0, found.count <= count - 10 { test.queue.acknowledge(through: more.first?.id ?? 0) }
        }
        let first = try #require(found.first?.id)
        #expect(found.map(\.id) == (0..<count).map { first + Int64($0) })
        for number in stride(from: 0, to: count, by: 97) {
            #expect(found[number].payload == encoded(request("s", number, padding: 2_900)))
        }
        // What is not done is written when the disk is back.
        test.queue.acknowledge(through: found[count - 11].id)
        unlink(parent)
        try await test.stored()
        try await eventually("what is done is deleted") { test.queue.status.batches == 10 }
        #expect(try await test.numbers() == Array(count - 10..<count))
        await test.queue.close()
    }

    /// Writes fail with EFBIG beyond a limit of the process, so it is one of its own.
    @Test func afterAnIOErrorTheDisksPartGoesFirst() async throws {
        await #expect(processExitsWith: .success) {
            let directory = try TemporaryDirectory()
            var configuration = TestQueue.configuration(directory)
            // Long enough for a reader to be looked after between two tries.
            configuration.retry = (.seconds(1), .seconds(1))
            let test = try TestQueue(configuration)
            for number in 0..<10 { #expect(test.add(request("s", number, padding: 4_000))) }
            try await test.stored()
            signal(SIGXFSZ, SIG_IGN)
            var limit = rlimit()
            getrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
            limit.rlim_cur = 4_096
            try #require(setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit) == 0)
            for number in 10..<20 { #expect(test.add(request("s", number))) }
            try await eventually("it fails") { test.queue.status.trouble?.contains("I/O error") == true }
            let last = Int64(test.queue.status.batches)
            #expect(last == 20)
            let all = Task { await test.read() }
            limit.rlim_cur = limit.rlim_max
            try #require(setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit) == 0)
            let found = await all.value
            #expect(found.first?.payload == encoded(request("s", 0, padding: 4_000)), "the older ones first")
            try await test.stored()
            #expect(try await test.numbers() == Array(0..<20))
            await test.queue.close()
        }
    }

    /// A reader that has all of the disk's part gets memory's while the disk fails.
    @Test func memoryFollowsTheDisksPart() async throws {
        await #expect(processExitsWith: .success) {
            let directory = try TemporaryDirectory()
            let test = try TestQueue(TestQueue.configuration(directory))
            for number in 0..<10 { #expect(test.add(request("s", number, padding: 4_000))) }
            try await test.stored()
            let old = await test.read()
            #expect(old.count == 10)
            signal(SIGXFSZ, SIG_IGN)
            var limit = rlimit()
            getrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
            limit.rlim_cur = 4_096
            try #require(setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit) == 0)
            for number in 10..<20 { #expect(test.add(request("s", number))) }
            var new: [QueuedBatch] = []
            while new.count < 10 { new += await test.read(after: new.last?.id ?? old.last?.id ?? 0) }
            #expect(new.map(\.payload) == (10..<20).map { encoded(request("s", $0)) })
            test.queue.acknowledge(through: new[4].id)
            limit.rlim_cur = limit.rlim_max
            try #require(setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit) == 0)
            try await eventually("five are left") { test.queue.status.batches == 5 }
            try await test.stored()
            #expect(try await test.numbers() == Array(15..<20))
            await test.queue.close()
        }
    }

    @Test func aStateDirectoryBehindALink() async throws {
        let directory = try TemporaryDirectory()
        try FileManager.default.createDirectory(atPath: "\(directory.path)/real", withIntermediateDirectories: false)
        try #require(symlink("real", "\(directory.path)/link") == 0)
        let configuration = DurableQueue.Configuration(directory: "\(directory.path)/link")
        let test = try TestQueue(configuration)
        #expect(test.add(request("s", 1)))
        try await test.stored()
        #expect(access("\(directory.path)/real/boundary-logs/queue.db", F_OK) == 0)
        await test.queue.close()
        // The file itself must be no link: the user who put it there would choose which file is written.
        let target = "\(directory.path)/target"
        try #require(rename(configuration.path, target) == 0 && symlink(target, configuration.path) == 0)
        let before = try Data(contentsOf: URL(fileURLWithPath: target))
        let second = try TestQueue(configuration)
        second.add(request("s", 2))
        try await eventually("it is refused") { second.queue.status.trouble != nil }
        #expect(try Data(contentsOf: URL(fileURLWithPath: target)) == before)
        await second.queue.close()
    }

    /// Nothing of it is opened, waited for or changed, and /healthz says what is in the way; batches go on from
    /// memory, and to the disk once the place is free.
    @Test(arguments: ["", "-wal", "-shm", "-journal"], ["link", "pipe", "foreign file"])
    func whatIsNotOursInPlaceOfAFileOfTheQueue(suffix: String, obstacle: String) async throws {
        if obstacle == "foreign file", geteuid() != 0 { return }
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        let (place, victim) = (configuration.path + suffix, "\(directory.path)/victim")
        try createDirectories(parentDirectory(of: place), mode: 0o700)
        try Data("mine".utf8).write(to: URL(fileURLWithPath: victim))
        switch obstacle {
        case "link": symlink(victim, place)
        case "pipe": mkfifo(place, 0o600)
        default:
            try Data("theirs".utf8).write(to: URL(fileURLWithPath: place))
            chown(place, 65_534, 65_534)
        }
        let test = try TestQueue(configuration)
        #expect(test.add(request("s", 1)))
        try await eventually("it says why") { test.queue.health()?.text.contains(place) == true }
        #expect(test.queue.health()?.degrades == true)
        #expect(await test.read(exactly: 1).count == 1)
        #expect(readTextFile(victim) == "mine")
        if obstacle == "foreign file" { #expect(readTextFile(place) == "theirs") }
        unlink(place)
        try await test.stored()
        await test.queue.close()
    }

    @Test func aForeignFileInPlaceOfTheQueueIsSpared() async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        let test = try TestQueue(configuration)
        for number in 0..<10 { test.add(request("s", number)) }
        try await test.stored()
        let foreign = Data("another file".utf8)
        unlink(configuration.path)
        try foreign.write(to: URL(fileURLWithPath: configuration.path))
        for number in 10..<20 { #expect(test.add(request("s", number))) }
        try await eventually("it says so") {
            test.queue.status.trouble?.contains("another file is in its place") == true
        }
        // The open file goes on.
        try await eventually("written") { test.queue.status.stagedBatches == 0 }
        #expect(try Data(contentsOf: URL(fileURLWithPath: configuration.path)) == foreign)
        #expect(await test.read(exactly: 20).count == 20)
        unlink(configuration.path)
        test.add(request("s", 20))
        try await test.stored()
        await test.queue.close()
        let next = try TestQueue(configuration)
        try await eventually("opened") { next.queue.status.batches == 21 }
        #expect(try await next.numbers() == Array(0...20))
        await next.queue.close()
    }

    @Test(arguments: [
        (BoundaryLimits.largestID - 1, true), (BoundaryLimits.largestID, false), (.max, false), (0, false), (-7, false),
    ])
    func impossibleNumbers(id: Int64, isPossible: Bool) async throws {
        let directory = try TemporaryDirectory()
        let configuration = TestQueue.configuration(directory)
        let first = try TestQueue(configuration)
        for number in 0..<5 { first.add(request("s", number)) }
        try await first.stored()
        await first.queue.close()
        let row = id > 0 ? "max" : "min"
        do {
            try SQLite(path: configuration.path).execute(
                "UPDATE batches SET id = \(id) WHERE id = (SELECT \(row)(id) FROM batches)")
        }
        let second = try TestQueue(configuration)
        second.add(request("s", 5))
        try await second.stored()
        #expect((access(configuration.path + ".corrupt-1", F_OK) != 0) == isPossible)
        #expect(
            try await second.numbers()
                == (isPossible ? [0, 1, 2, 3, 4, 5] : id > 0 ? [0, 1, 2, 3, 5] : [1, 2, 3, 4, 5]))
        await second.queue.close()
    }

    /// A reader that comes while the thread is busy does not signal it, and must be seen nevertheless.
    @Test func aReaderIsNeverForgotten() async throws {
        let directory = try TemporaryDirectory()
        let test = try TestQueue(TestQueue.configuration(directory))
        for number in 0..<300 { test.add(request("s", number)) }
        try await test.stored()
        var last: Int64 = 0
        var slow = 0
        for _ in 0..<300 {
            let begin = ContinuousClock.now
            let found = await test.read(after: last, batches: 1)
            #expect(found.count == 1)
            last = found.last?.id ?? last
            if ContinuousClock.now - begin > .seconds(4) { slow += 1 }
        }
        // One that is forgotten waits 5 s. A machine that stands still for that long does so a few times at most.
        #expect(slow < 10)
        await test.queue.close()
    }

    /// A session that waits long for its next try is no reason to wait with another one's.
    @Test func aLongWaitHoldsNoOtherSessionUp() async throws {
        let directory = try TemporaryDirectory()
        let test = try TestQueue(TestQueue.configuration(directory))
        let (waits, tries) = (Mutex2(0), Mutex2<[String: Int]>([:]))
        let forwarder = BoundaryForwarder(
            queue: test.queue, clock: test.clock, metrics: test.metrics, logger: test.logger,
            backoff: { _ in
                let count = waits.update {
                    $0 += 1; return $0
                }
                return count == 1 ? .seconds(3_600) : .milliseconds(1)
            })
        let receiver = Receiver()
        receiver.state.update { state in
            state.answer = { request in
                let session = request.sessionID
                let count = tries.update {
                    $0[session, default: 0] += 1; return $0[session] ?? 0
                }
                return session == "ill" || count < 3 ? .init(what: "transient") : nil
            }
        }
        let run = Task { try await forwarder.run(report: receiver.report, classify: Receiver.classify) }
        test.add(request("ill", 0))
        try await eventually("the first waits an hour") { waits.value == 1 }
        test.add(request("well", 7))
        try await eventually("the other does not") { receiver.numbers("well") == [7] }
        run.cancel()
        try await run.value
        await test.queue.close()
    }
}
