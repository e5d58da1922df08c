import Synchronization

/// The inotify watches that this process may have: one number for all that watch directories.
public final class WatchBudget: Sendable {
    /// How many there may be.
    public let limit: Int
    private let taken = Atomic(0)

    /// - Parameter limit: nil is half of what the kernel gives a user (fs.inotify.max_user_watches).
    public init(limit: Int?) {
        let kernel = readTextFile("/proc/sys/fs/inotify/max_user_watches").flatMap { text in
            Int(text.prefix { $0.isNumber })
        }
        self.limit = limit ?? (kernel ?? 8_192) / 2
    }

    /// How many are taken.
    public var used: Int { taken.load(ordering: .relaxed) }

    /// Takes some, all or none.
    /// - Returns: false when there are not as many left.
    public func take(_ count: Int = 1) -> Bool {
        var now = used
        while now + count <= limit {
            let (isExchanged, other) = taken.weakCompareExchange(
                expected: now, desired: now + count, ordering: .relaxed)
            if isExchanged { return true }
            now = other
        }
        return false
    }

    public func give(_ count: Int = 1) { taken.subtract(count, ordering: .relaxed) }
}
