import AgentCore

/// Counts the bridged viewers, and those that are disconnecting. While the VNC server processes the disconnect of a
/// viewer that may have held a button, it drops all other pointer events, so actions wait for it.
final class ViewerHub: Sendable {
    private struct State: Sendable {
        var viewers = 0
        var leaving = 0
    }

    private let state = Watched(State())

    var count: Int { state.read(\.viewers) }

    func came() { state.update { $0.viewers += 1 } }

    /// It disconnected, but its last messages have not reached the server.
    func beganToLeave() {
        state.update { state in
            state.viewers -= 1
            state.leaving += 1
        }
    }

    func left() { state.update { $0.leaving -= 1 } }

    /// Returns once no viewer is leaving, which is bounded by ``SessionLimits/viewerLeave`` for each.
    func settled() async { await state.waitIgnoringCancellation { $0.leaving == 0 } }
}
