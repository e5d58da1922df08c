import AgentCore
import Glibc

/// Where waits do what may take long, each kind on threads of its own: starts and signals never wait for it, and the
/// shutdown doesn't either.
public final class WaitWork: Sendable {
    /// Looks for patterns in output. It computes, so it leaves the cores to all others.
    let matching: BlockingPool
    /// Looks through /proc for those who listen on a port.
    let ports: BlockingPool
    /// Looks for files, maybe on a file system that does not answer.
    let files: BlockingPool
    /// Of those who hold output that is to be matched.
    let turns = TurnQueue(atOnce: ProcLimits.matchesAtOnce)

    /// Threads start when there is something to do, and end soon after it but for one of each kind.
    public init() {
        let cores = Int(sysconf(CInt(_SC_NPROCESSORS_ONLN)))
        matching = BlockingPool("matching", threads: max(1, cores / 2), niceness: 10)
        ports = BlockingPool("port-looks", threads: 1, niceness: 5)
        files = BlockingPool("file-looks", threads: 1, reserve: ProcLimits.hangingLooks - 1)
    }
}
