import Synchronization

/// A session that the launcher made, known by its number.
///
/// Numbers are given out again: a process in "session 123" may be in a later one. What is certain:
///
/// - The kernel gives a number to nothing new while a process has it or is in the session of that number,
///   zombies included. So it is this session's until the leader is reaped, and after that for as long as
///   something of the session has always been left.
/// - A process comes into a session by being born into it, or by founding it under its own number. So one
///   that is in the session of this number now, and was born before a moment at which the number was
///   certainly this session's, is of this session.
/// - When such a process is seen, dead and not yet reaped or alive, the number is certainly this session's
///   at that moment, too.
///
/// The latest such moment is kept. It begins with the leader's reaping and moves with each look at the
/// session and with each orphan of it that the reaper takes. The latter leaves no gap below a subreaper:
/// of what is left of the session the topmost processes are our children, and when one ends, everything
/// that is left was born before.
///
/// The kernel gives births in clock ticks of 10 ms. A process that was born in the very tick of that moment counts
/// when it descends from us. To be wrong about that, the number would have to become free, be given out
/// again (after all others: the kernel goes round), become a session of a process below us and be
/// left by that process, all within the tick.
final class OwnSession: Sendable {
    /// Also the leader's.
    let number: Int32
    /// The last moment at which the number was certainly this session's, in ticks since the boot; nil while
    /// the leader is not reaped.
    private let certain = Mutex<UInt64?>(nil)

    init(_ number: Int32) { self.number = number }

    /// The leader is about to be reaped.
    func leaderEnds(at now: UInt64) { certain.withLock { $0 = max($0 ?? 0, now) } }

    /// The last moment at which the number was certainly this session's.
    var certainUntil: UInt64 { certain.withLock { $0 } ?? .max }

    /// Those of the processes that are of this session.
    /// - Parameters:
    ///   - seen: processes in the session of this number, zombies among them, each seen after `begin`.
    ///   - descends: whether a process descends from us.
    func own(
        _ seen: [SessionProcesses.Identity], since begin: UInt64, descends: (SessionProcesses.Identity) -> Bool
    ) -> [SessionProcesses.Identity] {
        certain.withLock { certain in
            // Not reaped by now, so not when they were seen.
            guard let moment = certain else { return seen }
            func isOwn(_ process: SessionProcesses.Identity, _ moment: UInt64) -> Bool {
                // Its number is the former leader's: it has founded a session of its own.
                if process.pid == number { return false }
                return process.startTime < moment || process.startTime == moment && descends(process)
            }
            guard seen.contains(where: { isOwn($0, moment) }) else { return [] }
            let later = max(moment, begin)
            certain = later
            return seen.filter { isOwn($0, later) }
        }
    }
}
