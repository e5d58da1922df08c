import AgentCore
import CPlatform
import Glibc

/// Finds and signals all processes of our sessions, as the kernel knows them at that moment.
struct SessionProcesses: Sendable {
    /// Looks for children that were forked while a signal was delivered, this often at most.
    private static let passes = 10

    var procfs = "/proc"

    /// What of `/proc/PID/stat` tells a process from a later one with its number.
    struct Identity: Hashable {
        var pid: pid_t
        var parent: pid_t
        var session: pid_t
        var startTime: UInt64
        var isZombie: Bool
    }

    enum Outcome: Equatable {
        case delivered(Int)
        /// No process of the session is left.
        case empty
        /// Processes are there, but none may be signalled.
        case refused(Int32)
    }

    /// Sends the signal to every process of the sessions.
    func signal(_ number: CInt, sessions: [OwnSession]) -> Outcome {
        var seen: Set<Identity> = []
        var delivered = 0
        var refusal: Int32?
        for _ in 0..<Self.passes {
            let fresh = members(of: sessions).filter { !seen.contains($0) }
                .sorted(by: Self.parentsFirst)
            if fresh.isEmpty { break }
            for identity in fresh {
                seen.insert(identity)
                switch send(number, to: identity) {
                case 0: delivered += 1
                case ESRCH: break
                case let failure: refusal = failure
                }
            }
        }
        if delivered > 0 { return .delivered(delivered) }
        return refusal.map { .refused($0) } ?? .empty
    }

    /// Leaders, then older processes: a shell whose child is hit before it would go on with the next
    /// command of its script.
    private static func parentsFirst(_ a: Identity, _ b: Identity) -> Bool {
        let (aLeads, bLeads) = (a.pid == a.session, b.pid == b.session)
        if aLeads != bLeads { return aLeads }
        return (a.startTime, a.pid) < (b.startTime, b.pid)
    }

    /// The processes of the sessions that still run, zombies left out.
    func members(of sessions: [OwnSession]) -> [Identity] {
        let numbers = Set(sessions.map(\.number))
        let begin = Self.now()
        let all = processes()
        let found = Dictionary(grouping: all.values.filter { numbers.contains($0.session) }, by: \.session)
        let own = sessions.flatMap { session in
            session.own(found[session.number] ?? [], since: begin) { descendsFromUs($0, all) }
        }
        return Set(own).filter { !$0.isZombie }
    }

    /// All processes, zombies among them.
    func processes() -> [pid_t: Identity] {
        var all: [pid_t: Identity] = [:]
        for entry in directoryEntries(procfs) {
            guard let pid = pid_t(entry), let identity = identity(pid) else { continue }
            all[pid] = identity
        }
        return all
    }

