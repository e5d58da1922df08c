import AgentCore
import Synchronization

/// One wait for the end of one process: a continuation and a timer, no thread.
struct ProcessWait {
    let process: ManagedProcess
    let clock: AgentClock
    let executor: any TaskExecutor
    /// Wait although shutdown has begun.
    var evenAtShutdown = false

    /// Returns at the exit, when the time is over, or when the handler that `register` was given is
    /// called; whichever is first.
    func run(atMost timeout: Duration, onCancel register: (@escaping @Sendable () -> Void) -> Void) async {
        guard timeout > .zero, process.exit == nil else { return }
        let slot = WaitSlot(process, evenAtShutdown: evenAtShutdown)
        let (clock, executor) = (clock, executor)
        let timer = Task(executorPreference: executor) {
            guard (try? await clock.sleep(timeout)) != nil else { return }
            slot.release()
        }
        register { slot.release() }
        await withCheckedContinuation { slot.wait($0) }
        timer.cancel()
    }
}

/// Releases its continuation once, however early that is asked for.
private final class WaitSlot: Sendable {
    private struct State {
        var released = false
        var token: Int?
    }

    private let process: ManagedProcess
    private let evenAtShutdown: Bool
    private let state = Mutex(State())

    init(_ process: ManagedProcess, evenAtShutdown: Bool) {
        self.process = process
        self.evenAtShutdown = evenAtShutdown
    }

    func wait(_ continuation: CheckedContinuation<Void, Never>) {
        let released = state.withLock { state in
            if !state.released { state.token = process.addWaiter(continuation, evenAtShutdown: evenAtShutdown) }
            return state.released
        }
        if released { continuation.resume() }
    }

    func release() {
        let token = state.withLock { state in
            state.released = true
            return state.token
        }
        if let token { process.releaseWaiter(token) }
    }
}
