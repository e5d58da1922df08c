import AgentCore
import AgentTestSupport
import DRPC
import Foundation
import Glibc
import Logging
import NIOCore
import NIOPosix
import Testing

@testable import AgentSocket

/// A served socket of its own.
struct TestAgent: Sendable {
    let path: String
    let units: UnitStore
    let server: AgentSocketServer
    let group: MultiThreadedEventLoopGroup
    let metrics: MetricsRegistry

    func client() async throws -> AgentSocketClient { try await .connect(path: path, group: group) }
    func raw() throws -> RawClient { try RawClient(path: path) }
}

private let blockingExecutor = BlockingExecutor(threads: 16)

func withAgent(
    units: UnitStore = UnitStore(), connections: Int = AgentSocketLimits.connections,
    admits: @escaping @Sendable (PeerCredentials) -> Bool = { _ in true },
    forwarder: any AppStatusForwarder = OfflineForwarder(), unsentBudget: UnsentBudget = UnsentBudget(),
    _ body: @Sendable (TestAgent) async throws -> Void
) async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let path = "/tmp/wa-test-\(UUID().uuidString.prefix(8)).sock"
    let metrics = MetricsRegistry()
    var logger = Logger(label: "test")
    logger.logLevel = .critical
    let server = AgentSocketServer(
        configuration: .init(path: path, maximumConnections: connections), units: units, forwarder: forwarder,
        group: group, logger: logger, metrics: metrics, unsentBudget: unsentBudget, admits: admits)
    try server.bind()
    let run = Task { try await server.run() }
    let result: Result<Void, any Error>
    do {
        // Tests with blocking clients may take all threads that the service needs to begin.
        let first = try await AgentSocketClient.connect(path: path, group: group)
        try? await first.ping()
        await first.close()
        try await eventually("the first client is gone") { server.connections == 0 }
        // Blocking clients would keep the threads of the runtime, of which there are as many as cores.
        let agent = TestAgent(path: path, units: units, server: server, group: group, metrics: metrics)
        try await withTaskExecutorPreference(blockingExecutor) { try await body(agent) }
        result = .success(())
    } catch {
        result = .failure(error)
    }
    run.cancel()
    try await run.value
    #expect(access(path, F_OK) != 0, "the socket file is gone after the end")
    try await group.shutdownGracefully()
    try result.get()
}

/// A client written from the recorded bytes alone: it knows frames by their hex and none of our
/// code. Blocking, with a deadline at each read.
final class RawClient: Sendable {
    let descriptor: CInt

    init(path: String) throws {
        descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let rc = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard rc == 0 else { throw CoreError.system(errno, "connect") }
        var timeout = timeval(tv_sec: 60, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close(descriptor) }

    func write(_ bytes: [UInt8]) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) }
            guard count > 0 else { return }
            rest = rest.dropFirst(count)
        }
    }

    func write(hex: String) { write(Self.bytes(hex)) }

    /// So many bytes, fewer at the end of the connection.
    func read(_ count: Int) -> [UInt8] {
        var result: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while result.count < count {
            let got = recv(descriptor, &chunk, min(chunk.count, count - result.count), 0)
            guard got > 0 else { break }
            result += chunk[0..<got]
        }
        return result
    }

    /// What has come, without waiting for more.
    func readWhatIsThere() -> [UInt8] {
        var chunk = [UInt8](repeating: 0, count: 65_536)
        let got = recv(descriptor, &chunk, chunk.count, CInt(MSG_DONTWAIT))
        return Array(chunk[0..<max(0, got)])
    }

    func expect(hex: String, _ comment: Comment, sourceLocation: SourceLocation = #_sourceLocation) {
        let expected = Self.bytes(hex)
        let got = read(expected.count)
        #expect(Self.hex(got) == hex, comment, sourceLocation: sourceLocation)
    }

    /// Whether the other side closed without another byte.
    var isClosed: Bool { read(1).isEmpty }

    /// A whole unary request as recorded: Invoke, Message, CloseSend in one write.
    func call(stream: UInt8, _ method: String, _ message: String) {
        let name = Array("/coder.agentsocket.v1.AgentSocket/\(method)".utf8)
        let data = Self.bytes(message)
        write(
            [0x03, stream, 1, UInt8(name.count)] + name + [0x05, stream, 2, UInt8(data.count)] + data
                + [0x0D, stream, 3, 0])
    }

    static func bytes(_ hex: String) -> [UInt8] {
        let digits = Array(hex.utf8).map { $0 < 0x3A ? $0 - 0x30 : $0 - 0x57 }
        return stride(from: 0, to: digits.count - 1, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }

    static func hex(_ bytes: [UInt8]) -> String { bytes.map { String(format: "%02x", $0) }.joined() }
}
