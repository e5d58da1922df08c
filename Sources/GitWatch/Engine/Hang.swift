/// How long the worker may take, and when it is asked again for what took longer.
struct AnswerTimes: Sendable {
    /// For a scan or a list of directories.
    var scan = GitWatchLimits.scanTime
    /// For finding the repository of a path.
    var resolve = GitWatchLimits.resolveTime
    /// When /healthz begins to speak of it.
    var notice = GitWatchLimits.noticeTime
    /// Doubled each time.
    var firstRetry = GitWatchLimits.firstRetry

    func limit(_ kind: WorkerRequest.Kind) -> Duration { kind == .resolve ? resolve : scan }
}

/// A repository, or a path, whose file system did not answer in time. It is asked again after a wait that grows.
struct Hang: Equatable {
    var count: Int
    var retryAt: Duration

    init(after previous: Hang?, _ times: AnswerTimes, now: Duration) {
        count = (previous?.count ?? 0) + 1
        let wait = times.firstRetry * (1 << min(count - 1, 10))
        retryAt = now + min(wait, GitWatchLimits.longestRetry)
    }
}
