import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import NIOCore
import NIOPosix
import Testing

@testable import AgentSocket

/// A state directory over several daemons' lives.
private final class Home: Sendable {
    let directory: TemporaryDirectory
    let log = LogLines()
    let clock = ManualClock()
    let pool: BlockingPool
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

    init(pool: BlockingPool = BlockingPool(threads: 2)) throws {
        directory = try TemporaryDirectory()
        self.pool = pool
    }

    var path: String { "\(directory.path)/units" }

    /// The next daemon's.
    func store(machine: String = "boot", path: String? = nil, events: Int = AgentSocketLimits.events) -> UnitStore {
        let journal = UnitJournal(
            path: path ?? self.path, machine: machine, pool: pool, executor: EventLoopTaskExecutor(group.next()),
            clock: AgentClock(clock), logger: log.logger)
        return UnitStore(journal: journal, eventCapacity: events)
    }

    func end() async throws {
        await pool.shutdown()
        try await group.shutdownGracefully()
    }

    static func with(_ body: (Home) async throws -> Void) async throws {
        let home = try Home()
        try await body(home)
        try await home.end()
    }
}

extension UnitStore {
    /// Everything that a client can see of it.
    fileprivate var face: [String] {
        var lines = reports().map { "\($0)" }
        var number = 0
        while case .events(let batch, let next) = events(from: number), !batch.isEmpty {
            lines += batch.map { "\($0)" }
            number = next
        }
        return lines
    }
}

