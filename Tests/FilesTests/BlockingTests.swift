import AgentTestSupport
import Testing

/// Runs the tests of a suite on threads that may block.
struct BlockingTests: SuiteTrait, TestScoping {
    func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) { try await function() }
    }
}

extension Trait where Self == BlockingTests {
    static var blocking: Self { Self() }
}
