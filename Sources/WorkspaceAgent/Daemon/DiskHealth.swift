import AgentCore
import Synchronization

/// What /healthz says of the disk: `doctor`'s check of the directories to which the daemon writes. They are looked at
/// when it is asked, and at most once a minute.
final class DiskHealth: Sendable {
    private struct Look {
        /// What the last one found.
        var reading: DiskChecks.Reading?
        /// When the last one began, on the clock's time.
        var begun: Duration?
        /// A file system that does not answer has one thread of ours, however often /healthz is asked.
        var isUnderWay = false
    }

    /// How long a reading is good for.
    static let period = Duration.seconds(60)
    private let places: [DiskChecks.Place]
    private let read: @Sendable (String) -> DiskChecks.Reading
    private let clock: AgentClock
    private let looks: Mutex<[Look]>

    /// Looks for the first time.
    /// - Parameter read: looks at a path, on a thread of its own; may hang.
    init(
        _ places: [DiskChecks.Place], clock: AgentClock,
        read: @escaping @Sendable (String) -> DiskChecks.Reading = DiskChecks.read
    ) {
        (self.places, self.clock, self.read) = (places, clock, read)
        looks = Mutex(Array(repeating: Look(), count: places.count))
        begin()
    }

    /// What was found last; has it looked anew when that is old. Does not block.
    func report() -> HealthRegistry.Report? {
        begin()
        let now = clock.now()
        let readings = looks.withLock { looks in
            zip(places, looks).compactMap { place, look -> (DiskChecks.Place, DiskChecks.Reading)? in
                let hangs = look.isUnderWay && now - (look.begun ?? now) >= DiskChecks.patience
                return (hangs ? .hangs : look.reading).map { (place, $0) }
            }
        }
        let check = DiskChecks.check(readings)
        guard check.status != .ok else { return nil }
        // What is only scarce keeps the daemon from nothing.
        return .init("disk: \(check.detail); \(check.fix ?? "")", degrades: check.status == .error)
    }

    private func begin() {
        let now = clock.now()
        for (index, place) in places.enumerated() {
            let isDue = looks.withLock { looks in
                let isRecent = looks[index].begun.map { now - $0 < Self.period } ?? false
                guard !looks[index].isUnderWay, !isRecent else { return false }
                (looks[index].begun, looks[index].isUnderWay) = (now, true)
                return true
            }
            guard isDue else { continue }
            let isStarted = startThread("disk health") { [self] in
                let reading = read(place.path)
                looks.withLock { ($0[index].reading, $0[index].isUnderWay) = (reading, false) }
            }
            if !isStarted { looks.withLock { $0[index].isUnderWay = false } }
        }
    }
}
