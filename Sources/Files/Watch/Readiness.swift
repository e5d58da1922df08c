import AgentCore
import CPlatform
import Glibc
import Synchronization

/// Tells when descriptors can be read: a thread that is there only while any are waited for, and sleeps until one is.
final class Readiness: Sendable {
    private struct State {
        var epoll: CInt = -1
        var wake: CInt = -1
        /// Those who may wait.
        var users = 0
        var next: UInt64 = 1
        var waiting: [UInt64: (descriptor: CInt, ready: @Sendable () -> Void)] = [:]
    }

    private let state = Mutex(State())

    /// Counts the caller among those who may wait, until ``leave()``.
    /// - Returns: false when the kernel refuses a descriptor or a thread.
    func enter() -> Bool {
        state.withLock { state in
            if state.users == 0, !start(&state) { return false }
            state.users += 1
            return true
        }
    }

    func leave() {
        state.withLock { state in
            state.users -= 1
            guard state.users == 0 else { return }
            // The thread closes them.
            wa_eventfd_signal(state.wake)
            (state.epoll, state.wake) = (-1, -1)
        }
    }

    /// Has the closure called once, when the descriptor can be read; at once when it cannot be waited for.
    /// - Returns: what ``cancel(_:)`` takes.
    func wait(_ descriptor: CInt, _ ready: @escaping @Sendable () -> Void) -> UInt64 {
        let token = state.withLock { state in
            state.next += 1
            guard wa_epoll_add(state.epoll, descriptor, UInt32(WA_EPOLLIN), state.next) == 0 else { return UInt64(0) }
            state.waiting[state.next] = (descriptor, ready)
            return state.next
        }
        if token == 0 { ready() }
        return token
    }

    /// Before the descriptor is closed.
    func cancel(_ token: UInt64) { _ = take(token) }

    private func take(_ token: UInt64) -> (@Sendable () -> Void)? {
        state.withLock { state in
            guard let waiting = state.waiting.removeValue(forKey: token) else { return nil }
            _ = wa_epoll_remove(state.epoll, waiting.descriptor)
            return waiting.ready
        }
    }

    private func start(_ state: inout State) -> Bool {
        let (epoll, wake) = (wa_epoll_create(), wa_eventfd())
        if epoll >= 0, wake >= 0, wa_epoll_add(epoll, wake, UInt32(WA_EPOLLIN), 0) == 0,
            startThread("file-watch", { self.run(epoll, wake) })
        {
            (state.epoll, state.wake) = (epoll, wake)
            return true
        }
        for descriptor in [epoll, wake] where descriptor >= 0 { close(descriptor) }
        return false
    }

    private func run(_ epoll: CInt, _ wake: CInt) {
        var events = [wa_event](repeating: wa_event(), count: 16)
        var isOver = false
        while !isOver {
            let count = wa_epoll_wait(epoll, &events, CInt(events.count), -1)
            for event in events.prefix(Int(max(0, count))) {
                if event.token == 0 { isOver = true } else { take(event.token)?() }
            }
        }
        close(epoll)
        close(wake)
    }
}
