/// A routine that has something to deliver before the agent ends.
///
/// What it delivers is queued in an object that outlives connections; both members speak of that.
package protocol DrainableRoutine: Routine {
    /// Whether nothing waits and nothing is under way unacknowledged.
    var isDrained: Bool { get }

    /// Asks for everything to be delivered without delay, and returns when it is, or the task is
    /// cancelled.
    func drained() async
}
