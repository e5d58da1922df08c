import NIOCore

/// One timer of a connection. Moving it later does not touch the event loop's queue, so that a request on a kept-alive
/// connection costs no scheduling.
struct DeadlineTimer {
    private final class Box {
        var deadline: NIODeadline?
        var fire: (() -> Void)?
        var scheduled: Scheduled<Void>?
        var scheduledFor = NIODeadline.distantFuture
    }

    private let box = Box()

    func start(after delay: TimeAmount, on loop: any EventLoop, _ fire: @escaping () -> Void) {
        let deadline = loop.now + delay
        box.deadline = deadline
        box.fire = fire
        guard box.scheduled == nil || box.scheduledFor > deadline else { return }
        box.scheduled?.cancel()
        Self.schedule(box, at: deadline, on: loop)
    }

    /// Nothing fires until the next start.
    func stop() {
        box.deadline = nil
        box.fire = nil
    }

    func cancel() {
        stop()
        box.scheduled?.cancel()
        box.scheduled = nil
    }

    private static func schedule(_ box: Box, at deadline: NIODeadline, on loop: any EventLoop) {
        box.scheduledFor = deadline
        box.scheduled = loop.assumeIsolated().scheduleTask(deadline: deadline) {
            box.scheduled = nil
            guard let wanted = box.deadline else { return }
            if loop.now >= wanted {
                let fire = box.fire
                box.deadline = nil
                box.fire = nil
                fire?()
            } else {
                schedule(box, at: wanted, on: loop)
            }
        }
    }
}
