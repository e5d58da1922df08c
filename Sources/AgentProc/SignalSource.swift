import AgentCore
import CPlatform
import Glibc

/// Receives the daemon's signals on the reactor's thread.
public final class SignalSource: ReactorSource {
    private let descriptor: CInt
    private let reaper: OrphanReaper
    private let onSignal: @Sendable (CInt) -> Void

    /// Begins to receive the signals and SIGCHLD, which all threads must have blocked. The reactor keeps the source.
    /// - Parameters:
    ///   - reaper: looks for orphans after each SIGCHLD.
    ///   - onSignal: called for every other signal, on the reactor's thread.
    @discardableResult public init(
        _ signals: [CInt], reactor: Reactor, reaper: OrphanReaper, onSignal: @escaping @Sendable (CInt) -> Void
    ) throws {
        let all = signals + [SIGCHLD]
        descriptor = wa_signalfd(all, CInt(all.count))
        self.reaper = reaper
        self.onSignal = onSignal
        guard descriptor >= 0 else { throw CoreError.system(descriptor, "cannot receive signals") }
        try reactor.add(descriptor, events: UInt32(WA_EPOLLIN), token: reactor.makeToken(), self)
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer) {
        // One, since another read would mostly find nothing; the reactor reports the descriptor again if there are more.
        switch wa_signalfd_next(descriptor) {
        case 0: break
        case SIGCHLD: reaper.childExited()
        case let signal: onSignal(signal)
        }
    }
}
