/// When the worker runs, what it owes us, and whom to blame for its end. No I/O: the time is handed in.
struct WorkerSupervisor {
    struct Owed: Equatable {
        var request: WorkerRequest
        var deadline: Duration
        /// libgit2 has begun with it.
        var started = false
    }

    /// What a dead worker leaves behind.
    struct Loss: Equatable {
        var owed: [WorkerRequest]
        /// The repository over which libgit2 crashed.
        var blamed: String?
        /// When a new worker may start.
        var restart: Duration
    }

    static let window = Duration.seconds(60)
    static let pause = Duration.seconds(60)

    private(set) var isUp = false
    private(set) var owed: [UInt32: Owed] = [:]
    private var nextID: UInt32 = 0
    private var crashes: [Duration] = []
    private(set) var notBefore: Duration = .zero

    /// Makes a request known; nil while no worker may be started.
    mutating func admit(_ request: WorkerRequest, now: Duration) -> WorkerRequest? {
        guard isUp || notBefore <= now else { return nil }
        nextID &+= 1
        var request = request
        request.id = nextID
        if request.kind != .forget {
            owed[request.id] = Owed(request: request, deadline: now + .seconds(GitWatchLimits.scanSeconds))
        }
        return request
    }

    mutating func started() { isUp = true }

    /// - Returns: the request that the answer belongs to; nil for a note and for an unknown answer.
    mutating func answered(_ reply: WorkerReply) -> WorkerRequest? {
        if case .started = reply.body {
            owed[reply.id]?.started = true
            return nil
        }
        return owed.removeValue(forKey: reply.id)?.request
    }

    /// The worker ended, or could not be started.
    /// - Parameter crashed: it died by a signal that a fault of its own explains.
    mutating func ended(crashed: Bool, orderly: Bool = false, now: Duration) -> Loss {
        isUp = false
        let lost = owed.values.sorted { $0.request.id < $1.request.id }
        owed = [:]
        guard !orderly else { return Loss(owed: lost.map(\.request), blamed: nil, restart: now) }
        crashes = crashes.filter { $0 + Self.window > now } + [now]
        notBefore = crashes.count > GitWatchLimits.crashes ? now + Self.pause : now
        let guilty = crashed ? lost.first { $0.started } : nil
        return Loss(owed: lost.map(\.request), blamed: guilty?.request.root, restart: notBefore)
    }

    /// Whether it failed too often to be started now.
    func isPaused(now: Duration) -> Bool { !isUp && notBefore > now }

    /// Whether an answer is overdue: the worker hangs.
    func isOverdue(now: Duration) -> Bool { owed.values.contains { $0.deadline <= now } }

    var deadline: Duration? { owed.values.map(\.deadline).min() }
}
