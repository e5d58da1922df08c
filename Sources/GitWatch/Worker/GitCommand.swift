import AgentCore
import CPlatform
import Glibc

/// Runs the git CLI from the worker: no pager, no hooks, no file system monitor, no optional locks, no
/// network (docs/contracts/git-watch.md#untrusted-repositories). Blocks; on the worker's threads only.
struct GitCommand {
    /// Where git is; nil when there is none.
    let path: String?
    /// Whole environment of every git.
    let environment: [String: String]

    init(environment: [String: String]) {
        var own = environment.filter { !$0.key.hasPrefix("GIT_") || Self.kept.contains($0.key) }
        own["LC_ALL"] = "C"
        own["GIT_OPTIONAL_LOCKS"] = "0"
        own["GIT_TERMINAL_PROMPT"] = "0"
        own["GIT_ALLOW_PROTOCOL"] = "none"
        own["GIT_NO_LAZY_FETCH"] = "1"
        own["GIT_LITERAL_PATHSPECS"] = "1"
        self.environment = own
        let places = (environment["PATH"] ?? "/usr/local/bin:/usr/bin:/bin").split(separator: ":")
        path = places.lazy.filter { $0.hasPrefix("/") }.map { "\($0)/git" }.first { access($0, X_OK) == 0 }
    }

    /// Variables that say whose configuration counts; all others that git knows could change what is read.
    static let kept: Set<String> = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"]

    static let always = [
        "--no-pager", "--no-optional-locks", "-c", "diff.autoRefreshIndex=false", "-c", "core.quotePath=true",
        "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never",
    ]

    struct Run {
        var arguments: [String]
        var extra: [String: String] = [:]
        /// What it reads from stdin.
        var input: [UInt8] = []
        /// Gets stdout piece by piece.
        var output: (UnsafeRawBufferPointer) throws -> Void
    }

    struct Ended {
        /// -1 for death by signal.
        var status: Int32
        var errors: String
    }

    fileprivate struct Child {
        var pid: pid_t
        var out: CInt
        var err: CInt
        var errors: [UInt8] = []
    }

    /// Runs them side by side in the directory and returns when all have ended.
    /// - Throws: ``ScanError`` `.refused` without git, `.failed` when one cannot start, `.hung` when one takes too long;
    ///   what an `output` throws. All are ended then.
    func run(_ runs: [Run], in directory: String) throws -> [Ended] {
        try begin(runs, in: directory).finish()
    }

    /// Starts them and leaves them to work; what they print beyond a pipe's buffer waits for ``Pending/finish()``.
    func begin(_ runs: [Run], in directory: String) throws -> Pending {
        guard let path else { throw ScanError(.refused, "there is no git in PATH; install git to see this repository") }
        let pending = Pending()
        for run in runs {
            pending.children.append(try start(path, run, directory))
            pending.runs.append(run)
        }
        return pending
    }

    /// Processes under way; ended when their result is not needed any more.
    final class Pending {
        fileprivate var children: [Child] = []
        fileprivate var runs: [Run] = []

        deinit { for child in children { GitCommand.discard(child) } }

        func finish() throws -> [Ended] {
            try GitCommand.drain(&children, runs)
            var ended: [Ended] = []
            for index in children.indices {
                var status: Int32 = 0
                while waitpid(children[index].pid, &status, 0) < 0 && errno == EINTR {}
                children[index].pid = -1
                ended.append(
                    Ended(
                        status: status & 0x7F == 0 ? (status >> 8) & 0xFF : -1,
                        errors: String(decoding: children[index].errors, as: UTF8.self)))
            }
            return ended
        }
    }

    /// Runs one and collects its output.
    func collect(_ arguments: [String], in directory: String) throws -> (ended: Ended, output: [UInt8]) {
        var bytes: [UInt8] = []
        let ended = try run([Self.collecting(arguments) { bytes = $0 }], in: directory)
        guard let first = ended.first else { throw ScanError(.failed, "git did not run") }
        return (first, bytes)
    }

    /// A run that collects its output, up to ``GitWatchLimits/listingBytes``, for `store`.
    static func collecting(
        _ arguments: [String], extra: [String: String] = [:], input: [UInt8] = [],
        store: @escaping ([UInt8]) -> Void
    ) -> Run {
        var bytes: [UInt8] = []
        return Run(arguments: arguments, extra: extra, input: input) { piece in
            bytes.append(contentsOf: piece)
            guard bytes.count <= GitWatchLimits.listingBytes else {
                throw ScanError(.failed, "git listed more than \(GitWatchLimits.listingBytes >> 20) MiB of names")
            }
            store(bytes)
        }
    }

