/// A value that is set once: the first one counts, later ones are dropped. Any number of tasks may wait for it.
package final class Promise<Value: Sendable>: Sendable {
    private let known = Watched<Value?>(nil)

    package init() {}

    /// - Returns: whether it was the first.
    @discardableResult
    package func fulfill(_ value: Value) -> Bool {
        known.update { known in
            guard known == nil else { return false }
            known = .some(value)
            return true
        }
    }

    /// Waits for the value. The cancellation of the calling task does not end the wait.
    package var valueIgnoringCancellation: Value {
        get async { await known.takeIgnoringCancellation { $0 } }
    }

    /// Waits for the value. The cancellation of the calling task ends its own wait only.
    /// - Throws: `CancellationError`.
    package func valueUnlessCancelled() async throws -> Value { try await known.first { $0 } }

    /// Waits for the value. The cancellation of the calling task fulfills the promise with another one, for
    /// all who wait.
    package func value(ifCancelled other: Value) async -> Value {
        await withTaskCancellationHandler {
            await valueIgnoringCancellation
        } onCancel: {
            fulfill(other)
        }
    }
}

extension Promise where Value == Void {
    /// - Returns: whether it was the first time.
    @discardableResult package func fulfill() -> Bool { fulfill(()) }
}
