import AgentCore
import AgentTestSupport
import CPlatform
import Foundation
import Glibc
import Logging
import Synchronization
import Testing

@testable import GitWatch

/// One file system that hangs, over a repository that is watched; the others must not notice.
@Suite(.enabled(if: HangingFileSystem.isAllowed, "FUSE file systems cannot be mounted here"))
struct HangTests {
    private static let times = AnswerTimes(
        scan: .seconds(12), resolve: .seconds(12), notice: .seconds(3), firstRetry: .seconds(1))

    private struct World {
        var bad: Scene
        var good: Scene
        var fixture: WatcherFixture
        var badReader: WatcherFixture.Reader
        var goodReader: WatcherFixture.Reader
    }

    /// Two repositories of two chats, settled.
    private func world(_ script: String = "mk r; mkdir d; echo 1 > d/f; ci") async throws -> World {
        let (bad, good) = (try Scene(script), try Scene("mk r; echo 1 > a; ci"))
        let fixture = try WatcherFixture(environment: bad.environment, times: Self.times)
        let other = ChatIdentity(id: UUID())
        fixture.watcher.add(paths: [bad.root], for: fixture.chat)
        fixture.watcher.add(paths: [good.root], for: other)
        let world = World(
            bad: bad, good: good, fixture: fixture, badReader: try fixture.open(),
            goodReader: try fixture.open(chat: other))
        try await eventually("both are watched") {
            world.badReader.latest(bad.root) != nil && world.goodReader.latest(good.root) != nil
                && fixture.report.scans >= 4
        }
        return world
    }

    private func edit(_ world: World, _ number: Int) async throws {
        try world.good.run("echo edit\(number) > a")
        // The old way it came when the hanging scan was given up, after two minutes.
        try await eventually("edit \(number)") {
            world.goodReader.diff(world.good.root)?.contains("+edit\(number)\n") == true
        }
    }

    /// Over the whole work tree, where it hangs at once, and over a directory, where libgit2 or git comes to hang.
    @Test(arguments: ["", "/d"]) func theOthersGoOn(_ place: String) async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) {
            let world = try await world()
            let first = world.fixture.report.workerPID
            let hanging = try HangingFileSystem(over: world.bad.root + place)
            defer { hanging.unmount() }
            world.fixture.watcher.refresh(world.badReader.session)
            try await eventually("the worker hangs") { hanging.holds }
            for number in 0..<3 { try await edit(world, number) }
            try await eventually("the error") { world.badReader.messages.contains { $0.type == "error" } }
            let errors = world.badReader.messages.filter { $0.type == "error" }.map(\.message)
            #expect(errors.first == "\(world.bad.root): no answer within 12 s; its file system may hang")
            #expect(
                world.fixture.health.reports().map(\.text)
                    == ["git watch: \(world.bad.root) did not answer in time; its file system may hang"])
            #expect(world.fixture.metrics.render().contains("agent_git_hanging 1\n"))
            // Asked again meanwhile, and hanging again.
            for number in 3..<6 { try await edit(world, number) }
            #expect(world.fixture.report.workerPID != first, "replaced, although the old one cannot be killed")
            // A path on it, and another one in a repository that was not known.
            let (added, other) = (try Scene("mk r; echo 1 > a; ci; echo found > a"), ChatIdentity(id: UUID()))
            world.fixture.watcher.add(paths: ["\(world.bad.root + place)/x", added.root], for: other)
            let reader = try world.fixture.open(chat: other)
            try await eventually("the new repository") { reader.diff(added.root)?.contains("+found\n") == true }
            // It comes back by itself.
            hanging.unmount()
            try world.bad.run("echo back > d/f")
            try await eventually("the state after it", within: .seconds(120)) {
                world.badReader.diff(world.bad.root)?.contains("+back\n") == true
            }
            try await eventually("all is well") { world.fixture.health.reports().isEmpty }
            #expect(world.goodReader.messages.allSatisfy { $0.type == "changes" })
            #expect(world.fixture.report.crashes == 0)
            try await eventually("the stuck worker ends") { !ProcFS.runs(first) }
            await world.fixture.stop()
        }
    }

    @Test func theEndIsNotHeldUp() async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) {
            let world = try await world()
            let hanging = try HangingFileSystem(over: world.bad.root)
            defer { hanging.unmount() }
            let pid = world.fixture.report.workerPID
            world.fixture.watcher.refresh(world.badReader.session)
            try await eventually("the worker hangs") { hanging.holds }
            let ended = Atomic(false)
            Task {
                await world.fixture.stop()
                ended.store(true, ordering: .releasing)
            }
            try await eventually("the end") { ended.load(ordering: .acquiring) }
            #expect(ProcFS.exists(pid), "it cannot be killed yet")
        }
    }

    /// A worker that says nothing at all.
    @Test func aStoppedWorkerIsReplaced() async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) {
            let world = try await world()
            let pid = world.fixture.report.workerPID
            #expect(kill(pid, SIGSTOP) == 0)
            try await edit(world, 1)
            #expect(world.fixture.report.workerPID != pid)
            try await eventually("it is gone") { !ProcFS.runs(pid) }
            await world.fixture.stop()
        }
    }

    /// To watch a directory is to name it, which may hang, too: that is for the worker to do, never for the daemon.
    @Test func theDaemonNamesNoDirectory() async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) {
            let (bad, good) = (try TemporaryDirectory(), try TemporaryDirectory())
            let hanging = try HangingFileSystem(over: bad.path)
            defer { hanging.unmount() }
            let worker = try PlayedWorker()
            let watcher = GitWatcher(
                configuration: .init(executable: "/nonexistent", environment: [:]), launcher: worker,
                metrics: MetricsRegistry(), health: HealthRegistry(),
                logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
            let chat = ChatIdentity(id: UUID())
            watcher.add(paths: [bad.path, good.path], for: chat)
            let session = WatchSession(chat: chat.id, heartbeat: false) { 0 }
            try #require(watcher.attach(session) == nil)
            try await eventually("watches are asked for") { worker.asked(.watch) == [bad.path, good.path] }
            watcher.refresh(session)
            try await eventually("another scan of each") { worker.all(.scan).count >= 4 }
            #expect(!hanging.holds)
            await watcher.shutdown()
        }
    }
}

