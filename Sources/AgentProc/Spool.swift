import AgentCore
import DequeModule
import Glibc
import NIOCore
import Synchronization

/// The complete output of processes, on disk (docs/contracts/process-api.md#spool).
///
/// One thread writes for all processes, so that a slow disk never holds up the capture. Within the
/// limits nothing is left out; what a limit or a failing disk cuts off is known and said (410).
public final class SpoolStore: Sendable {
    private struct State {
        var bytes = 0
        /// Spools of exited processes, oldest first; discarded ones stay until they come up.
        var finished = Deque<Spool>()
    }

    private let directory: String
    private let disk: BlockingPool
    private let state = Mutex(State())
    let processLimit: Int
    let totalLimit: Int

    /// - Parameters:
    ///   - directory: created with mode 0700; what an earlier run of the daemon left in it is removed.
    ///   - disk: the thread that writes.
    public init(
        directory: String, disk: BlockingPool, processLimit: Int = ProcLimits.spoolBytes,
        totalLimit: Int = ProcLimits.spoolTotalBytes
    ) throws {
        self.directory = directory
        self.disk = disk
        self.processLimit = processLimit
        self.totalLimit = totalLimit
        try createDirectories(directory, mode: 0o700)
        // What is removed below lies in it, not where a link in its place leads.
        try requirePrivateDirectory(directory)
        for name in directoryEntries(directory) where name.hasSuffix(".out") { unlink("\(directory)/\(name)") }
    }

    /// Bytes on disk or on their way there.
    public var bytes: Int { state.withLock { $0.bytes } }

    func makeSpool(id: String) -> Spool {
        Spool(path: "\(directory)/\(id).out", limit: processLimit, disk: disk, store: self)
    }

    /// Takes room, at the cost of exited processes' spools.
    func reserve(_ count: Int) -> Bool {
        let (granted, evicted) = state.withLock { state in
            var evicted: [Spool] = []
            while state.bytes + count > totalLimit, !state.finished.isEmpty {
                let oldest = state.finished.removeFirst()
                let freed = oldest.discard()
                guard freed > 0 else { continue }
                state.bytes -= freed
                evicted.append(oldest)
            }
            guard state.bytes + count <= totalLimit else { return (false, evicted) }
            state.bytes += count
            return (true, evicted)
        }
        for spool in evicted { spool.removeFile() }
        return granted
    }

    func release(_ count: Int) { state.withLock { $0.bytes -= count } }

    /// The process exited and its output is complete: from now on its spool may be evicted.
    func finished(_ spool: Spool) {
        guard spool.isUsed else { return }
        state.withLock { state in
            state.finished.append(spool)
            // Now and then the discarded ones are swept out, so that they cannot pile up.
            if state.finished.count > 2 * ProcLimits.exited { state.finished.removeAll { $0.isDiscarded } }
        }
        spool.closeWriter()
    }

    /// The disk failed: what was written is given back.
    func abandon(_ spool: Spool) {
        guard spool.isUsed else { return }
        state.withLock { $0.bytes -= spool.discard() }
        spool.removeFile()
    }

    /// Returns once everything asked for before has been done on disk.
    func settle() async {
        try? await disk.runToEnd {}
    }

    /// The process is forgotten.
    func remove(_ spool: Spool) { abandon(spool) }
}

/// One process's output on disk.
final class Spool: Sendable {
    enum Verdict: Equatable {
        case accepted
        /// Too much waits for the disk: hold the pipe until ``onDrained``.
        case hold
        /// The spool takes nothing more.
        case off
    }

    enum Availability: Equatable {
        /// Offsets below this can be read.
        case upTo(Int)
        case dropped(String)
    }

    private struct State {
        var descriptor: CInt = -1
        var created = false
        var pending: [ByteBuffer] = []
        var pendingBytes = 0
        var accepted = 0
        var written = 0
        var draining = false
        var off: String?
        var holding = false
        var discarded = false
        /// Fulfilled when what waits is on disk, or will never be.
        var flushed: Promise<Void>?
        var onDrained: (@Sendable () -> Void)?
        /// Those who wait for something to be written; woken once.
        var followers: [ObjectIdentifier: OutputFollower] = [:]
    }

    private let path: String
    private let limit: Int
    private let disk: BlockingPool
    private let store: SpoolStore
    private let state = Mutex(State())

    init(path: String, limit: Int, disk: BlockingPool, store: SpoolStore) {
        self.path = path
        self.limit = limit
        self.disk = disk
        self.store = store
    }

    deinit {
        let descriptor = state.withLock { $0.descriptor }
        if descriptor >= 0 { close(descriptor) }
    }

    /// Called on the disk thread once waiting output has gone to disk.
    func setOnDrained(_ handler: @escaping @Sendable () -> Void) { state.withLock { $0.onDrained = handler } }

    /// Queues bytes for the disk; never blocks.
    func append(_ bytes: UnsafeRawBufferPointer) -> Verdict {
        let room = state.withLock { $0.off == nil && !$0.discarded ? limit - $0.accepted : 0 }
        let count = min(room, bytes.count)
        guard count > 0 else { return .off }
        guard store.reserve(count) else {
            giveUp("the spools of all processes are full")
            return .off
        }
        let (start, verdict) = state.withLock { state -> (Bool, Verdict) in
            guard state.off == nil, !state.discarded else { return (false, .off) }
            state.pending.append(ByteBuffer(bytes: UnsafeRawBufferPointer(rebasing: bytes.prefix(count))))
            state.pendingBytes += count
            state.accepted += count
            let start = !state.draining
            state.draining = true
            state.holding = state.pendingBytes >= ProcLimits.spoolPendingBytes
            return (start, state.holding ? .hold : .accepted)
        }
        if verdict == .off { store.release(count) }
        if start {
            disk.submit { [self] runs in
                guard !runs else { return drain() }
                giveUp("no thread could write it: the agent was shutting down, or the kernel refused the thread")
            }
        }
        return verdict
    }

