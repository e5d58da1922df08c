import AgentCore
import CPlatform
import Glibc
import Synchronization

/// The worker process: reads requests from stdin, answers on stdout, and ends with the daemon. libgit2
/// has one thread here and the git CLI another, so that a slow repository of one kind does not hold up
/// those of the other.
package enum GitWorker {
    /// The hidden command of the executable.
    package static let command = "git-worker"

    /// Returns when the daemon has closed its end.
    package static func run() {
        wa_ignore_sigpipe()
        wa_limit_malloc_arenas(2)
        wa_limit_memory(GitWatchLimits.workerAddressSpace, GitWatchLimits.workerDataBytes)
        let out = WorkerOutput()
        let cli = CLILane(out)
        let plain = LibgitLane(out, cli)
        guard startThread("git-cli", { cli.jobs.serve { cli.handle($0) } }),
            startThread("git-scan", { plain.jobs.serve { plain.handle($0) } })
        else { return }
        var frames = FrameSplitter()
        var area = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            var polls = [
                pollfd(fd: 0, events: Int16(POLLIN), revents: 0),
                pollfd(fd: out.wake, events: Int16(POLLIN), revents: 0),
            ]
            guard poll(&polls, 2, -1) > 0 else { continue }
            if polls[1].revents != 0, !out.flush() { return }
            guard polls[0].revents != 0 else { continue }
            let count = wa_read(0, &area, area.count)
            guard count > 0 else { return }
            let whole = area.withUnsafeBytes { frames.add(UnsafeRawBufferPointer(rebasing: $0[..<count])) }
            guard let whole else { return }
            for frame in whole {
                guard let request = WorkerFrames.request(frame) else { return }
                plain.jobs.add(request)
            }
        }
    }
}

/// Answers on their way out; the main thread writes them.
final class WorkerOutput: Sendable {
    let wake = wa_eventfd()
    private let waiting = Mutex<[[UInt8]]>([])

    func send(_ id: UInt32, _ body: WorkerReply.Body) {
        let frame = WorkerFrames.encode(WorkerReply(id: id, body: body))
        waiting.withLock { $0.append(frame) }
        wa_eventfd_signal(wake)
    }

    /// False when the daemon is gone.
    func flush() -> Bool {
        wa_eventfd_drain(wake)
        let frames = waiting.withLock { waiting in
            defer { waiting = [] }
            return waiting
        }
        for frame in frames {
            var rest = frame[...]
            while !rest.isEmpty {
                let count = rest.withUnsafeBytes { write(1, $0.baseAddress, $0.count) }
                if count < 0 && errno == EINTR { continue }
                guard count > 0 else { return false }
                rest = rest.dropFirst(count)
            }
        }
        return true
    }
}

/// Requests of one thread.
final class JobQueue: Sendable {
    private let wake = wa_eventfd()
    private let waiting = Mutex<[WorkerRequest]>([])

    func add(_ request: WorkerRequest) {
        waiting.withLock { $0.append(request) }
        wa_eventfd_signal(wake)
    }

    func serve(_ body: (WorkerRequest) -> Void) {
        while true {
            let next = waiting.withLock { $0.isEmpty ? nil : $0.removeFirst() }
            if let next {
                body(next)
                continue
            }
            var ready = pollfd(fd: wake, events: Int16(POLLIN), revents: 0)
            poll(&ready, 1, -1)
            wa_eventfd_drain(wake)
        }
    }
}

/// What was last sent of each repository.
struct SentDigests {
    private var digests: [String: Int] = [:]

    mutating func body(_ request: WorkerRequest, _ snapshot: RepositorySnapshot, byCLI: Bool) -> WorkerReply.Body {
        var hasher = Hasher()
        hasher.combine(snapshot.branch)
        hasher.combine(snapshot.origin)
        snapshot.diff.withUnsafeBytes { hasher.combine(bytes: $0) }
        let digest = hasher.finalize()
        if request.hasSnapshot, digests[request.root] == digest { return .unchanged(byCLI: byCLI) }
        digests[request.root] = digest
        return .snapshot(snapshot, byCLI: byCLI)
    }

    mutating func forget(_ root: String) { digests[root] = nil }
}

/// The thread of the git CLI.
final class CLILane: Sendable {
    let jobs = JobQueue()
    let command = GitCommand(environment: EnvironmentBuilder.current())
    private let out: WorkerOutput
    // This lane's thread alone; a Mutex because the class is Sendable.
    private let sent = Mutex(SentDigests())

    init(_ out: WorkerOutput) { self.out = out }

    func handle(_ request: WorkerRequest) {
        do {
            guard let tree = Discovery.workTree(at: request.root) else {
                throw ScanError(.gone, "\(request.root) is no repository any more")
            }
            let repository = CLIRepository(command: command, tree: tree)
            switch request.kind {
            case .scan:
                let snapshot = try repository.snapshot()
                out.send(request.id, sent.withLock { $0.body(request, snapshot, byCLI: true) })
            case .directories:
                let limit = GitWatchLimits.watchesPerRepository
                let found = try repository.directories(below: request.paths, limit: limit)
                out.send(
                    request.id,
                    .directories(
                        found, git: GitDirectories.of(tree), complete: found.count <= limit))
            case .forget: sent.withLock { $0.forget(request.root) }
            case .resolve: break
            }
        } catch let error as ScanError {
            out.send(request.id, .failed(error))
        } catch {
            out.send(request.id, .failed(ScanError(.failed, "\(error)")))
        }
    }
}

