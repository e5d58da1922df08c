import CPlatform
import Glibc
import LocalAgent

/// Signals that come as input to poll() instead of interrupting.
final class CaughtSignals {
    let descriptor: CInt

    /// Catches those of the signals that are not ignored, as nohup does, from here on. For the main thread.
    init(_ signals: [Int32]) throws {
        var caught = signals.filter { !wa_signal_is_ignored($0) }
        let code = wa_block_signals(&caught, CInt(caught.count))
        descriptor = code < 0 ? code : wa_signalfd(&caught, CInt(caught.count))
        guard descriptor >= 0 else { throw CommandFailure(message: "cannot catch signals") }
    }

    deinit { close(descriptor) }

    /// The next that came; nil when none did.
    func next() -> Int32? {
        let number = wa_signalfd_next(descriptor)
        return number > 0 ? number : nil
    }

    /// Does what SIGTSTP does where it is not caught.
    func stop() {
        var set = sigset_t()
        sigemptyset(&set)
        sigaddset(&set, SIGTSTP)
        raise(SIGTSTP)
        pthread_sigmask(SIG_UNBLOCK, &set, nil)
        pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Waits for one, or for this long.
    func wait(_ duration: Duration) {
        var wanted = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        poll(&wanted, 1, CInt(duration.components.attoseconds / 1_000_000_000_000_000))
    }
}
