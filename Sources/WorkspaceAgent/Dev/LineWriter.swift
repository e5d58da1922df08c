import AgentCore
import CPlatform
import Glibc
import Synchronization

/// Writes lines on a thread of its own, so that a stopped terminal holds up neither the daemon nor the simulator.
final class LineWriter: Sendable {
    /// Bytes that wait to be written. What comes at more is dropped, and the number of lines shown.
    static let queueBytes = 4 << 20

    private struct State {
        var text = ""
        var dropped = 0
        var isWriting = false
    }

    private let descriptor: CInt
    private let state = Mutex(State())
    private let wake = wa_eventfd()
    private let idle = wa_eventfd()
    private let hasThread = Mutex(false)

    init(descriptor: CInt) {
        self.descriptor = descriptor
        let started = startThread("dev-display") { [self] in loop() }
        hasThread.withLock { $0 = started }
    }

    /// Queues lines, each without its line end.
    func write(_ lines: [String]) {
        guard !lines.isEmpty else { return }
        let added = lines.joined(separator: "\n") + "\n"
        state.withLock { state in
            if state.text.utf8.count + added.utf8.count <= Self.queueBytes {
                state.text += added
            } else {
                state.dropped += lines.count
            }
        }
        wa_eventfd_signal(wake)
    }

    /// Returns when everything is written, or after a second.
    func finish() {
        guard hasThread.withLock({ $0 }) else { return }
        let deadline = ContinuousClock.now + .seconds(1)
        // Being idle may be said of the time before the last line, and then late.
        while state.withLock({ !$0.text.isEmpty || $0.isWriting }) {
            wa_eventfd_drain(idle)
            wa_eventfd_signal(wake)
            guard state.withLock({ !$0.text.isEmpty || $0.isWriting }) else { return }
            let left = (deadline - .now) / .milliseconds(1)
            guard left > 0 else { return }
            var poll = pollfd(fd: idle, events: Int16(POLLIN), revents: 0)
            _ = Glibc.poll(&poll, 1, CInt(left.rounded(.up)))
        }
    }

    private func loop() {
        while true {
            var poll = pollfd(fd: wake, events: Int16(POLLIN), revents: 0)
            _ = Glibc.poll(&poll, 1, -1)
            wa_eventfd_drain(wake)
            while let text = take() { put(text) }
            wa_eventfd_signal(idle)
        }
    }

    private func take() -> String? {
        state.withLock { state in
            guard !state.text.isEmpty || state.dropped > 0 else {
                state.isWriting = false
                return nil
            }
            var text = state.text
            if state.dropped > 0 { text += "… \(state.dropped) lines could not be shown in time\n" }
            (state.text, state.dropped, state.isWriting) = ("", 0, true)
            return text
        }
    }

    private func put(_ text: String) {
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            if count < 0, errno == EAGAIN {
                var poll = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                _ = Glibc.poll(&poll, 1, -1)
                continue
            }
            // The reader is gone; the daemon goes on.
            guard count > 0 else { return }
            rest = rest.dropFirst(count)
        }
    }
}
