import AgentTestSupport
import Glibc
import Testing

/// Gives all tests of a suite one daemon, which has to end in order after the last of them.
struct SharedDaemon: SuiteTrait, TestScoping {
    @TaskLocal static var current: DaemonProcess?

    func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        // Its start blocks.
        try await withTaskExecutorPreference(BlockingExecutor.shared) {
            let daemon = try DaemonProcess(tcp: true, logLevel: "debug")
            try await Self.$current.withValue(daemon) { try await function() }
            #expect(try await daemon.stop() == 0)
        }
    }
}

extension Trait where Self == SharedDaemon {
    static var sharedDaemon: Self { Self() }
}

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

/// The suite's daemon and a fresh connection to its unix socket.
func shared() throws -> (daemon: DaemonProcess, connection: RawConnection) {
    let daemon = try #require(SharedDaemon.current)
    return (daemon, try daemon.connect())
}

/// What tests of privileges ask for.
enum Privileges {
    static let isRoot = geteuid() == 0
    /// Runs what follows as an ordinary user.
    static let asNobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    static let nobody: uid_t = 65534

    /// A directory that belongs to that user.
    static func directoryOfNobody() throws -> TemporaryDirectory {
        let directory = try TemporaryDirectory()
        chown(directory.path, nobody, nobody)
        return directory
    }
}

/// A chat of this test alone.
func newChat() -> String {
    func hex(_ digits: Int) -> String {
        String((0..<digits).map { _ in "0123456789abcdef".randomElement() ?? "0" })
    }
    return "\(hex(8))-\(hex(4))-4\(hex(3))-8\(hex(3))-\(hex(12))"
}
