import AgentCore
import Synchronization

/// The first of several values that come from elsewhere; later ones are dropped. Whoever waits is not held
/// by what is late.
final class FirstOf<Value: Sendable>: Sendable {
    private struct State {
        var value: Value?
        var waiter: CheckedContinuation<Value, Never>?
    }

    private let state = Mutex(State())

    /// - Returns: whether it was the first.
    @discardableResult
    func set(_ value: Value) -> Bool {
        let (isFirst, waiter) = state.withLock { state in
            guard state.value == nil else { return (false, nil as CheckedContinuation<Value, Never>?) }
            state.value = value
            defer { state.waiter = nil }
            return (true, state.waiter)
        }
        waiter?.resume(returning: value)
        return isFirst
    }

    /// Waits for it; one task may.
    var value: Value {
        get async {
            await withCheckedContinuation { continuation in
                let known = state.withLock { state in
                    if state.value == nil { state.waiter = continuation }
                    return state.value
                }
                if let known { continuation.resume(returning: known) }
            }
        }
    }
}

/// Waits that end, whatever what is waited for does.
struct Patience: Sendable {
    let clock: AgentClock
    /// Runs what is waited for.
    let executor: any TaskExecutor

    /// What the body returns; nil when it takes longer, and then it is cancelled and left to itself. The
    /// cancellation of the calling task changes nothing.
    func wait<T: Sendable>(atMost limit: Duration, _ body: @escaping @Sendable () async -> T) async -> T? {
        let first = FirstOf<T?>()
        let clock = clock
        let work = Task(executorPreference: executor) { _ = first.set(await body()) }
        let timer = Task(executorPreference: executor) {
            guard (try? await clock.sleep(limit)) != nil else { return }
            first.set(nil)
        }
        let value = await first.value
        timer.cancel()
        if value == nil { work.cancel() }
        return value
    }

    /// Sleeps, also in a cancelled task.
    func pause(_ duration: Duration) async {
        let clock = clock
        await Task(executorPreference: executor) { try? await clock.sleep(duration) }.value
    }
}
