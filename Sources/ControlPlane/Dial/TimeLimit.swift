import AgentCore

/// Runs the body, which must end when it is cancelled, and fails when it takes longer.
func withTimeLimit<T: Sendable>(
    _ limit: Duration, _ clock: AgentClock, _ error: @autoclosure () -> ControlPlaneError,
    _ body: @escaping @Sendable () async throws -> T
) async throws -> T {
    let result = try await withThrowingTaskGroup(of: T?.self) { group in
        group.addTask { try await body() }
        group.addTask {
            try await clock.sleep(limit)
            return nil
        }
        defer { group.cancelAll() }
        return try await group.next() ?? nil
    }
    guard let result else { throw error() }
    return result
}
