import AgentCore
import CPlatform
import Glibc
import Synchronization

/// Tells who waits for a file when an entry of its name appears in a directory: one inotify descriptor for all, which is
/// there only while anybody waits.
final class FileWatch: ReactorSource {
    private struct Waiter {
        var name: [UInt8]
        var wake: @Sendable () -> Void
    }

    private struct State {
        var descriptor: CInt = -1
        var token: UInt64 = 0
        var next = 0
        /// Who is about to add a watch.
        var adding = 0
        /// By watch, then by waiter.
        var waiters: [CInt: [Int: Waiter]] = [:]
    }

    private let reactor: Reactor
    private let state = Mutex(State())

    init(_ reactor: Reactor) { self.reactor = reactor }

    /// What ``remove(_:)`` takes back.
    struct Registration {
        fileprivate var watch: CInt
        fileprivate var waiter: Int
    }

    /// Has the closure called when an entry of the name appears in the directory, or the directory goes. What happens
    /// before it returns may be missed. Blocks.
    /// - Returns: nil when the kernel refuses to watch it.
    func add(_ directory: String, name: String, _ wake: @escaping @Sendable () -> Void) -> Registration? {
        let descriptor = state.withLock { state in
            if state.descriptor < 0, !open(&state) { return CInt(-1) }
            state.adding += 1
            return state.descriptor
        }
        guard descriptor >= 0 else { return nil }
        // Not under the lock, which the reactor takes: a dead file server would hold it.
        let watch = wa_inotify_watch_entries(descriptor, directory)
        return state.withLock { state in
            state.adding -= 1
            guard watch >= 0 else {
                closeIfIdle(&state)
                return nil
            }
            state.next += 1
            state.waiters[watch, default: [:]][state.next] = Waiter(name: Array(name.utf8), wake: wake)
            return Registration(watch: watch, waiter: state.next)
        }
    }

    func remove(_ registration: Registration) {
        state.withLock { state in
            state.waiters[registration.watch]?[registration.waiter] = nil
            guard state.waiters[registration.watch]?.isEmpty == true else { return }
            state.waiters[registration.watch] = nil
            wa_inotify_unwatch(state.descriptor, registration.watch)
            closeIfIdle(&state)
        }
    }

    private func open(_ state: inout State) -> Bool {
        let descriptor = wa_inotify()
        guard descriptor >= 0 else { return false }
        state.token = reactor.makeToken()
        guard (try? reactor.add(descriptor, events: UInt32(WA_EPOLLIN), token: state.token, self)) != nil else {
            close(descriptor)
            return false
        }
        state.descriptor = descriptor
        return true
    }

    private func closeIfIdle(_ state: inout State) {
        guard state.waiters.isEmpty, state.adding == 0, state.descriptor >= 0 else { return }
        reactor.remove(state.descriptor, token: state.token)
        close(state.descriptor)
        state.descriptor = -1
    }

    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer) {
        // Under the lock, so that the descriptor isn't closed meanwhile; it does not block.
        let due = state.withLock { state -> [@Sendable () -> Void] in
            guard state.descriptor >= 0 else { return [] }
            let count = wa_read(state.descriptor, scratch.baseAddress, scratch.count)
            guard count > 0 else { return [] }
            return Self.due(&state, UnsafeRawBufferPointer(rebasing: scratch[..<count]))
        }
        for wake in due { wake() }
    }

    private static func due(_ state: inout State, _ bytes: UnsafeRawBufferPointer) -> [@Sendable () -> Void] {
        var due: [@Sendable () -> Void] = []
        var rest = bytes[...]
        var event = wa_file_event()
        while case let taken = wa_inotify_parse(UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count, &event),
            taken > 0
        {
            rest = rest.dropFirst(taken)
            if event.overflow {
                due += state.waiters.values.flatMap { $0.values.map(\.wake) }
                continue
            }
            let name = UnsafeRawBufferPointer(start: event.name, count: event.name_length)
            for waiter in (state.waiters[event.watch] ?? [:]).values
            where event.gone || event.itself || waiter.name.elementsEqual(name) {
                due.append(waiter.wake)
            }
        }
        return due
    }
}