    /// Now in the unit of ``Identity/startTime``: clock ticks since the boot, suspended time included.
    static func now() -> UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return UInt64(max(0, time.tv_sec)) * ticks + UInt64(max(0, time.tv_nsec)) * ticks / 1_000_000_000
    }

    private static let ticks = UInt64(max(1, sysconf(CInt(_SC_CLK_TCK))))

    /// - Returns: 0, or an errno: ESRCH when it is gone.
    func send(_ number: CInt, to identity: Identity) -> Int32 {
        let pidfd = wa_pidfd_open(identity.pid)
        guard pidfd >= 0 else { return -pidfd }
        defer { close(pidfd) }
        // The descriptor now holds the process that has the number; make sure that it is still the same.
        guard let now = self.identity(identity.pid), now.startTime == identity.startTime,
            now.session == identity.session
        else { return ESRCH }
        return -wa_pidfd_send_signal(pidfd, number)
    }

    private func descendsFromUs(_ identity: Identity, _ all: [pid_t: Identity]) -> Bool {
        let own = getpid()
        var current = identity.parent
        for _ in 0..<all.count {
            if current == own { return true }
            guard let parent = all[current]?.parent, parent != current else { return false }
            current = parent
        }
        return false
    }

    func identity(_ pid: pid_t) -> Identity? {
        guard let bytes = readFile("\(procfs)/\(pid)/stat") else { return nil }
        return Self.parse(bytes, pid: pid)
    }

    /// Reads proc(5)'s stat line, as bytes: this runs for every process of the machine at each signal.
    /// The name in parentheses may hold anything, `)` included.
    static func parse(_ line: [UInt8], pid: pid_t) -> Identity? {
        guard let end = line.lastIndex(of: UInt8(ascii: ")")), end + 2 < line.count else { return nil }
        let state = line[end + 2]
        // Field 3 of the manual page is the state; 4 the parent, 6 the session, 22 the start time.
        var field = 3
        var numbers: [Int: UInt64] = [:]
        var index = end + 3
        while index < line.count, field < 22 {
            field += 1
            var value: UInt64 = 0
            var digits = 0
            index += 1
            while index < line.count, case let byte = line[index], byte != UInt8(ascii: " ") {
                if byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9"), value < 1 << 59 {
                    value = value * 10 + UInt64(byte - UInt8(ascii: "0"))
                    digits += 1
                }
                index += 1
            }
            if digits > 0, field == 4 || field == 6 || field == 22 { numbers[field] = value }
        }
        guard let parent = numbers[4].flatMap({ pid_t(exactly: $0) }),
            let session = numbers[6].flatMap({ pid_t(exactly: $0) }), let start = numbers[22]
        else { return nil }
        return Identity(
            pid: pid, parent: parent, session: session, startTime: start,
            isZombie: state == UInt8(ascii: "Z") || state == UInt8(ascii: "X"))
    }
}

/// The names of signals in the process API.
public enum SignalName {
    private static let numbers: [String: CInt] = [
        "kill": SIGKILL, "terminate": SIGTERM, "SIGHUP": SIGHUP, "SIGINT": SIGINT, "SIGQUIT": SIGQUIT,
        "SIGUSR1": SIGUSR1, "SIGUSR2": SIGUSR2, "SIGCONT": SIGCONT, "SIGSTOP": SIGSTOP,
    ]
    private static let names: [CInt: String] = [
        SIGHUP: "SIGHUP", SIGINT: "SIGINT", SIGQUIT: "SIGQUIT", SIGILL: "SIGILL", SIGTRAP: "SIGTRAP",
        SIGABRT: "SIGABRT", SIGBUS: "SIGBUS", SIGFPE: "SIGFPE", SIGKILL: "SIGKILL", SIGUSR1: "SIGUSR1",
        SIGSEGV: "SIGSEGV", SIGUSR2: "SIGUSR2", SIGPIPE: "SIGPIPE", SIGALRM: "SIGALRM", SIGTERM: "SIGTERM",
        SIGCHLD: "SIGCHLD", SIGCONT: "SIGCONT", SIGSTOP: "SIGSTOP", SIGTSTP: "SIGTSTP", SIGTTIN: "SIGTTIN",
        SIGTTOU: "SIGTTOU", SIGURG: "SIGURG", SIGXCPU: "SIGXCPU", SIGXFSZ: "SIGXFSZ",
        SIGVTALRM: "SIGVTALRM", SIGPROF: "SIGPROF", SIGWINCH: "SIGWINCH", SIGIO: "SIGIO", SIGPWR: "SIGPWR",
        SIGSYS: "SIGSYS", 16: "SIGSTKFLT",
    ]

    /// The names that the API takes.
    public static var accepted: [String] { numbers.sorted { $0.value < $1.value }.map(\.key) }

    /// The number of a name that the API takes.
    public static func number(_ name: String) -> CInt? { numbers[name] }

    /// The number behind the name of a signal that ended a process; nil for what is no such name.
    public static func number(ofEnd name: String) -> CInt? { (1..<65).first { Self.name($0) == name } }

    /// The name of a signal that ended a process; real-time signals as `SIGRTMIN+N`.
    public static func name(_ number: CInt) -> String {
        if let name = names[number] { return name }
        // Linux numbers them from 34, since the C library keeps two for itself.
        return number == 34 ? "SIGRTMIN" : number > 34 ? "SIGRTMIN+\(number - 34)" : "signal \(number)"
    }
}
