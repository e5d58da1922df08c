import AgentCore

/// A routine that has something to deliver before the agent ends.
///
/// What it delivers is queued in an object that outlives connections; both members speak of that.
package protocol DrainableRoutine: Routine {
    /// Delivery begins. What comes from now on need not be delivered.
    func beginDelivery()

    /// Whether nothing waits and nothing is under way unacknowledged, of what is to be delivered.
    var isDrained: Bool { get }

    /// Asks for everything to be delivered without delay, and returns when it is, or the task is
    /// cancelled.
    func drained() async
}

extension DrainableRoutine {
    package func beginDelivery() {}
}

/// Makes a routine drainable whose queue can be closed: its `run` returns once the queue is closed and
/// everything in it is delivered.
package struct ClosableRoutine: DrainableRoutine {
    private let base: any Routine
    private let close: @Sendable () -> Void
    private let isEmpty: @Sendable () -> Bool
    private let isDone = Watched(false)

    /// - Parameters:
    ///   - close: says that nothing more comes. Called when delivery begins.
    ///   - isEmpty: whether nothing waits and nothing is under way.
    package init(
        _ base: any Routine, close: @escaping @Sendable () -> Void, isEmpty: @escaping @Sendable () -> Bool
    ) {
        (self.base, self.close, self.isEmpty) = (base, close, isEmpty)
    }

    package var name: String { base.name }
    package var atShutdown: RoutineShutdown { base.atShutdown }

    package func run(_ connection: any AgentConnection) async throws {
        try await base.run(connection)
        isDone.update { $0 = true }
    }

    package var isDrained: Bool { isDone.value || isEmpty() }

    package func beginDelivery() { close() }

    package func drained() async {
        if !isEmpty() { _ = try? await isDone.first { $0 ? true : nil } }
    }
}