/// A worker that the test plays: every path is a repository, and to be watched is what it never comes to.
private final class PlayedWorker: WorkerLauncher {
    private let ends: (daemon: CInt, worker: CInt)
    private let requests = Mutex<[WorkerRequest]>([])

    init() throws {
        var pair: [CInt] = [-1, -1]
        guard wa_socketpair(&pair) == 0 else { throw DeadlineExceeded(what: "a socket pair") }
        _ = wa_set_nonblocking(pair[0])
        ends = (pair[0], pair[1])
    }

    func asked(_ kind: WorkerRequest.Kind) -> Set<String> {
        Set(all(kind).map(\.root))
    }

    func all(_ kind: WorkerRequest.Kind) -> [WorkerRequest] { requests.withLock { $0.filter { $0.kind == kind } } }

    func startWorker(
        _ command: Command, onExit: @escaping @Sendable (CommandExit) -> Void
    ) throws -> StartedWorker {
        let socket = ends.worker
        let isRunning = startThread("played worker") { [self] in
            serve(socket)
            close(socket)
            onExit(.exited(0))
        }
        guard isRunning else { throw DeadlineExceeded(what: "a thread") }
        return StartedWorker(pid: 0, socket: ends.daemon) { _ = Glibc.shutdown(socket, CInt(SHUT_RDWR)) }
    }

    private func serve(_ socket: CInt) {
        var frames = FrameSplitter()
        var area = [UInt8](repeating: 0, count: 4096)
        while case let count = read(socket, &area, area.count), count > 0 {
            let whole = area.withUnsafeBytes { frames.add(UnsafeRawBufferPointer(rebasing: $0[..<count])) } ?? []
            for request in whole.compactMap({ WorkerFrames.request($0) }) {
                requests.withLock { $0.append(request) }
                let snapshot = RepositorySnapshot(branch: "main", origin: "", diff: [])
                let body: WorkerReply.Body? =
                    switch request.kind {
                    case .resolve: .resolved(request.root)
                    case .scan: .snapshot(snapshot, byCLI: false)
                    case .directories: .directories([.tree([])], complete: true)
                    case .forget, .watch: nil
                    }
                guard let body else { continue }
                let frame = WorkerFrames.encode(WorkerReply(id: request.id, body: body))
                _ = write(socket, frame, frame.count)
            }
        }
    }
}