@Suite(.timeLimit(.minutes(5))) struct UnitJournalTests {
    @Test func unitsOutliveTheDaemon() async throws {
        try await Home.with { home in
            let first = home.store()
            try first.register("app")
            try first.want("app", "git")
            try first.want("app", "db é\u{0301}")
            try first.register("git")
            try first.start("git")
            try first.register("node")
            try first.complete("node")
            await first.kept()
            #expect(first.problem == nil)

            let second = home.store()
            #expect(second.face == first.face && second.count == 3)
            #expect(throws: UnitError.notReady) { try second.start("app") }
            try second.complete("git")
            try second.register("db é\u{0301}")
            try second.complete("db é\u{0301}")
            await second.kept()

            let third = home.store()
            #expect(third.face == second.face && third.isReady("app"))
            #expect(third.face.count > second.count + 5, "the timeline is among it")
            let file = try #require(try FileManager.default.attributesOfItem(atPath: home.path)[.posixPermissions])
            #expect(file as? Int == 0o600)
        }
    }

    /// The start-up scripts run again in the next daemon.
    @Test func aStateOfAnEarlierDaemonMayBeSetOnceMore() async throws {
        try await Home.with { home in
            let first = home.store()
            for unit in ["a", "b"] { try first.register(unit) }
            try first.start("a")
            try first.complete("b")
            #expect(throws: UnitError.sameStatus) { try first.start("a") }
            await first.kept()
            let second = home.store()
            try second.start("a")
            try second.complete("b")
            #expect(throws: UnitError.sameStatus) { try second.start("a") }
            #expect(throws: UnitError.sameStatus) { try second.complete("b") }
        }
    }

    @Test func anotherStartOfTheMachineBeginsAnew() async throws {
        try await Home.with { home in
            let first = home.store(machine: "one")
            try first.register("a")
            await first.kept()
            #expect(home.store(machine: "one").count == 1)
            let second = home.store(machine: "two")
            #expect(second.count == 0)
            try second.register("b")
            await second.kept()
            #expect(home.store(machine: "two").list().map(\.unit) == ["b"])
            #expect(home.log.lines.filter { $0.contains("damaged") }.isEmpty)
        }
    }

    @Test func whatIsForgottenStaysForgotten() async throws {
        try await Home.with { home in
            let first = home.store()
            try first.register("a")
            await first.kept()
            first.forgetAll()
            await first.kept()
            #expect(first.count == 0 && home.store().count == 0)
            try first.register("b")
            await first.kept()
            #expect(home.store().list().map(\.unit) == ["b"])
        }
    }

    /// Any changes in any order, over some restarts.
    @Test func whateverHappensIsKept() async throws {
        var random = SeededGenerator("whateverHappensIsKept")
        for _ in 0..<20 {
            try await Home.with { home in
                var store = home.store(events: 50)
                for _ in 0..<200 {
                    let (a, b) = (
                        "u\(Int.random(in: 0..<12, using: &random))", "u\(Int.random(in: 0..<12, using: &random))"
                    )
                    switch Int.random(in: 0..<20, using: &random) {
                    case 0..<5: try? store.register(a)
                    case 5..<11: try? store.want(a, b)
                    case 11..<15: try? store.start(a)
                    case 15..<19: try? store.complete(a)
                    default:
                        await store.kept()
                        let next = home.store(events: 50)
                        #expect(next.face == store.face)
                        store = next
                    }
                }
            }
        }
    }

    /// A daemon may die in the middle of a write, and a disk may spoil a byte: what is read is what was written up to
    /// there, and nothing crashes.
    @Test func damageCostsWhatIsBehindIt() async throws {
        var random = SeededGenerator("damageCostsWhatIsBehindIt")
        let home = try Home()
        let store = home.store()
        for number in 0..<20 {
            try store.register("unit \(number)")
            if number > 0 { try store.want("unit \(number)", "unit \(number - 1)") }
            try store.start("unit 0")
            try store.complete("unit 0")
        }
        await store.kept()
        let whole = try #require(readFile(home.path)).map { $0 }
        let header = UnitHistory.header("boot").count
        func units(_ bytes: [UInt8]) -> (names: [String], damaged: Int) {
            let reading = UnitHistory.read(bytes, machine: "boot")
            return (reading.history.graph.list().map(\.unit), reading.damagedBytes)
        }
        let all = units(whole)
        #expect(all.names.count == 20 && all.damaged == 0)
        for end in header...whole.count {
            let cut = units(Array(whole[..<end]))
            #expect(cut.names.allSatisfy(all.names.contains), "cut at \(end)")
        }
        for _ in 0..<2_000 {
            var bytes = whole
            let place = Int.random(in: header..<bytes.count, using: &random)
            bytes[place] ^= UInt8.random(in: 1...255, using: &random)
            let spoiled = units(bytes)
            #expect(spoiled.damaged > 0 && spoiled.names.allSatisfy(all.names.contains), "spoiled at \(place)")
        }
        try await home.end()
    }

    @Test func aDamagedFileIsSetAside() async throws {
        try await Home.with { home in
            let first = home.store()
            try first.register("a")
            await first.kept()
            try first.register("b")
            await first.kept()
            let whole = try #require(readFile(home.path)).map { $0 }
            try OwnFile.replace(home.path, with: Array(whole.dropLast(3)))
            let second = home.store()
            #expect(second.list().map(\.unit) == ["a"])
            #expect(home.log.count(.warning, "damaged") == 1)
            #expect(readFile("\(home.path).damaged")?.count == whole.count - 3)
            await second.kept()
            #expect(home.store().list().map(\.unit) == ["a"], "it is written again at once")
            try second.register("c")
            await second.kept()
            #expect(home.store().list().map(\.unit) == ["a", "c"])
        }
    }

    /// What no daemon writes, with right checksums.
    @Test(arguments: ["unknown unit", "same name", "cycle", "self", "long name", "empty name", "unregistered wants"])
    func recordsThatMakeNoSense(_ kind: String) async throws {
        let names: [UnitRecord] = [.name("a"), .name("b"), .state(0, .pending), .state(1, .started)]
        let hostile: [UnitRecord] =
            switch kind {
            case "unknown unit": names + [.event(7, .started, .init(seconds: 0, nanoseconds: 0))]
            case "same name": names + [.name("a")]
            case "cycle": names + [.wants(0, 1), .wants(1, 0)]
            case "self": names + [.wants(0, 0)]
            case "long name": names + [.name(String(repeating: "x", count: AgentSocketLimits.nameBytes + 1))]
            case "empty name": names + [.name("")]
            default: [.name("c"), .name("d"), .wants(0, 1)]
            }
        try await Home.with { home in
            var bytes = ByteBuffer(bytes: UnitHistory.header("boot"))
            for record in hostile { record.write(into: &bytes) }
            try OwnFile.replace(home.path, with: Array(bytes.readableBytesView))
            let store = home.store()
            #expect(home.log.count(.warning, "damaged") == 1)
            #expect(store.count == (["cycle", "unregistered wants"].contains(kind) ? 0 : 2))
            try store.register("new")
            await store.kept()
            #expect(home.store().face == store.face)
        }
    }

    @Test func recordsRoundTrip() {
        let records: [UnitRecord] = [
            .name(""), .name("é\n\u{0}"), .state(0, .pending), .state(Int(UInt32.max), .completed), .wants(1, 2),
            .event(3, .started, .init(seconds: .min, nanoseconds: 0)),
            .event(3, .completed, .init(seconds: .max, nanoseconds: 999_999_999)),
        ]
        var bytes = ByteBuffer()
        for record in records { record.write(into: &bytes) }
        for record in records { #expect(UnitRecord.read(from: &bytes) == record) }
        #expect(bytes.readableBytes == 0 && UnitRecord.read(from: &bytes) == nil)
        var odd = ByteBuffer()
        UnitRecord.event(0, .started, .init(seconds: 0, nanoseconds: 1_000_000_000)).write(into: &odd)
        #expect(UnitRecord.read(from: &odd) == nil)
    }

    @Test(arguments: ["a link", "a pipe", "a directory", "another user's file"])
    func whatIsNotOursIsLeftAlone(_ kind: String) async throws {
        if kind == "another user's file", geteuid() != 0 { return }
        try await Home.with { home in
            let elsewhere = "\(home.directory.path)/elsewhere"
            try OwnFile.replace(elsewhere, with: Array("precious".utf8))
            switch kind {
            case "a link": symlink(elsewhere, home.path)
            case "a pipe": mkfifo(home.path, 0o600)
            case "a directory": mkdir(home.path, 0o700)
            default:
                try OwnFile.replace(home.path, with: Array("planted".utf8))
                chown(home.path, 65_534, 65_534)
            }
            let store = home.store()
            #expect(store.problem?.contains(home.path) == true)
            try store.register("a")
            await store.kept()
            #expect(store.count == 1 && readTextFile(elsewhere) == "precious")
            if kind == "another user's file" { #expect(readTextFile(home.path) == "planted") }
            #expect(home.log.count(.warning, "would not outlive") == 1)
            // Once it is out of the way, units are kept after all.
            try FileManager.default.removeItem(atPath: home.path)
            try await eventually("it is tried again") {
                home.clock.advance(by: .seconds(AgentSocketLimits.journalRetrySeconds))
                return store.problem == nil
            }
            #expect(home.store().face == store.face)
        }
    }

    @Test func aDiskThatRefusesCostsNothingElse() async throws {
        try await Home.with { home in
            let path = "\(home.directory.path)/gone/units"
            let store = home.store(path: path)
            try store.register("a")
            await store.kept()
            #expect(store.problem?.contains("No such file") == true)
            for number in 0..<100 {
                try store.register("b\(number)")
                // At once: nothing waits for a disk that refuses.
                await store.kept()
            }
            mkdir("\(home.directory.path)/gone", 0o700)
            try await eventually("it is tried again") {
                home.clock.advance(by: .seconds(AgentSocketLimits.journalRetrySeconds))
                return store.problem == nil
            }
            #expect(home.store(path: path).face == store.face && store.count == 101)
        }
    }

    @Test(.enabled(if: geteuid() == 0, "mounting a small file system needs root"))
    func aFullDisk() async throws {
        try await Home.with { home in
            let arguments = ["-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", home.directory.path]
            let environment = ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin"]
            guard try RunningProgram(["mount"] + arguments, environment: environment).end().code == 0 else {
                print("no tmpfs may be mounted here: the full disk is not tested")
                return
            }
            defer { umount2(home.directory.path, CInt(MNT_DETACH)) }
            let filler = "\(home.directory.path)/filler"
            try OwnFile.replace(filler, with: [UInt8](repeating: 1, count: 24 << 10))
            let store = home.store()
            var written = 0
            while store.problem == nil, written < 100 {
                try store.register("\(written) " + String(repeating: "x", count: 4_000))
                await store.kept()
                written += 1
            }
            #expect(store.problem?.contains("No space left") == true)
            // All that fits is still there, and the rest follows once there is room.
            let reading = UnitHistory.read(Array(try #require(readFile(home.path))), machine: "boot")
            #expect(reading.history.graph.count > 3 && reading.history.graph.count < written)
            unlink(filler)
            // Anew, since the new file needs room beside the old one.
            store.forgetAll()
            try store.register("small")
            try await eventually("it is tried again") {
                home.clock.advance(by: .seconds(AgentSocketLimits.journalRetrySeconds))
                return store.problem == nil
            }
            #expect(home.store().face == store.face)
        }
    }

    /// A disk that doesn't answer holds up one answer for a while, and the others not at all.
    @Test func aDiskThatDoesNotAnswer() async throws {
        let home = try Home(pool: BlockingPool(threads: 1))
        let store = home.store()
        let gate = DispatchSemaphore(value: 0)
        home.pool.submit { _ in gate.wait() }
        try store.register("a")
        let answer = Task { await store.kept() }
        await home.clock.sleepers(1)
        home.clock.advance(by: .milliseconds(AgentSocketLimits.journalPatienceMilliseconds))
        await answer.value
        for number in 0..<100 {
            try store.register("b\(number)")
            await store.kept()
        }
        gate.signal()
        try await eventually("all is written") { home.store().count == 101 }
        try await home.end()
    }

    @Test func theFileStaysSmall() async throws {
        try await Home.with { home in
            let store = home.store(events: 1_000)
            try store.register("u")
            for number in 0..<30_000 {
                try store.start("u")
                try store.complete("u")
                if number % 1_000 == 0 { await store.kept() }
            }
            await store.kept()
            let size = try #require(readFile(home.path)).count
            #expect(size <= AgentSocketLimits.journalQuietBytes)
            #expect(home.store(events: 1_000).face == store.face)
        }
    }

    /// At the limits of the graph the journal is within its own.
    @Test func theLargestGraphFits() async throws {
        try await Home.with { home in
            let store = home.store()
            let padding = String(repeating: "x", count: AgentSocketLimits.allNamesBytes / AgentSocketLimits.units - 6)
            for number in 0..<AgentSocketLimits.units { try store.register("\(number) \(padding)") }
            for number in 0..<AgentSocketLimits.edges {
                try store.want("\(1_000 + number / 12) \(padding)", "\(number % 1_000) \(padding)")
            }
            for number in 0..<AgentSocketLimits.events / 2 {
                try store.complete("\(number) \(padding)")
            }
            await store.kept()
            let size = try #require(readFile(home.path)).count
            print("the largest graph: \(size) bytes")
            #expect(size < AgentSocketLimits.journalBytes / 2)
            let read = UnitHistory.read(Array(try #require(readFile(home.path))), machine: "boot")
            #expect(read.damagedBytes == 0 && read.history.graph.edgeCount == AgentSocketLimits.edges)
            #expect(read.history.graph.list() == store.list())
            #expect(read.history.events.all.count == AgentSocketLimits.events)
            // Too large a file is set aside.
            truncate(home.path, off_t(AgentSocketLimits.journalBytes + 1))
            #expect(home.store().count == 0)
            #expect(home.log.count(.warning, "damaged") == 1)
        }
    }
}
