import Synchronization

/// What keeps the daemon from being whole. Capabilities report reasons under a name of their own;
/// `GET /healthz` lists them.
public final class HealthRegistry: Sendable {
    /// A check is asked at each look and must not block; nil means healthy.
    public typealias Check = @Sendable () -> String?

    private let checks = Mutex<[String: Check]>([:])

    public init() {}

    /// Adds or replaces the check of a component.
    public func register(_ component: String, _ check: @escaping Check) {
        checks.withLock { $0[component] = check }
    }

    /// Sets a fixed reason for a component, or clears it with nil.
    public func set(_ component: String, reason: String?) {
        let check: Check? = if let reason { { reason } } else { nil }
        checks.withLock { $0[component] = check }
    }

    /// All reasons, ordered by component.
    public func reasons() -> [String] {
        let current = checks.withLock { $0 }
        return current.sorted { $0.key < $1.key }.compactMap { $0.value() }
    }
}
