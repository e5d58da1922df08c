import Synchronization

/// What keeps the daemon from being whole. Capabilities report under a name of their own;
/// `GET /healthz` lists what they say.
public final class HealthRegistry: Sendable {
    /// What a component says of itself.
    public struct Report: Sendable, Equatable {
        public var text: String
        /// Whether it makes the daemon degraded; otherwise it is only worth knowing.
        public var degrades: Bool

        public init(_ text: String, degrades: Bool = true) {
            self.text = text
            self.degrades = degrades
        }
    }

    /// A check is asked at each look and must not block; nil means healthy.
    public typealias Check = @Sendable () -> Report?

    private let checks = Mutex<[String: Check]>([:])

    public init() {}

    /// Adds or replaces the check of a component.
    public func register(_ component: String, _ check: @escaping Check) {
        checks.withLock { $0[component] = check }
    }

    /// Sets a fixed report for a component, or clears it with nil.
    public func set(_ component: String, _ report: Report?) {
        let check: Check? = if let report { { report } } else { nil }
        checks.withLock { $0[component] = check }
    }

    /// All reports, ordered by component.
    public func reports() -> [Report] {
        let current = checks.withLock { $0 }
        return current.sorted { $0.key < $1.key }.compactMap { $0.value() }
    }
}
