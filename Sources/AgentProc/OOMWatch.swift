import AgentCore
import CPlatform
import Glibc
import Synchronization

/// Finds out whether a SIGKILL that the daemon did not send came from the kernel's OOM killer: cgroup v2 counts
/// its kills in `memory.events`. All children share the daemon's cgroup, so one count answers for
/// one death, and only for a death within a second of it; without the file nothing is claimed.
final class OOMWatch: ReactorSource {
    private static let freshness = Duration.seconds(1)

    private struct State {
        var counted: Int
        /// Kills that no death was explained by yet.
        var unclaimed = 0
        var lastKill: ContinuousClock.Instant?
    }

    private let descriptor: CInt
    private let state: Mutex<State>
    private let watching = Mutex<(reactor: Reactor?, token: UInt64)>((nil, 0))

    /// - Parameter path: a `memory.events` file.
    /// - Returns: nil when it cannot be read or has no `oom_kill`.
    init?(path: String?) {
        guard let path else { return nil }
        descriptor = wa_open(path, O_RDONLY, 0)
        guard descriptor >= 0 else { return nil }
        guard let count = Self.read(descriptor) else {
            close(descriptor)
            return nil
        }
        state = Mutex(State(counted: count))
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Has the reactor report when the count changes (the file reports it as a priority event).
    func watch(_ reactor: Reactor) {
        let token = reactor.makeToken()
        watching.withLock { $0 = (reactor, token) }
        try? reactor.add(descriptor, events: UInt32(WA_EPOLLPRI), token: token, self)
    }

    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer) {
        if update() { return }
        // The cgroup is gone (we were moved and it was removed): it would report that for ever.
        let (reactor, token) = watching.withLock { $0 }
        reactor?.remove(descriptor, token: token)
    }

    /// Whether an OOM kill explains a death by SIGKILL that was just seen. One kill explains one.
    func claim() -> Bool {
        update()
        return state.withLock {
            guard let last = $0.lastKill, last.duration(to: .now) <= Self.freshness, $0.unclaimed > 0 else {
                $0.unclaimed = 0
                return false
            }
            $0.unclaimed -= 1
            return true
        }
    }

    @discardableResult private func update() -> Bool {
        guard let count = Self.read(descriptor) else { return false }
        state.withLock {
            guard count > $0.counted else { return }
            $0.unclaimed += count - $0.counted
            $0.counted = count
            $0.lastKill = .now
        }
        return true
    }

    private static func read(_ descriptor: CInt) -> Int? {
        var buffer = [UInt8](repeating: 0, count: 1024)
        let count = pread(descriptor, &buffer, buffer.count, 0)
        guard count > 0 else { return nil }
        for line in String(decoding: buffer[..<count], as: UTF8.self).split(separator: "\n")
        where line.hasPrefix("oom_kill ") {
            return Int(line.dropFirst("oom_kill ".count))
        }
        return nil
    }
}

/// Where the kernel counts OOM kills.
public enum OOMEvents {
    /// The `memory.events` of this process's cgroup (v2), when there is one.
    public static func defaultPath() -> String? {
        let lines = readTextFile("/proc/self/cgroup")?.split(separator: "\n") ?? []
        guard let line = lines.first(where: { $0.hasPrefix("0::") }) else { return nil }
        let group = line.dropFirst(3)
        return "/sys/fs/cgroup\(group == "/" ? "" : group)/memory.events"
    }
}