/// The thread of libgit2, which also decides what goes to the CLI.
final class LibgitLane: Sendable {
    private struct State {
        var library: Libgit?
        var isLoaded = false
        var open: [String: PlainRepository] = [:]
        /// Most recent last.
        var order: [String] = []
        var byCLI: Set<String> = []
        var sent = SentDigests()
    }

    // This lane's thread alone touches it (libgit2's objects are not Sendable), which is what the
    // compiler cannot see; the jobs are what others hand over.
    private nonisolated(unsafe) var state = State()
    let jobs = JobQueue()
    private let out: WorkerOutput
    private let cli: CLILane

    init(_ out: WorkerOutput, _ cli: CLILane) {
        self.out = out
        self.cli = cli
    }

    func handle(_ request: WorkerRequest) {
        switch request.kind {
        case .resolve: out.send(request.id, .resolved(Discovery.root(of: request.root)))
        case .forget:
            close(request.root)
            state.sent.forget(request.root)
            state.byCLI.remove(request.root)
            cli.jobs.add(request)
        case .scan:
            if request.avoidsLibgit || (state.byCLI.contains(request.root) && !request.full) {
                close(request.root)
                return toCLI(request, ScanError(.needsCLI, "libgit2 cannot read it"))
            }
            answer(request) { try scan(request) }
        case .directories:
            guard let repository = state.open[request.root] else { return cli.jobs.add(request) }
            answer(request) {
                let limit = GitWatchLimits.watchesPerRepository
                let found = try repository.directories(below: request.paths, limit: limit)
                return .directories(found, git: GitDirectories.of(repository.tree), complete: found.count <= limit)
            }
        }
    }

    private func answer(_ request: WorkerRequest, _ body: () throws -> WorkerReply.Body) {
        out.send(request.id, .started)
        do {
            out.send(request.id, try body())
        } catch let error as ScanError where error.code == .needsCLI {
            close(request.root)
            state.byCLI.insert(request.root)
            toCLI(request, error)
        } catch let error as ScanError {
            close(request.root)
            out.send(request.id, .failed(error))
        } catch {
            close(request.root)
            out.send(request.id, .failed(ScanError(.failed, "\(error)")))
        }
    }

    private func toCLI(_ request: WorkerRequest, _ why: ScanError) {
        guard cli.command.path != nil else {
            let text = "\(request.root) needs the git program, which is not installed (\(why.description))"
            return out.send(request.id, .failed(ScanError(.refused, text)))
        }
        cli.jobs.add(request)
    }

    private func scan(_ request: WorkerRequest) throws -> WorkerReply.Body {
        guard let tree = Discovery.workTree(at: request.root) else {
            throw ScanError(.gone, "\(request.root) is no repository any more")
        }
        // git knows what safe.directory says.
        guard Discovery.isOwn(tree) else { throw ScanError(.needsCLI, "it belongs to another user") }
        if !state.isLoaded {
            state.isLoaded = true
            state.library = Libgit.load().library
        }
        guard let library = state.library else { throw ScanError(.needsCLI, "there is no libgit2") }
        if let open = state.open[request.root], !request.full, open.tree == tree, try open.update(request.paths) {
            return state.sent.body(request, try open.snapshot(), byCLI: false)
        }
        close(request.root)
        let fresh = try PlainRepository(library, tree, command: cli.command)
        state.byCLI.remove(request.root)
        if state.order.count >= GitWatchLimits.openRepositories, let oldest = state.order.first { close(oldest) }
        state.open[request.root] = fresh
        state.order.append(request.root)
        return state.sent.body(request, try fresh.snapshot(), byCLI: false)
    }

    private func close(_ root: String) {
        state.open[root] = nil
        state.order.removeAll { $0 == root }
    }
}

/// The directories of git whose files tell that HEAD, index, rules or settings changed.
enum GitDirectories {
    private static let maximum = 64

    static func of(_ tree: WorkTree) -> [String] {
        var found = [tree.gitDirectory]
        if tree.commonDirectory != tree.gitDirectory { found.append(tree.commonDirectory) }
        var waiting = ["\(tree.commonDirectory)/info", "\(tree.commonDirectory)/refs"]
        if tree.commonDirectory != tree.gitDirectory { waiting.append("\(tree.gitDirectory)/info") }
        waiting.append("\(tree.commonDirectory)/reftable")
        while !waiting.isEmpty, found.count < maximum {
            let directory = waiting.removeFirst()
            guard Discovery.isDirectory(directory) else { continue }
            found.append(directory)
            guard directory.hasPrefix("\(tree.commonDirectory)/refs") else { continue }
            for name in directoryEntries(directory) where name != "remotes" && name != "tags" {
                waiting.append("\(directory)/\(name)")
            }
        }
        return found
    }

    /// Whether a change of this name says anything: locks and messages come and go.
    static func matters(_ name: String) -> Bool {
        !name.hasSuffix(".lock")
            && ![
                "COMMIT_EDITMSG", "FETCH_HEAD", "ORIG_HEAD", "MERGE_MSG", "objects", "logs", "gc.pid", "hooks",
                "description", "branches", "worktrees", "modules", "fsmonitor--daemon.ipc", "REBASE_HEAD",
            ].contains(name)
    }
}
