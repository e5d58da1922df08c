import AgentCore
import Glibc
import Synchronization

/// Tells who waits for a TCP port when something listens on it: the kernel has no event for that, so its tables are
/// read, once for all who wait, and only while anybody does.
final class PortWatch: Sendable {
    /// Between two looks.
    static let interval = Duration.milliseconds(50)

    private struct State {
        var next = 0
        var wanted: [Int: (port: Int, wake: @Sendable () -> Void)] = [:]
        var isRunning = false
    }

    private let pool: BlockingPool
    private let executor: any TaskExecutor
    private let clock: AgentClock
    private let state = Mutex(State())

    init(pool: BlockingPool, executor: any TaskExecutor, clock: AgentClock) {
        self.pool = pool
        self.executor = executor
        self.clock = clock
    }

    /// Has the closure called, again and again, while something listens on the port.
    /// - Returns: a token for ``remove(_:)``.
    func add(_ port: Int, _ wake: @escaping @Sendable () -> Void) -> Int {
        let (token, starts) = state.withLock { state in
            state.next += 1
            state.wanted[state.next] = (port, wake)
            defer { state.isRunning = true }
            return (state.next, !state.isRunning)
        }
        if starts { Task(executorPreference: executor) { await self.run() } }
        return token
    }

    func remove(_ token: Int) { state.withLock { _ = $0.wanted.removeValue(forKey: token) } }

    private func run() async {
        while true {
            try? await clock.sleep(Self.interval)
            let goesOn = state.withLock { state in
                state.isRunning = !state.wanted.isEmpty
                return state.isRunning
            }
            guard goesOn else { return }
            let listening = (try? await pool.run { try ListeningSockets.all(of: "self") }) ?? []
            let ports = Set(listening.map(\.port))
            let due = state.withLock { $0.wanted.values.filter { ports.contains($0.port) } }
            for waiter in due { waiter.wake() }
        }
    }

    /// Whether a process of the session, or one that descends from one of them, listens on the port. Blocks.
    static func listens(on port: Int, _ session: OwnSession, _ processes: SessionProcesses = SessionProcesses()) -> Bool
    {
        guard let listeners = try? ListeningSockets.all(of: "self") else { return false }
        let wanted = Set(listeners.filter { $0.port == port }.map(\.inode))
        guard !wanted.isEmpty else { return false }
        return processes.family(of: session).contains { pid in
            !ListeningSockets.inodes(of: pid).isDisjoint(with: wanted)
        }
    }
}

extension SessionProcesses {
    /// The processes of a session and their descendants in other sessions.
    func family(of session: OwnSession) -> Set<pid_t> {
        var family = Set(members(of: [session]).map(\.pid))
        var children: [pid_t: [pid_t]] = [:]
        for identity in processes().values { children[identity.parent, default: []].append(identity.pid) }
        var next = Array(family)
        while let parent = next.popLast() {
            for child in children[parent] ?? [] where family.insert(child).inserted { next.append(child) }
        }
        return family
    }
}
