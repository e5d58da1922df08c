import AgentCore
import FoundationEssentials

extension ManagedProcess {
    /// Returns at the exit, when the time is over, or when the promise is fulfilled; whichever is first. It costs a
    /// timer, no thread.
    /// - Parameter evenAtShutdown: wait although shutdown has begun.
    func wait(
        atMost timeout: Duration, clock: AgentClock, evenAtShutdown: Bool = false,
        orUntil over: Promise<Void> = Promise()
    ) async {
        guard timeout > .zero, addWaiter(over, evenAtShutdown: evenAtShutdown) else { return }
        let cancelTimer = clock.after(timeout) { over.fulfill() }
        await over.valueIgnoringCancellation
        cancelTimer()
        removeWaiter(over)
    }
}

extension ProcessManager {
    /// How a process failed soon after its start.
    public struct EarlyFailure: Sendable {
        /// The exit status, 1...255; nil for the end by a signal.
        public var status: Int?
        /// Such as `SIGSEGV`.
        public var signal: String?
        /// What it wrote, as a reader of the process API gets it.
        public var output: String
    }

    /// Waits for the end of a process, at most for the time.
    /// - Returns: nil when it still runs, or ended with status 0.
    public func earlyFailure(of id: UUID, within time: Duration) async -> EarlyFailure? {
        guard let process = find(id.uuidString, chat: nil) else { return nil }
        await wait(for: process, atMost: time)
        let snapshot = process.snapshot()
        guard let exit = snapshot.exit, exit.code != 0 else { return nil }
        let signal = exit.signal.map(SignalName.name)
        return EarlyFailure(
            status: signal == nil ? exit.code : nil, signal: signal, output: RenderedOutput(snapshot.buffer).output)
    }
}
