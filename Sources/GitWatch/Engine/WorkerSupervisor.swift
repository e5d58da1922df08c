/// When the worker runs, what it owes us, and whom to blame for its end or its silence. No I/O: the time is
/// handed in.
struct WorkerSupervisor {
    struct Owed: Equatable {
        var request: WorkerRequest
        /// When it was asked, or a thread of the worker began with it.
        var since: Duration
        var hasBegun = false
        /// libgit2 is at it.
        var isInLibgit = false
    }

    /// What a dead worker leaves behind.
    struct Loss: Equatable {
        var owed: [WorkerRequest]
        /// The repositories over which libgit2 may have crashed.
        var blamed: [String]
        /// When a new worker may start.
        var restart: Duration
    }

    static let window = Duration.seconds(60)
    static let pause = Duration.seconds(60)

    private(set) var isUp = false
    private(set) var owed: [UInt32: Owed] = [:]
    private let times: AnswerTimes
    private var nextID: UInt32 = 0
    private var crashes: [Duration] = []
    private(set) var notBefore: Duration = .zero
    /// When the worker last said anything.
    private var lastHeard: Duration = .zero

    init(times: AnswerTimes = AnswerTimes()) { self.times = times }

    /// Makes a request known; nil while no worker may be started.
    mutating func admit(_ request: WorkerRequest, now: Duration) -> WorkerRequest? {
        guard isUp || notBefore <= now else { return nil }
        nextID &+= 1
        var request = request
        request.id = nextID
        if request.kind != .forget { owed[request.id] = Owed(request: request, since: now) }
        return request
    }

    mutating func started() { isUp = true }

    /// - Returns: the request that the answer belongs to; nil for a note and for an unknown answer.
    mutating func answered(_ reply: WorkerReply, now: Duration) -> WorkerRequest? {
        lastHeard = now
        if case .started(let inLibgit) = reply.body {
            owed[reply.id]?.since = now
            owed[reply.id]?.hasBegun = true
            owed[reply.id]?.isInLibgit = inLibgit
            return nil
        }
        return owed.removeValue(forKey: reply.id)?.request
    }

    /// The worker ended, was ended, or could not be started.
    /// - Parameters:
    ///   - crashed: it died by a signal that a fault of its own explains.
    ///   - orderly: we ended it, so that its end says nothing of it.
    mutating func ended(crashed: Bool, orderly: Bool = false, now: Duration) -> Loss {
        isUp = false
        let lost = owed.values.sorted { $0.request.id < $1.request.id }
        owed = [:]
        guard !orderly else { return Loss(owed: lost.map(\.request), blamed: [], restart: now) }
        crashes = crashes.filter { $0 + Self.window > now } + [now]
        notBefore = crashes.count > GitWatchLimits.crashes ? now + Self.pause : now
        let guilty = crashed ? lost.filter(\.isInLibgit) : []
        return Loss(owed: lost.map(\.request), blamed: guilty.map(\.request.root), restart: notBefore)
    }

    /// Whether it failed too often to be started now.
    func isPaused(now: Duration) -> Bool { !isUp && notBefore > now }

    /// Requests whose answers are overdue.
    func overdue(now: Duration) -> [WorkerRequest] { late(now) { due($0) } }

    /// Those that threads of the worker have been at for too long, or the oldest one when it says nothing at all.
    private func late(_ now: Duration, _ due: (Owed) -> Duration) -> [WorkerRequest] {
        let late = owed.values.filter { due($0) <= now }.sorted { $0.request.id < $1.request.id }
        let begun = late.filter(\.hasBegun)
        return (begun.isEmpty ? Array(late.prefix(1)) : begun).map(\.request)
    }

    /// Does not wait for their answers any more.
    mutating func giveUp(_ requests: [WorkerRequest]) {
        for request in requests { owed[request.id] = nil }
    }

    private func silentSince(_ one: Owed) -> Duration {
        // One that waits for a thread is in time as long as the worker says anything.
        one.hasBegun ? one.since : max(one.since, lastHeard)
    }

    private func due(_ one: Owed) -> Duration { silentSince(one) + times.limit(one.request.kind) }

    /// Roots and paths that the worker has been at for so long that it is worth telling.
    func slow(now: Duration) -> Set<String> { Set(late(now) { silentSince($0) + times.notice }.map(\.root)) }

    /// When ``overdue(now:)`` or ``slow(now:)`` changes.
    func deadline(now: Duration) -> Duration? {
        let notices = owed.values.map { silentSince($0) + times.notice }.filter { $0 > now }
        return (owed.values.map(due) + notices).min()
    }
}
