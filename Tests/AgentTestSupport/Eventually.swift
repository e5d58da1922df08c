import Glibc

/// A condition that did not come true in time.
public struct DeadlineExceeded: Error, CustomStringConvertible {
    public var what: String
    public init(what: String) { self.what = what }
    public var description: String { "not within the deadline: \(what)" }
}

/// Waits for something that no event announces (the state of /proc, say), looking every few
/// milliseconds, and fails at the deadline.
public func eventually(
    _ what: String, within limit: Duration = .seconds(60), _ condition: () async throws -> Bool
) async throws {
    let deadline = ContinuousClock.now + limit
    while true {
        // Looked at once more after a deadline that passed while nobody ran us.
        let late = ContinuousClock.now >= deadline
        if try await condition() { return }
        if late { throw DeadlineExceeded(what: what) }
        await withCheckedContinuation { continuation in
            // A thread of its own, so that looking does not hold a cooperative thread.
            pause(milliseconds: 2) { continuation.resume() }
        }
    }
}

private func pause(milliseconds: CInt, _ done: @escaping @Sendable () -> Void) {
    final class Box {
        let done: @Sendable () -> Void
        let milliseconds: CInt
        init(_ milliseconds: CInt, _ done: @escaping @Sendable () -> Void) {
            (self.milliseconds, self.done) = (milliseconds, done)
        }
    }
    var thread = pthread_t()
    let box = Unmanaged.passRetained(Box(milliseconds, done))
    let code = pthread_create(
        &thread, nil,
        { argument in
            guard let argument else { return nil }
            let box = Unmanaged<Box>.fromOpaque(argument).takeRetainedValue()
            poll(nil, 0, box.milliseconds)
            box.done()
            return nil
        }, box.toOpaque())
    if code == 0 {
        pthread_detach(thread)
    } else {
        // The kernel has no thread to give at the moment.
        box.release()
        poll(nil, 0, milliseconds)
        done()
    }
}
