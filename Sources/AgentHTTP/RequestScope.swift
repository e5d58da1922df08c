import NIOCore
import Synchronization

/// Whether the client of a request is still connected.
///
/// Routes are not cancelled when their client disconnects: a start that is half done is finished. A route that waits
/// registers here and answers with what there is. A client that only closed its sending side (`nc -N`) counts as gone,
/// too, since TCP does not distinguish the two; it still gets that answer.
public final class CallerPresence: Sendable {
    private struct State {
        var gone = false
        var next = 0
        var handlers: [Int: @Sendable () -> Void] = [:]
    }

    private let state = Mutex(State())

    /// Calls the handler once when the client disconnects, immediately when it has.
    /// - Returns: a token for ``remove(_:)``.
    public func onGone(_ handler: @escaping @Sendable () -> Void) -> Int {
        let token: Int? = state.withLock {
            guard !$0.gone else { return nil }
            $0.next += 1
            $0.handlers[$0.next] = handler
            return $0.next
        }
        guard let token else {
            handler()
            return 0
        }
        return token
    }

    public func remove(_ token: Int) { state.withLock { _ = $0.handlers.removeValue(forKey: token) } }

    func markGone() {
        let handlers = state.withLock { state in
            state.gone = true
            defer { state.handlers = [:] }
            return state.handlers
        }
        for handler in handlers.values { handler() }
    }
}

/// Where a route puts what runs once its 101 is written.
final class UpgradeSlot: Sendable {
    enum Upgrade: Sendable {
        /// Whole messages, for a task.
        /// - Parameter maximumMessage: bytes of one inbound message; nil is unlimited.
        case messages(maximumMessage: Int?, run: @Sendable (WebSocket) async -> Void)
        /// The bytes inside, for channel handlers.
        case bytes(install: @Sendable (any Channel) throws -> Void)
    }

    private let upgrade = Mutex<Upgrade?>(nil)

    func set(_ new: Upgrade) { upgrade.withLock { $0 = new } }

    func take() -> Upgrade? {
        upgrade.withLock { upgrade in
            defer { upgrade = nil }
            return upgrade
        }
    }
}
