import AgentCore
import CPlatform
import Glibc
import Synchronization

/// Why a program could not be started. Equal when stage and errno are.
public struct LaunchError: Error, Sendable, Equatable, CustomStringConvertible {
    public enum Stage: Sendable, Equatable {
        /// The kernel refused a process or a descriptor.
        case resources
        case workdir
        case program
    }

    public var stage: Stage
    public var errno: Int32
    /// For a person: what failed, naming the path.
    public var description: String

    public static func == (a: LaunchError, b: LaunchError) -> Bool { a.stage == b.stage && a.errno == b.errno }
}

/// How children differ from the daemon in priority.
public struct ChildPriority: Sendable, Equatable {
    /// Added to the daemon's niceness.
    public var niceIncrement: Int32
    /// -1000...1000.
    public var oomScoreAdjustment: Int32

    public init(niceIncrement: Int32 = 5, oomScoreAdjustment: Int32 = 998) {
        self.niceIncrement = niceIncrement
        self.oomScoreAdjustment = oomScoreAdjustment
    }
}

/// What to start. The caller owns the descriptors and closes them afterwards.
public struct LaunchRequest: Sendable {
    /// The program and its arguments; a program without `/` is looked up in the PATH of
    /// `environment`.
    public var arguments: [String]
    public var environment: [String: String]
    public var workdir: String
    /// nil is /dev/null.
    public var stdin: CInt?
    public var stdout: CInt
    public var stderr: CInt
    /// `stdin` is a terminal, which becomes the session's controlling one.
    public var onTerminal = false

    public init(
        arguments: [String], environment: [String: String], workdir: String, stdin: CInt? = nil, stdout: CInt,
        stderr: CInt
    ) {
        self.arguments = arguments
        self.environment = environment
        self.workdir = workdir
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
    }
}

/// A started program: leader of its own session, held by a pidfd that the receiver closes.
public struct LaunchedProcess: Sendable {
    public var pid: pid_t
    public var pidfd: CInt
    let session: OwnSession
    /// What of the kernel's figure for its memory may be ours, in bytes: until it executes its program, a child of vfork
    /// has our memory, and Linux counts the most that a process ever had. nil when it is not known.
    let borrowedBytes: Int64?
    /// Why a priority could not be set, if so.
    public var priorityProblem: String?
}

/// Starts every program of the daemon, and knows which children are ours to reap, so that reaping
/// orphans never steals the exit of one that was just started.
public final class Launcher: Sendable {
    private static let defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    private struct Children {
        var managed: Set<pid_t> = []
        var starting = 0
        /// What to do once no start is under way.
        var retry: (@Sendable () -> Void)?
    }

    private let devNull: CInt
    private let priority: ChildPriority?
    private let descriptorLimit: UInt64
    private let fileMask: CInt
    private let children = Mutex(Children())
    /// What shutdown has to end beside the sessions whose leaders run.
    let endedSessions = EndedSessions()

    /// - Parameters:
    ///   - priority: nil leaves children with the daemon's.
    ///   - descriptorLimit: soft RLIMIT_NOFILE of children, since the daemon raises its own; 0
    ///     leaves them the daemon's.
    ///   - fileMask: umask of children, since the daemon makes its own strict; nil leaves them the
    ///     daemon's.
    public init(priority: ChildPriority? = nil, descriptorLimit: UInt64 = 0, fileMask: mode_t? = nil) throws {
        let fd = wa_open("/dev/null", O_RDWR, 0)
        guard fd >= 0 else { throw CoreError.system(fd, "cannot open /dev/null") }
        devNull = fd
        self.priority = priority
        self.descriptorLimit = descriptorLimit
        self.fileMask = fileMask.map { CInt($0 & 0o777) } ?? -1
    }

    deinit { close(devNull) }

    /// Starts a program. Blocks for as long as execve takes, so call it on a blocking pool.
    public func launch(_ request: LaunchRequest) throws(LaunchError) -> LaunchedProcess {
        guard let program = request.arguments.first, !program.isEmpty else {
            throw LaunchError(stage: .program, errno: ENOENT, description: "no program given")
        }
        endedSessions.sweep()
        let path = try resolve(program, request)
        children.withLock { $0.starting += 1 }
        PeakMemory.forgetThatOfThisProcess()
        let result = spawn(path, request)
        guard result.pid > 0 else {
            settle(nil)
            throw Self.error(result, path: path, request)
        }
        settle(result.pid)
        endedSessions.numberWasGivenOut(result.pid)
        return LaunchedProcess(
            pid: result.pid, pidfd: result.pidfd, session: OwnSession(result.pid),
            borrowedBytes: PeakMemory.ofThisProcess(),
            priorityProblem: Self.priorityProblem(result))
    }

