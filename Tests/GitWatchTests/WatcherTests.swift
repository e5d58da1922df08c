import AgentCore
import AgentProc
import AgentTestSupport
import Foundation
import Logging
import NIOCore
import Synchronization
import Testing

@testable import GitWatch

/// Starts workers and reaps those at the end that the reactor did not see die: while any child of the process is
/// a zombie, exit tests are not told of theirs.
private final class WorkersOfATest: WorkerLauncher {
    private let inner: any WorkerLauncher
    private let workers = Mutex<[(pid: pid_t, isReaped: Watched<Bool>)]>([])

    init(_ inner: any WorkerLauncher) { self.inner = inner }

    func startWorker(
        _ command: Command, onExit: @escaping @Sendable (CommandExit) -> Void
    ) throws -> StartedWorker {
        let isReaped = Watched(false)
        let worker = try inner.startWorker(command) { exit in
            isReaped.update { $0 = true }
            onExit(exit)
        }
        workers.withLock { $0.append((worker.pid, isReaped)) }
        return worker
    }

    /// After the reactor's end. One that hangs on a file system is reaped when that lets it go.
    func reapTheRest() {
        for worker in workers.withLock({ $0 }) where !worker.isReaped.value {
            Thread.detachNewThread { waitpid(worker.pid, nil, 0) }
        }
    }
}

/// A watcher with a real worker, and one chat.
final class WatcherFixture: Sendable {
    let reactor: Reactor
    private let workers: WorkersOfATest
    let watcher: GitWatcher
    let metrics = MetricsRegistry()
    let health = HealthRegistry()
    let chat = ChatIdentity(id: UUID())

