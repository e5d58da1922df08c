import AgentCore
import Glibc
import Synchronization

/// Where all disk work of the file service runs: on threads of its own, ``FilesLimits/atOnce`` pieces at once.
///
/// A call on a dead mount may never return. It is taken for slow after ``FilesLimits/slowMilliseconds`` and gives its
/// place to the next, so that only those who want something of that file system wait. While
/// ``FilesLimits/hangingOnOne`` calls hang on one mount, further ones for it are refused; so are all while
/// ``FilesLimits/hanging`` hang, which got there through links.
public final class DiskWork: Sendable {
    private struct Call {
        var path: String
        /// On the clock's time.
        var since: Duration
        /// Whether it has given its place away.
        var isSlow = false
    }

    private struct State {
        var calls: [Int: Call] = [:]
        var next = 0
        var isWatched = false
    }

    private let pool: BlockingPool
    /// Searches and edits may compute for long, so they leave threads and cores to what only reads and writes.
    private let computing: BlockingPool
    private let turns: TurnQueue
    private let memory: TurnQueue
    let clock: AgentClock
    let executor: any TaskExecutor
    private let state = Mutex(State())

    /// - Parameters:
    ///   - executor: runs the task that looks for slow calls, while there are calls.
    ///   - health: is told which file system does not answer.
    public init(clock: AgentClock, executor: any TaskExecutor, health: HealthRegistry) {
        (self.clock, self.executor) = (clock, executor)
        pool = BlockingPool("files", threads: 2, reserve: FilesLimits.atOnce - 2 + FilesLimits.hanging)
        computing = BlockingPool(
            "files-computing", threads: 2, reserve: FilesLimits.atOnce - 2 + FilesLimits.hanging, niceness: 10)
        turns = TurnQueue(atOnce: FilesLimits.atOnce)
        memory = TurnQueue(atOnce: FilesLimits.bytesInFlight)
        health.register("files") { [weak self] in self?.report() }
    }

    /// Shows how much is under way, waits and hangs.
    public func report(to metrics: MetricsRegistry) {
        func gauge(_ name: String, _ help: String, _ value: @escaping @Sendable (DiskWork) -> Int) {
            metrics.gauge(name, help: help) { [weak self] in self.map { Double(value($0)) } }
        }
        gauge("agent_files_calls", "Pieces of disk work of the file service under way.") { $0.underWay }
        gauge("agent_files_slow_calls", "Those of them that have taken long and may hang.") { work in
            work.state.withLock { $0.calls.values.count { $0.isSlow } }
        }
        gauge("agent_files_waiting", "Pieces of disk work that wait for a place.") { $0.waitingCalls }
        gauge("agent_files_bytes_waiting", "File requests that wait for memory.") { $0.waitingForMemory }
    }

    var underWay: Int { state.withLock { $0.calls.count } }
    var waitingCalls: Int { turns.waiting }
    var waitingForMemory: Int { memory.waiting }

    /// Runs a piece of disk work. It should take no longer than a few hundred milliseconds on a disk that answers;
    /// longer work is done in pieces.
    /// - Parameters:
    ///   - path: what it is about; named when the file system does not answer.
    ///   - computes: whether it computes, too.
    /// - Throws: what the body throws, ``FilesError`` `.unavailable` while too many calls hang, ``CoreError``
    ///   `.noThread`, `CancellationError` when the task is cancelled before its turn.
    public func run<T: Sendable>(
        _ path: String, computing computes: Bool = false, _ body: @escaping @Sendable () throws -> T
    ) async throws -> T {
        try await turns.take()
        let id: Int
        do {
            id = try begin(path)
        } catch {
            turns.give()
            throw error
        }
        defer { end(id) }
        return try await (computes ? computing : pool).runToEnd(body)
    }

    /// Runs what computes, for however long, and leaves the disk alone.
    public func compute<T: Sendable>(_ body: @escaping @Sendable () throws -> T) async throws -> T {
        try await computing.run(body)
    }

    /// Runs the body while this many bytes of memory count as its own; waits in line while others have too many.
    public func holding<T: Sendable>(_ bytes: Int, _ body: () async throws -> T) async throws -> T {
        let bytes = min(max(bytes, 0), FilesLimits.bytesInFlight)
        try await memory.take(bytes)
        defer { memory.give(bytes) }
        return try await body()
    }

