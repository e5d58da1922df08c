import AgentProto
import Testing

@testable import ControlPlane

@Suite struct LifecycleHistoryTests {
    typealias State = Coder_Agent_V2_Lifecycle.State

    private static let paths: [[State]] = [
        [.starting, .ready, .shuttingDown, .off],
        [.starting, .startTimeout, .shuttingDown, .shutdownTimeout],
        [.starting, .startError, .shuttingDown, .shutdownError],
        [.starting, .shuttingDown, .off],
        [.shuttingDown, .off],
    ]

    @Test(arguments: paths) func legalPathsAreTaken(_ path: [State]) {
        var history = LifecycleHistory()
        let taken = path.map { history.record($0, at: .init()) }
        #expect(!taken.contains(false))
        #expect(history.entries.map(\.state) == path)
    }

    /// All sequences of states: whatever is asked for, what is kept is a beginning of a legal path.
    @Test func anythingElseIsDropped() {
        let states = State.allCases
        for a in states {
            for b in states {
                for c in states {
                    var history = LifecycleHistory()
                    for state in [a, b, c, a, b, c, .shuttingDown, .off, .ready, .starting] {
                        _ = history.record(state, at: .init())
                    }
                    let kept = history.entries.map(\.state)
                    #expect(kept.count <= 4)
                    #expect(Set(kept).count == kept.count)
                    let ends: Set<State> = [.off, .shutdownTimeout, .shutdownError]
                    let middles: Set<State> = [.ready, .startTimeout, .startError]
                    for (before, after) in zip([.created] + kept, kept) {
                        let legal =
                            after == .starting && before == .created || middles.contains(after) && before == .starting
                            || after == .shuttingDown && before != .shuttingDown && !ends.contains(before)
                            || ends.contains(after) && before == .shuttingDown
                        #expect(legal, "\(before) → \(after)")
                    }
                }
            }
        }
    }

    @Test func onlyTheNextIsAcknowledged() {
        var history = LifecycleHistory()
        #expect(history.next == nil)
        #expect(history.current == .created)
        let isReported = history.record(.created, at: .init())
        #expect(!isReported)
        for (second, state) in [State.starting, .ready, .shuttingDown].enumerated() {
            _ = history.record(state, at: .init(seconds: Int64(second)))
        }
        let all = history.entries
        history.acknowledge(all[1])
        #expect(history.next == all[0])
        history.acknowledge(all[0])
        history.acknowledge(all[0])
        #expect(history.next == all[1])
        #expect(history.next?.changedAt.seconds == 1)
    }
}