    /// Whether so much waits for the disk that the pipe is to be held.
    var isHolding: Bool { state.withLock { $0.holding } }

    /// The disk took too long: nothing more is kept.
    func giveUp(_ reason: String) {
        let (flushed, callback) = state.withLock { state in
            if state.off == nil { state.off = reason }
            let callback = state.holding ? state.onDrained : nil
            state.holding = false
            return (state.flushed.take(), callback)
        }
        flushed?.fulfill()
        callback?()
        wakeFollowers()
    }

    /// What can be read, once all that was accepted is on disk.
    func availability() async -> Availability {
        let flushed = state.withLock { state -> Promise<Void>? in
            guard state.draining, state.off == nil, !state.discarded else { return nil }
            let flushed = state.flushed ?? Promise()
            state.flushed = flushed
            return flushed
        }
        await flushed?.valueIgnoringCancellation
        return state.withLock { state in
            if let reason = state.off { return .dropped(reason) }
            if state.discarded { return .dropped("it was dropped to make room for newer output") }
            return .upTo(state.written)
        }
    }

    enum Reach: Equatable {
        /// Offsets below this are on disk.
        case upTo(Int)
        /// It is on its way to the disk; the follower is woken.
        case soon
        case gone
    }

    /// Whether the byte at an offset can be read.
    func reach(_ offset: Int, for follower: OutputFollower) -> Reach {
        state.withLock { state in
            if state.off != nil || state.discarded || offset >= state.accepted { return .gone }
            if offset < state.written { return .upTo(state.written) }
            state.followers[ObjectIdentifier(follower)] = follower
            return .soon
        }
    }

    private func wakeFollowers() {
        let followers = state.withLock { state in
            defer { state.followers = [:] }
            return state.followers
        }
        for follower in followers.values { follower.wake() }
    }

    /// Reads from disk; blocks, so call it on a blocking pool.
    func read(offset: Int, count: Int) throws -> ByteBuffer {
        let descriptor = try OwnFile.open(path, O_RDONLY)
        defer { close(descriptor) }
        var buffer = ByteBuffer()
        var failure: Int32 = 0
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: count) { area in
            let n = pread(descriptor, area.baseAddress, count, off_t(offset))
            if n < 0 { failure = errno }
            return max(n, 0)
        }
        if failure != 0 { throw CoreError.system(failure, "cannot read \(path)") }
        return buffer
    }

    /// Whether anything was ever put in.
    var isUsed: Bool { state.withLock { $0.accepted > 0 } }
    var isDiscarded: Bool { state.withLock { $0.discarded } }

    /// - Returns: the bytes that are given back to the store, once.
    func discard() -> Int {
        state.withLock { state in
            guard !state.discarded else { return 0 }
            state.discarded = true
            return state.accepted
        }
    }

    /// Output is complete: the descriptor goes once all is written.
    func closeWriter() { disk.submit { [self] _ in closeDescriptor() } }

    func removeFile() {
        disk.submit { [self] _ in
            closeDescriptor()
            if state.withLock({ $0.created }) { unlink(path) }
        }
    }

    // On the disk thread from here.

    private func closeDescriptor() {
        let descriptor = state.withLock { state in
            defer { state.descriptor = -1 }
            return state.descriptor
        }
        if descriptor >= 0 { close(descriptor) }
    }

    private func drain() {
        while true {
            let batch: [ByteBuffer]? = state.withLock { state in
                guard !state.pending.isEmpty, state.off == nil, !state.discarded else { return nil }
                defer { state.pending = [] }
                return state.pending
            }
            guard let batch else { return finishDrain() }
            for buffer in batch {
                do {
                    try write(buffer)
                } catch {
                    giveUp("it could not be kept: \(error)")
                    store.abandon(self)
                    break
                }
            }
            let callback = state.withLock { state -> (@Sendable () -> Void)? in
                let done = batch.reduce(0) { $0 + $1.readableBytes }
                state.pendingBytes -= done
                guard state.holding, state.pendingBytes < ProcLimits.spoolPendingBytes / 2 else { return nil }
                state.holding = false
                return state.onDrained
            }
            callback?()
            wakeFollowers()
        }
    }

    private func finishDrain() {
        let flushed = state.withLock { state in
            state.draining = false
            if state.off != nil || state.discarded {
                state.pending = []
                state.pendingBytes = 0
            }
            return state.flushed.take()
        }
        flushed?.fulfill()
        wakeFollowers()
    }

    private func write(_ buffer: ByteBuffer) throws(CoreError) {
        var descriptor = state.withLock { $0.descriptor }
        if descriptor < 0 {
            descriptor = try OwnFile.open(path, O_WRONLY | O_CREAT | O_EXCL)
            state.withLock {
                $0.descriptor = descriptor
                $0.created = true
            }
        }
        let failure: Int32? = buffer.withUnsafeReadableBytes { bytes in
            var rest = bytes[...]
            while !rest.isEmpty {
                let n = Glibc.write(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count)
                if n < 0 {
                    if errno == EINTR { continue }
                    return errno
                }
                rest = rest.dropFirst(n)
            }
            state.withLock { $0.written += bytes.count }
            return nil
        }
        if let failure { throw CoreError.system(failure, "cannot write \(path)") }
    }
}
