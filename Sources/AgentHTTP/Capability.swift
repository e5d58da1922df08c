import ServiceLifecycle

/// What one capability brings to the daemon, which composes a list of them: routes of the HTTP API, services, what it
/// does when shutdown begins, and where it listens. Health and metrics it registers when it is made.
///
/// The list is the order: services start from the first to the last and end from the last to the first, each once the
/// next one has ended. See docs/extending.md.
public struct Capability: Sendable {
    /// Adds its routes to the HTTP API.
    public var routes: @Sendable (AgentRoutes) -> Void
    /// What runs for the daemon's life: each returns when it has ended in order after `gracefulShutdown()`.
    public var services: [any Service]
    /// The first step of a shutdown, for all capabilities before any service ends: refuse new work, end what waits. It
    /// must not block.
    public var beginShutdown: @Sendable () -> Void
    /// Where it listens, for the line that the daemon logs at its start.
    public var listening: [String]

    public init(
        services: [any Service] = [], listening: [String] = [], beginShutdown: @escaping @Sendable () -> Void = {},
        routes: @escaping @Sendable (AgentRoutes) -> Void = { _ in }
    ) {
        (self.services, self.listening) = (services, listening)
        (self.beginShutdown, self.routes) = (beginShutdown, routes)
    }
}