    private func begin(_ path: String) throws -> Int {
        let slow = state.withLock { $0.calls.values.filter(\.isSlow) }
        if slow.count >= FilesLimits.hangingOnOne { try refuse(path, slow) }
        let (id, starts) = state.withLock { state in
            state.next += 1
            state.calls[state.next] = Call(path: path, since: clock.now())
            defer { state.isWatched = true }
            return (state.next, !state.isWatched)
        }
        if starts { watch() }
        return id
    }

    /// - Throws: ``FilesError`` for a path that would only hang, too.
    private func refuse(_ path: String, _ slow: [Call]) throws(FilesError) {
        // The kernel answers it from memory, and only while something hangs.
        let table = MountPoint.table
        let mount = MountPoint.of(path, table: table)
        let same = slow.filter { MountPoint.of($0.path, table: table) == mount }
        guard same.count >= FilesLimits.hangingOnOne || slow.count >= FilesLimits.hanging else { return }
        let example = (same.isEmpty ? slow : same).min { $0.since < $1.since }
        throw FilesError(
            .unavailable,
            "\(slow.count) file requests wait for a file system that does not answer (\(example?.path ?? ""))")
    }

    private func end(_ id: Int) {
        let call = state.withLock { $0.calls.removeValue(forKey: id) }
        if call?.isSlow == false { turns.give() }
    }

    /// Looks once a second for calls that have become slow, until there are none under way.
    private func watch() {
        let clock = clock
        Task(executorPreference: executor) { [weak self] in
            while (try? await clock.sleep(.seconds(1))) != nil {
                guard let self, self.look() else { return }
            }
        }
    }

    private func look() -> Bool {
        let now = clock.now()
        let (slow, goesOn) = state.withLock { state in
            var slow = 0
            for (id, call) in state.calls
            where !call.isSlow && now - call.since >= .milliseconds(FilesLimits.slowMilliseconds) {
                state.calls[id]?.isSlow = true
                slow += 1
            }
            state.isWatched = !state.calls.isEmpty
            return (slow, state.isWatched)
        }
        for _ in 0..<slow { turns.give() }
        return goesOn
    }

    private func report() -> HealthRegistry.Report? {
        let calls = state.withLock { $0.calls.values.filter(\.isSlow) }
        guard let oldest = calls.min(by: { $0.since < $1.since }) else { return nil }
        let time = clock.now() - oldest.since
        guard time >= .milliseconds(FilesLimits.hangingMilliseconds) else { return nil }
        let mount = MountPoint.of(oldest.path, table: MountPoint.table) ?? "unknown"
        return .init(
            "file system \(mount) does not answer: \(calls.count) file requests wait, the longest for "
                + "\(time.components.seconds) s (\(oldest.path))")
    }
}

/// Which mount a path lies on, told without touching it.
enum MountPoint {
    /// What is mounted where, as the kernel has it in memory.
    static var table: String { readTextFile("/proc/self/mountinfo") ?? "" }

    /// - Parameters:
    ///   - path: absolute; links in it are not followed.
    ///   - table: as /proc/self/mountinfo has it (proc(5)).
    static func of(_ path: String, table: String) -> String? {
        let path = LexicalPath.clean(path)
        var best: String?
        for line in table.utf8.split(separator: UInt8(ascii: "\n")) {
            let fields = line.split(separator: UInt8(ascii: " "))
            guard fields.count > 4 else { continue }
            let point = unescaped(fields[4])
            // A later line covers an earlier one of the same place.
            if LexicalPath.isWithin(path, point), point.utf8.count >= best?.utf8.count ?? 0 { best = point }
        }
        return best
    }

    /// Blanks and backslashes are written as `\040`.
    private static func unescaped(_ field: Substring.UTF8View) -> String {
        var bytes: [UInt8] = []
        var rest = field[...]
        while let byte = rest.popFirst() {
            let digits = rest.prefix(3)
            if byte == UInt8(ascii: "\\"), digits.count == 3, let value = UInt8(String(Substring(digits)), radix: 8) {
                bytes.append(value)
                rest = rest.dropFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return PathText.text(bytes)
    }
}
