import Testing

@testable import GitWatch

/// A core with a worker that the test plays, on a clock that the test moves.
struct WatchStage {
    var core = WatchCore()
    var requests: [WorkerRequest] = []
    var stops = 0
    var unwatched: [String] = []
    /// What was offered, by its roots.
    var offers: [[String]] = []
    var errors: [String] = []
    /// Whether the worker is asked to add watches.
    var watchesByWorker = false

    static func trees(_ targets: [WatchTarget]) -> [GitPath] {
        targets.compactMap { if case .tree(let path) = $0 { path } else { nil } }
    }

    mutating func run(_ now: Duration, _ body: (inout WatchCore) -> Void = { _ in }) {
        body(&core)
        core.tick(now: now)
        while case let actions = core.takeActions(), !actions.isEmpty {
            for action in actions { perform(action, now) }
        }
    }

    private mutating func perform(_ action: WatchCore.Action, _ now: Duration) {
        switch action {
        case .send(let request):
            core.workerStarted()
            requests.append(request)
        case .stopWorker: stops += 1
        case .unwatch(let root): unwatched.append(root)
        case .offer(let session, let entries):
            offers.append(entries.map(\.root))
            session.offer(entries)
        case .fail(let session, let text):
            errors.append(text)
            session.fail(text)
        case .watch(let root, let targets, _):
            if watchesByWorker {
                core.addWatches(root, targets, now: now)
            } else {
                core.watched(root, FileWatches.Added(directories: Self.trees(targets)), now: now)
            }
        case .added(let root, let wanted, _):
            let targets = wanted.compactMap(WatchTarget.init)
            core.watched(root, FileWatches.Added(directories: Self.trees(targets)), now: now)
        case .log: break
        }
    }

    mutating func answer(_ now: Duration, _ body: WorkerReply.Body) {
        guard !requests.isEmpty else {
            Issue.record("nothing was asked")
            return
        }
        let request = requests.removeFirst()
        run(now) { $0.received(WorkerReply(id: request.id, body: body), now: now) }
    }
}