    fileprivate static func drain(_ children: inout [Child], _ runs: [Run]) throws {
        let area = UnsafeMutableRawBufferPointer.allocate(byteCount: 128 << 10, alignment: 16)
        defer { area.deallocate() }
        let deadline = ContinuousClock.now + .seconds(GitWatchLimits.gitSeconds)
        while true {
            var polls: [pollfd] = []
            var owners: [(index: Int, isError: Bool)] = []
            for (index, child) in children.enumerated() {
                for (fd, isError) in [(child.out, false), (child.err, true)] where fd >= 0 {
                    polls.append(pollfd(fd: fd, events: Int16(POLLIN), revents: 0))
                    owners.append((index, isError))
                }
            }
            if polls.isEmpty { return }
            let left = ContinuousClock.now.duration(to: deadline).components.seconds
            guard left > 0 else {
                throw ScanError(.hung, "git took longer than \(GitWatchLimits.gitSeconds) s")
            }
            guard poll(&polls, nfds_t(polls.count), CInt(clamping: left * 1000)) > 0 else { continue }
            for (entry, owner) in zip(polls, owners) where entry.revents != 0 {
                let count = wa_read(entry.fd, area.baseAddress, area.count)
                if count == Int(-EAGAIN) { continue }
                if count <= 0 {
                    close(entry.fd)
                    if owner.isError { children[owner.index].err = -1 } else { children[owner.index].out = -1 }
                    continue
                }
                let piece = UnsafeRawBufferPointer(rebasing: area[..<count])
                if owner.isError {
                    let room = max(0, 4096 - children[owner.index].errors.count)
                    children[owner.index].errors.append(contentsOf: piece.prefix(room))
                } else {
                    try runs[owner.index].output(piece)
                }
            }
        }
    }

    private func start(_ path: String, _ run: Run, _ directory: String) throws -> Child {
        guard let out = try? makePipe() else { throw ScanError(.failed, "cannot create a pipe for git") }
        defer { close(out.write) }
        guard let err = try? makePipe() else {
            close(out.read)
            throw ScanError(.failed, "cannot create a pipe for git")
        }
        defer { close(err.write) }
        _ = wa_set_pipe_size(out.write, 256 << 10)
        let input = try run.input.isEmpty ? wa_open("/dev/null", O_RDONLY, 0) : Self.file(run.input)
        defer { if input >= 0 { close(input) } }
        var result = wa_spawn_result()
        var all = environment.merging(run.extra) { _, new in new }
        // Where it finds no repository here, it is not to take one further up for it.
        if let slash = directory.lastIndex(of: "/") { all["GIT_CEILING_DIRECTORIES"] = String(directory[..<slash]) }
        let variables = all.map { "\($0.key)=\($0.value)" }
        withCStrings(["git"] + Self.always + run.arguments) { argv in
            withCStrings(variables) { envp in
                path.withCString { path in
                    directory.withCString { directory in
                        var options = wa_spawn_options()
                        options.path = path
                        options.argv = argv
                        options.envp = envp
                        options.workdir = directory
                        options.stdin_fd = input
                        options.stdout_fd = out.write
                        options.stderr_fd = err.write
                        options.file_mask = -1
                        wa_spawn_bound(&options, &result)
                    }
                }
            }
        }
        guard result.pid > 0 else {
            close(out.read)
            close(err.read)
            if result.stage == Int32(WA_SPAWN_CHDIR.rawValue), [ENOENT, ENOTDIR].contains(result.error) {
                throw ScanError(.transient, "\(directory) is gone")
            }
            throw ScanError(.failed, "cannot start \(path): \(errnoText(result.error))")
        }
        return Child(pid: result.pid, out: out.read, err: err.read)
    }

    /// The bytes as a file in memory, to be read from its beginning.
    private static func file(_ bytes: [UInt8]) throws -> CInt {
        let descriptor = wa_memfd("git-input")
        guard descriptor >= 0 else { throw ScanError(.failed, "no memory file for git: \(errnoText(-descriptor))") }
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            guard count > 0 else {
                close(descriptor)
                throw ScanError(.failed, "cannot write a memory file for git")
            }
            rest = rest.dropFirst(count)
        }
        lseek(descriptor, 0, SEEK_SET)
        return descriptor
    }

    fileprivate static func discard(_ child: Child) {
        if child.out >= 0 { close(child.out) }
        if child.err >= 0 { close(child.err) }
        guard child.pid > 0 else { return }
        // The leader of a session of its own: what it started goes, too.
        kill(-child.pid, SIGKILL)
        kill(child.pid, SIGKILL)
        while waitpid(child.pid, nil, 0) < 0 && errno == EINTR {}
    }
}
