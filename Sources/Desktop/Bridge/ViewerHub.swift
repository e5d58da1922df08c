import Synchronization

/// Counts the bridged viewers, and those that are disconnecting. While the VNC server processes the disconnect of a
/// viewer that may have held a button, it drops all other pointer events, so actions wait for it.
final class ViewerHub: Sendable {
    private struct State {
        var viewers = 0
        var leaving = 0
        var waiters: [CheckedContinuation<Void, Never>] = []
    }

    private let state = Mutex(State())

    var count: Int { state.withLock { $0.viewers } }

    func came() { state.withLock { $0.viewers += 1 } }

    /// It disconnected, but its last messages have not reached the server.
    func beganToLeave() {
        state.withLock { state in
            state.viewers -= 1
            state.leaving += 1
        }
    }

    func left() {
        let waiters = state.withLock { state -> [CheckedContinuation<Void, Never>] in
            state.leaving -= 1
            guard state.leaving == 0 else { return [] }
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter.resume() }
    }

    /// Returns once no viewer is leaving, which is bounded by ``SessionLimits/viewerLeave`` for each.
    func settled() async {
        await withCheckedContinuation { continuation in
            let isSettled = state.withLock { state in
                if state.leaving > 0 { state.waiters.append(continuation) }
                return state.leaving == 0
            }
            if isSettled { continuation.resume() }
        }
    }
}
