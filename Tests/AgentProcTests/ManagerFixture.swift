import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Logging
import NIOPosix
import Synchronization

@testable import AgentProc

/// A real process manager over real processes, on a clock that the test moves.
final class ManagerFixture: Sendable {
    let clock = ManualClock()
    let directory: TemporaryDirectory
    let reactor: Reactor
    let manager: ProcessManager
    let metrics = MetricsRegistry()
    let paths = RecordingPathStore()
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    private let disk = BlockingPool(threads: 1)
    private let pool = BlockingPool(threads: 2)

    init(priority: ChildPriority? = nil, descriptorLimit: UInt64 = 0, spools: Bool = true) throws {
        directory = try TemporaryDirectory()
        reactor = try Reactor()
        _ = reactor.start()
        let path = directory.path
        manager = ProcessManager(
            configuration: .init(
                directory: { path }, home: path, environment: EnvironmentBuilder(base: EnvironmentBuilder.current()),
                paths: paths, clock: AgentClock(clock, wallSeconds: { 1_700_000_000 })),
            launcher: try Launcher(priority: priority, descriptorLimit: descriptorLimit), reactor: reactor, pool: pool,
            executor: EventLoopTaskExecutor(group.next()),
            spools: spools ? try SpoolStore(directory: "\(path)/spool", disk: disk) : nil, metrics: metrics,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    func start(_ command: String, chat: ChatIdentity? = nil, _ change: (inout StartRequest) -> Void = { _ in })
        async throws -> ManagedProcess
    {
        var request = StartRequest(.shell(command))
        change(&request)
        let started = try await manager.start(request, chat: chat)
        guard let process = manager.find(started.id.lowercased, chat: chat) else {
            throw DeadlineExceeded(what: "the process is known")
        }
        return process
    }

    /// Waits in real time for a real process to end.
    func finish(_ process: ManagedProcess) async -> ProcessExit? {
        await process.wait(atMost: .seconds(60), clock: AgentClock(EventLoopClock(group: group)), evenAtShutdown: true)
        return process.exit
    }

    func output(_ process: ManagedProcess) -> String { RenderedOutput(process.snapshot().buffer).output }

    /// On a loop of the fixture's: the cooperative threads may all be busy with other tests.
    func beginShutdown() -> Task<Void, Never> {
        Task(executorPreference: EventLoopTaskExecutor(group.next())) { [manager] in await manager.shutdown() }
    }

    func end() async {
        await manager.shutdown()
        await reactor.stop()
    }
}

extension SessionProcesses {
    /// What runs in the sessions of these numbers, whichever process made them.
    func members(of numbers: Set<pid_t>) -> [Identity] {
        processes().values.filter { numbers.contains($0.session) && !$0.isZombie }
    }
}

/// Remembers the calls.
final class RecordingPathStore: PathStore {
    enum Event: Equatable {
        case added([String], ChatIdentity)
        case notified(ChatIdentity)
    }

    private let events = Mutex<[Event]>([])

    func add(paths: [String], for chat: ChatIdentity) { events.withLock { $0.append(.added(paths, chat)) } }
    func notify(_ chat: ChatIdentity) { events.withLock { $0.append(.notified(chat)) } }
    var all: [Event] { events.withLock { $0 } }
}
