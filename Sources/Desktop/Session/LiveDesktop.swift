import AgentCore
import Synchronization

/// A desktop that is up, with what is needed to watch it and to end it.
final class LiveDesktop: Sendable {
    let generation: Int
    let running: RunningDesktop
    let xvnc: ProcessHandle
    /// nil on a desktop without a window manager.
    let windowManager: WindowManager?
    let sessionDirectory: SessionFiles.SessionDirectory?
    /// Started by an earlier run of the agent.
    let wasAdopted: Bool
    /// It replaces one that has ended: programs that ran on that one are gone.
    let isReplacement: Bool
    /// Why it is driven through the program's own subcommands; nil when it is driven over RFB.
    let whyNotRFB: String?

    private struct Contact {
        /// Actions that run or wait: the driver performs one at a time, so that a probe would only wait for them.
        var busy = 0
        /// On ``AgentClock``.
        var last: Duration
        var probe: Task<Bool, Never>?
    }

    private let contact: Mutex<Contact>

    init(
        generation: Int, running: RunningDesktop, xvnc: ProcessHandle, windowManager: WindowManager?,
        sessionDirectory: SessionFiles.SessionDirectory?, wasAdopted: Bool, isReplacement: Bool, whyNotRFB: String?,
        now: Duration
    ) {
        self.generation = generation
        self.running = running
        self.xvnc = xvnc
        self.windowManager = windowManager
        self.sessionDirectory = sessionDirectory
        self.wasAdopted = wasAdopted
        self.isReplacement = isReplacement
        self.whyNotRFB = whyNotRFB
        contact = Mutex(Contact(last: now))
    }

    /// Actions that run or wait for their turn.
    var pending: Int { contact.withLock { $0.busy } }

    /// Why it cannot be used; nil as far as can be seen without a probe.
    var problem: String? {
        if !xvnc.isAlive { return "Xvnc has ended" }
        if !running.driver.isAlive { return "the connection to Xvnc has ended" }
        return nil
    }

    /// Runs an action of the driver, whose success shows that the server answers.
    func busy<T: Sendable>(_ clock: AgentClock, _ body: () async throws -> T) async throws -> T {
        contact.withLock { $0.busy += 1 }
        defer { contact.withLock { $0.busy -= 1 } }
        let result = try await body()
        let now = clock.now()
        contact.withLock { $0.last = now }
        return result
    }

    /// Whether the server answers. It is probed when it has not answered for a while; simultaneous callers share
    /// one probe.
    func answers(_ clock: AgentClock, _ executor: any TaskExecutor, _ limits: SessionLimits) async -> Bool {
        let now = clock.now()
        let probe: Task<Bool, Never>? = contact.withLock { contact in
            if let probe = contact.probe { return probe }
            guard contact.busy == 0, now - contact.last >= limits.probeAfter else { return nil }
            let probe = Task(executorPreference: executor) { [self] in await runProbe(clock, executor, limits) }
            contact.probe = probe
            return probe
        }
        guard let probe else { return true }
        return await probe.value
    }

    private func runProbe(_ clock: AgentClock, _ executor: any TaskExecutor, _ limits: SessionLimits) async -> Bool {
        let driver = running.driver
        // The driver's own time limit may fail; the caller does not wait longer for it.
        let limiter = TimeLimiter(clock: clock, executor: executor)
        let answer =
            await limiter.runIgnoringCancellation(atMost: limits.probe + .seconds(1)) {
                do {
                    try await driver.probe(within: limits.probe)
                    return true
                } catch {
                    return false
                }
            } ?? false
        let now = clock.now()
        contact.withLock { contact in
            contact.probe = nil
            if answer { contact.last = now }
        }
        return answer
    }
}