    init(
        environment: [String: String], budget: Int? = nil, idleTime: Duration = .seconds(60),
        times: AnswerTimes = AnswerTimes(), firstMessageTime: Duration = .seconds(60),
        pollInterval: Duration = RepositoryMonitor.pollInterval
    ) throws {
        reactor = try Reactor()
        _ = reactor.start()
        var configuration = GitWatcher.Configuration(
            executable: DaemonProcess.binary, environment: environment, watchBudget: WatchBudget(limit: budget),
            idleTime: idleTime)
        configuration.answerTimes = times
        configuration.firstMessageTime = firstMessageTime
        configuration.pollInterval = pollInterval
        workers = WorkersOfATest(WorkerProcesses(launcher: try Launcher(), reactor: reactor))
        watcher = GitWatcher(
            configuration: configuration, launcher: workers, metrics: metrics, health: health,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    func open(heartbeat: Bool = false, chat: ChatIdentity? = nil) throws -> Reader {
        let session = WatchSession(chat: (chat ?? self.chat).id, heartbeat: heartbeat) { 0 }
        try #require(watcher.attach(session) == nil)
        return Reader(session)
    }

    func stop() async {
        await watcher.shutdown()
        await reactor.stop()
        workers.reapTheRest()
    }

    var report: GitWatcher.Report { watcher.report.withLock { $0 } }

    /// One connection's messages, kept by repository.
    final class Reader: Sendable {
        struct Message: Decodable {
            struct Repository: Decodable {
                var repo_root: String
                var branch: String
                var remote_origin: String?
                var unified_diff: String?
                var removed: Bool?
            }
            var type: String
            var scanned_at: String?
            var message: String?
            var repositories: [Repository]?
        }
        private struct State {
            var latest: [String: Message.Repository] = [:]
            var messages: [Message] = []
        }
        let session: WatchSession
        private let state = Mutex(State())

        init(_ session: WatchSession) {
            self.session = session
            Task { [self] in
                while let messages = await session.next() {
                    for text in messages.map(\.text) {
                        guard let message = try? JSONDecoder().decode(Message.self, from: Data(text.utf8)) else {
                            continue
                        }
                        state.withLock { state in
                            state.messages.append(message)
                            for one in message.repositories ?? [] { state.latest[one.repo_root] = one }
                        }
                    }
                }
            }
        }

        var messages: [Message] { state.withLock { $0.messages } }
        func latest(_ root: String) -> Message.Repository? { state.withLock { $0.latest[root] } }
        func diff(_ root: String) -> String? { latest(root).map { $0.unified_diff ?? "" } }
    }
}

@Suite struct WatcherTests {
    private func started(
        _ script: String = "mk r; lines 1 20 > a; ci; git remote add origin https://me:secret@example.com/x.git",
        budget: Int? = nil, pollInterval: Duration = RepositoryMonitor.pollInterval
    ) async throws -> (Scene, WatcherFixture, WatcherFixture.Reader) {
        let scene = try Scene(script)
        let fixture = try WatcherFixture(
            environment: scene.environment, budget: budget, pollInterval: pollInterval)
        fixture.watcher.add(paths: ["\(scene.root)/a"], for: fixture.chat)
        let reader = try fixture.open()
        try await eventually("the first snapshot") { reader.latest(scene.root) != nil }
        return (scene, fixture, reader)
    }

    /// Watches are set after the first scan, and everything is looked at once more then.
    private func settled(_ fixture: WatcherFixture) async throws {
        try await eventually("watches") { fixture.report.watches > 0 || !fixture.report.polled.isEmpty }
        if !fixture.report.polled.isEmpty { return }
        try await eventually("the scan after them") { fixture.report.scans >= 2 }
    }

    @Test func showsEdits() async throws {
        let (scene, fixture, reader) = try await started()
        let first = try #require(reader.latest(scene.root))
        #expect(
            first.branch == "main" && first.unified_diff == nil && first.remote_origin == "https://example.com/x.git")
        try await settled(fixture)
        // How soon is up to the machine as well; RepositoryMonitorTests has the rule, on a clock of its own.
        var times: [Duration] = []
        for number in 0..<4 {
            let start = ContinuousClock.now
            try scene.run("echo edit\(number) >> a; mkdir -p d\(number); echo x > d\(number)/f")
            try await eventually("edit \(number)") { reader.diff(scene.root)?.contains("+edit\(number)\n") == true }
            times.append(.now - start)
            try await eventually("directory \(number)") {
                reader.diff(scene.root)?.contains("b/d\(number)/f\n") == true
            }
        }
        print("edit → message, ms: \(times.map { $0 / .milliseconds(1) })")
        // A directory that appeared is watched, too.
        try scene.run("echo more >> d3/f")
        try await eventually("an edit in a new directory") { reader.diff(scene.root)?.contains("+more\n") == true }
        #expect(reader.diff(scene.root) == String(decoding: try scene.oracle(), as: UTF8.self))
        try scene.run("git add -A; git commit -qm x")
        try await eventually("a commit") { reader.diff(scene.root) == "" }
        try scene.run("git checkout -q -b other")
        try await eventually("a branch") { reader.latest(scene.root)?.branch == "other" }
        await fixture.stop()
    }

    @Test func aBurstGivesTheLastState() async throws {
        let (scene, fixture, reader) = try await started()
        try await settled(fixture)
        let before = fixture.report.scans
        let start = ContinuousClock.now
        try scene.run("for i in $(seq 1 1000); do echo $i > a; echo $i > n$((i % 7)); done; echo last > a")
        try await eventually("the last state") {
            reader.diff(scene.root) == String(decoding: try scene.oracle(), as: UTF8.self)
        }
        let scans = fixture.report.scans - before
        let seconds = Int((ContinuousClock.now - start).components.seconds)
        #expect(scans <= seconds + 2)
        await fixture.stop()
    }

    @Test func tenConnectionsCostOneScan() async throws {
        let (scene, fixture, reader) = try await started()
        try await settled(fixture)
        // A scan from which the polls count, so that one comes between only if this takes so long.
        let (settledAt, began) = (fixture.report.scans, ContinuousClock.now)
        fixture.watcher.refresh(reader.session)
        try await eventually("a scan") { fixture.report.scans > settledAt }
        let before = fixture.report.scans
        func polls() -> Int { Int((ContinuousClock.now - began) / RepositoryMonitor.pollInterval) }
        let others = try (0..<9).map { _ in try fixture.open() }
        try await eventually("all are served") { others.allSatisfy { $0.latest(scene.root) != nil } }
        #expect(fixture.report.scans - before <= polls())
        // In one event: between two, a slow machine may scan.
        try scene.run("cp a ../new; echo new >> ../new; mv ../new a")
        try await eventually("all see it") {
            ([reader] + others).allSatisfy { $0.diff(scene.root)?.contains("+new") == true }
        }
        #expect((1...1 + polls()).contains(fixture.report.scans - before))
        for other in others { #expect(other.messages.count == 2) }
        for other in others + [reader] { fixture.watcher.detach(other.session) }
        try await eventually("nothing is watched") { fixture.report.watches == 0 && fixture.report.repositories == 0 }
        await fixture.stop()
        #expect(kill(fixture.report.workerPID, 0) != 0 || fixture.report.workerPID == 0)
    }

    /// What the worker owes at the end is not asked of another one.
    @Test func endsAlthoughAnswersAreOwed() async throws {
        let (scene, fixture, reader) = try await started()
        let worker = fixture.report.workerPID
        #expect(kill(worker, SIGSTOP) == 0, "it answers no more")
        fixture.watcher.add(paths: [scene.directory.path], for: fixture.chat)
        let ended = Atomic(false)
        Task {
            await fixture.stop()
            ended.store(true, ordering: .releasing)
        }
        try await eventually("the end") { ended.load(ordering: .acquiring) }
        #expect(kill(worker, 0) != 0 && fixture.report.workerPID == 0)
        _ = reader
    }

    /// Whether the watcher knows them from another connection or has yet to look.
    @Test func whatIsKnownComesInOneMessage() async throws {
        let scenes = try (0..<3).map { try Scene("mk r; echo 1 > a; ci; echo \($0) > a") }
        let fixture = try WatcherFixture(environment: scenes[0].environment)
        fixture.watcher.add(paths: scenes.map(\.root) + ["/nonexistent/x"], for: fixture.chat)
        for number in 0..<3 {
            let reader = try fixture.open()
            try await eventually("the first message") { !reader.messages.isEmpty }
            #expect(
                reader.messages.first?.repositories?.map(\.repo_root) == scenes.map(\.root).sorted(),
                "connection \(number)")
        }
        await fixture.stop()
    }

    @Test func refreshAnswersOnlyWithHeartbeat() async throws {
        let (scene, fixture, quiet) = try await started()
        let beating = try fixture.open(heartbeat: true)
        try await settled(fixture)
        try await eventually("served") { beating.latest(scene.root) != nil }
        let (count, quietCount) = (beating.messages.count, quiet.messages.count)
        fixture.watcher.refresh(beating.session)
        try await eventually("a heartbeat") { beating.messages.count > count }
        #expect(beating.messages.last?.repositories?.isEmpty == true)
        #expect(quiet.messages.count == quietCount)
        await fixture.stop()
    }

    @Test func toolCallsOfSubAgentsCount() async throws {
        let (scene, fixture, reader) = try await started()
        let other = try Scene("mk r; echo 1 > a; ci; echo 2 > a")
        let child = ChatIdentity(id: UUID(), ancestors: [fixture.chat.id])
        fixture.watcher.add(paths: ["\(other.root)/not/there/yet"], for: child)
        try await eventually("the child's repository") { reader.latest(other.root) != nil }
        // A repository that comes to be after its path was touched.
        let later = try Scene("mkdir r; mkdir r/d")
        fixture.watcher.add(paths: ["\(later.root)/d"], for: child)
        try later.run("git init -q; echo x > f")
        try await eventually("the new repository") {
            // Again: the first may come while the repository is looked for and not found.
            fixture.watcher.notify(child)
            return reader.diff(later.root)?.contains("b/f\n") == true
        }
        _ = scene
        await fixture.stop()
    }

    @Test func survivesRemovalReplacementAndLocks() async throws {
        let (scene, fixture, reader) = try await started()
        try await settled(fixture)
        try scene.run("touch .git/index.lock; echo locked >> a")
        try await eventually("an edit under a lock") { reader.diff(scene.root)?.contains("+locked") == true }
        try scene.run("rm -rf .git a; git init -q -b fresh; echo other > b")
        try await eventually("another repository in its place") {
            // A scan between the two commands takes it for gone, until a tool call touches it.
            if reader.latest(scene.root)?.removed == true {
                fixture.watcher.add(paths: ["\(scene.root)/b"], for: fixture.chat)
            }
            return reader.latest(scene.root)?.branch == "fresh"
        }
        try await eventually("its files") {
            reader.diff(scene.root) == String(decoding: try scene.oracle(), as: UTF8.self)
        }
        try Scene.shell("rm -rf r", in: scene.directory.path)
        try await eventually("removal") { reader.latest(scene.root)?.removed == true }
        #expect(reader.latest(scene.root)?.branch == "")
        try Scene.shell("mkdir r; cd r; git init -q -b again; echo 1 > z", in: scene.directory.path)
        fixture.watcher.add(paths: ["\(scene.root)/z"], for: fixture.chat)
        try await eventually("it is found again") { reader.latest(scene.root)?.branch == "again" }
        await fixture.stop()
    }

    @Test func aKilledWorkerIsNotNoticed() async throws {
        // The poll would find what was lost.
        let (scene, fixture, reader) = try await started(pollInterval: .seconds(3_600))
        let other = try Scene("mk r; echo 1 > a; ci")
        fixture.watcher.add(paths: [other.root], for: fixture.chat)
        try await eventually("both") { reader.latest(other.root) != nil }
        var generator = SeededGenerator("kills of the worker")
        for number in 0..<8 {
            try scene.run("echo edit\(number) >> a")
            try other.run("echo edit\(number) >> a")
            // At any moment of the scan that follows.
            let wait = Int32.random(in: 0..<400, using: &generator)
            poll(nil, 0, wait)
            let pid = fixture.report.workerPID
            if pid > 0 { kill(pid, SIGKILL) }
            try await eventually("edit \(number) in both") {
                reader.diff(scene.root)?.contains("+edit\(number)\n") == true
                    && reader.diff(other.root)?.contains("+edit\(number)\n") == true
            }
        }
        #expect(fixture.report.crashes >= 4)
        #expect(reader.messages.allSatisfy { $0.type == "changes" })
        await fixture.stop()
    }

    @Test func pollsWithoutWatches() async throws {
        let (scene, fixture, reader) = try await started("mk r; mkdir b c; echo 1 > a; echo 1 > b/a; ci", budget: 3)
        try await eventually("polling") { !fixture.report.polled.isEmpty }
        #expect(fixture.report.watches == 0)
        let health = fixture.health.reports().map(\.text)
        #expect(health == ["git watch: \(scene.root) is polled every 30 s: the budget of 3 inotify watches is used up"])
        #expect(fixture.metrics.render().contains("agent_git_repositories_polled 1\n"))
        try scene.run("echo 2 > a")
        fixture.watcher.refresh(reader.session)
        try await eventually("a refresh sees it") { reader.diff(scene.root)?.contains("+2") == true }
        await fixture.stop()
    }

    @Test func anEmptyFileThroughALineEndFilterDoesNoHarm() async throws {
        let (scene, fixture, reader) = try await started(
            "mk r; echo '* text=auto eol=crlf' > .gitattributes; echo 1 > a; : > e; ci; git config core.autocrlf true; : > a; echo x > e"
        )
        let pid = fixture.report.workerPID
        #expect(reader.diff(scene.root) == String(decoding: try scene.oracle(), as: UTF8.self))
        try await settled(fixture)
        try scene.run(": > new; : > e")
        try await eventually("the empty file") { reader.diff(scene.root)?.contains("b/new\n") == true }
        #expect(fixture.report.workerPID == pid && fixture.report.crashes == 0)
        await fixture.stop()
    }

    @Test func aStrangersRepositoryIsRefused() async throws {
        guard geteuid() == 0 else { return }
        let scene = try Scene("mk r; echo 1 > a; ci; echo 2 > a; chown -R 65534 .")
        let fixture = try WatcherFixture(environment: scene.environment)
        fixture.watcher.add(paths: [scene.root], for: fixture.chat)
        let reader = try fixture.open()
        try await eventually("the refusal") { reader.messages.contains { $0.type == "error" } }
        #expect(reader.messages.first?.message?.contains("belongs to another user") == true)
        fixture.watcher.refresh(reader.session)
        try await eventually("another scan") { fixture.report.scans >= 2 }
        #expect(reader.messages.count == 1, "said once")
        try scene.run("git config --global --add safe.directory '\(scene.root)'")
        fixture.watcher.refresh(reader.session)
        try await eventually("it is allowed") { reader.diff(scene.root)?.contains("+2") == true }
        await fixture.stop()
    }
}