    /// Reaps a leader without waiting, on the reactor's thread.
    /// - Returns: 0 when it still runs; negative when something else in this process has reaped it.
    func reap(_ process: LaunchedProcess, _ status: inout wa_exit) -> CInt {
        process.session.leaderEnds(at: SessionProcesses.now())
        let result = wa_reap_pidfd(process.pidfd, &status)
        if result != 0 { forget(process) }
        return result
    }

    /// Kills and reaps a leader that nothing watches. Blocks until it is dead.
    func discard(_ process: LaunchedProcess) {
        _ = wa_pidfd_send_signal(process.pidfd, SIGKILL)
        process.session.leaderEnds(at: SessionProcesses.now())
        waitpid(process.pid, nil, 0)
        forget(process)
    }

    private func forget(_ process: LaunchedProcess) {
        children.withLock { _ = $0.managed.remove(process.pid) }
        endedSessions.add(process.session)
    }

    enum Ownership { case managed, orphan, undecided }

    /// Whose an exited child is. `undecided` while a start is under way; `retry` is called then
    /// once it is known.
    func ownership(of pid: pid_t, retry: @escaping @Sendable () -> Void) -> Ownership {
        children.withLock {
            if $0.managed.contains(pid) { return .managed }
            if $0.starting == 0 { return .orphan }
            $0.retry = retry
            return .undecided
        }
    }

    private func settle(_ pid: pid_t?) {
        let retry: (@Sendable () -> Void)? = children.withLock { children in
            if let pid { children.managed.insert(pid) }
            children.starting -= 1
            guard children.starting == 0 else { return nil }
            defer { children.retry = nil }
            return children.retry
        }
        retry?()
    }

    private func spawn(_ path: String, _ request: LaunchRequest) -> wa_spawn_result {
        var result = wa_spawn_result()
        withCStrings(request.arguments) { argv in
            withCStrings(request.environment.map { "\($0.key)=\($0.value)" }) { envp in
                path.withCString { path in
                    request.workdir.withCString { workdir in
                        var options = wa_spawn_options(
                            path: path, argv: argv, envp: envp, workdir: workdir,
                            stdin_fd: request.stdin ?? devNull, stdout_fd: request.stdout,
                            stderr_fd: request.stderr, set_priority: priority != nil,
                            nice_increment: priority?.niceIncrement ?? 0,
                            oom_score_adj: priority?.oomScoreAdjustment ?? 0, nofile_soft: descriptorLimit,
                            file_mask: fileMask, terminal: request.onTerminal)
                        wa_spawn(&options, &result)
                    }
                }
            }
        }
        return result
    }

    private func resolve(_ program: String, _ request: LaunchRequest) throws(LaunchError) -> String {
        if program.contains("/") { return program }
        var found = ENOENT
        for directory in (request.environment["PATH"] ?? Self.defaultPath).split(
            separator: ":", omittingEmptySubsequences: false)
        {
            let base = directory.hasPrefix("/") ? String(directory) : "\(request.workdir)/\(directory)"
            let candidate = "\(base)/\(program)"
            var info = stat()
            guard stat(candidate, &info) == 0, info.st_mode & S_IFMT == S_IFREG else { continue }
            if access(candidate, X_OK) == 0 { return candidate }
            found = EACCES
        }
        throw LaunchError(
            stage: .program, errno: found,
            description: found == EACCES ? "\(program): Permission denied" : "\(program): not found in PATH")
    }

    private static func error(_ result: wa_spawn_result, path: String, _ request: LaunchRequest) -> LaunchError {
        let reason = errnoText(result.error)
        return switch UInt32(result.stage) {
        case WA_SPAWN_CHDIR.rawValue:
            LaunchError(stage: .workdir, errno: result.error, description: "workdir \(request.workdir): \(reason)")
        case WA_SPAWN_EXEC.rawValue:
            LaunchError(stage: .program, errno: result.error, description: "\(path): \(reason)")
        case WA_SPAWN_FORK.rawValue:
            LaunchError(stage: .resources, errno: result.error, description: "cannot create a process: \(reason)")
        default:
            LaunchError(stage: .resources, errno: result.error, description: "cannot set up a process: \(reason)")
        }
    }

    private static func priorityProblem(_ result: wa_spawn_result) -> String? {
        var parts: [String] = []
        if result.nice_error != 0 { parts.append("niceness: \(errnoText(result.nice_error))") }
        if result.oom_error != 0 { parts.append("oom_score_adj: \(errnoText(result.oom_error))") }
        return parts.isEmpty ? nil : parts.joined(separator: ", ")
    }
}
