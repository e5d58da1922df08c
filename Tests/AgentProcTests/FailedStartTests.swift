import AgentCore
import AgentTestSupport
import CPlatform
import Dispatch
import Foundation
import Glibc
import NIOPosix
import Testing

@testable import AgentProc

/// Starts whose program runs, yet cannot be watched: their descriptors may be with the reactor already.
@Suite struct FailedStartTests {
    @Test func aPipeThatTheReactorMayReadIsClosedByIt() async throws {
        let reactor = try Reactor()
        try #require(reactor.start())
        let launcher = try Launcher()
        let (read, write) = try pipe()
        let launched = try unwatchable(launcher, write)
        close(write)
        let counter = MetricsRegistry().counter("c", help: "c").with()
        let process = ManagedProcess(
            description: ProcessDescription(
                id: UUID(), command: "", workdir: "/", background: false, startedWallSeconds: 0, order: 0),
            piped: PipedProcess(process: launched, stdout: read, stderr: read), spool: nil,
            context: ProcessContext(
                reactor: reactor, launcher: launcher, clock: AgentClock(ContinuousClock()), captured: counter,
                onExit: { _, _ in }))
        let identity = try #require(inode(read))
        let held = try HeldReactor(reactor)
        #expect(throws: CoreError.self) { try process.activate() }
        process.abandon()
        #expect(inode(read) == identity)
        #expect(process.totalBytes == 0)
        held.release()
        try await eventually("the pipe is closed") { inode(read) != identity }
        try await eventually("so is the other descriptor") { inode(launched.pidfd) != Self.passwd }
        await reactor.stop()
    }

    @Test func pipesOfACommandAreClosedByTheReactor() async throws {
        let reactor = try Reactor()
        try #require(reactor.start())
        let launcher = try Launcher()
        let (out, err) = (try pipe(), try pipe())
        let launched = try unwatchable(launcher, out.write)
        for descriptor in [out.write, err.write] { close(descriptor) }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let command = LaunchedCommand(
            PipedProcess(process: launched, stdout: out.read, stderr: err.read), gate: nil,
            context: .init(
                launcher: launcher, reactor: reactor, pool: BlockingPool(threads: 1),
                executor: EventLoopTaskExecutor(group.next()), afterReap: {}), output: { _, _ in })
        let identities = [inode(out.read), inode(err.read)]
        let held = try HeldReactor(reactor)
        #expect(throws: CoreError.self) { try command.activate {} }
        command.abandonStart()
        #expect([inode(out.read), inode(err.read)] == identities)
        #expect(inode(launched.pidfd) == Self.passwd)
        held.release()
        await command.outputEnd()
        #expect(inode(out.read) != identities[0] && inode(err.read) != identities[1])
        await reactor.stop()
        try? await group.shutdownGracefully()
    }

    private static let passwd: ino_t? = {
        var info = stat()
        return stat("/etc/passwd", &info) == 0 ? info.st_ino : nil
    }()

    /// A killed program that writes much, with a regular file for its pidfd: epoll takes none.
    private func unwatchable(_ launcher: Launcher, _ output: CInt) throws -> LaunchedProcess {
        var launched = try launcher.launch(
            LaunchRequest(
                arguments: ["yes"], environment: ["PATH": "/usr/bin:/bin"], workdir: "/", stdout: output,
                stderr: output))
        kill(launched.pid, SIGKILL)
        close(launched.pidfd)
        launched.pidfd = wa_open("/etc/passwd", O_RDONLY, 0)
        return launched
    }

    private func pipe() throws -> (read: CInt, write: CInt) {
        var ends: [CInt] = [-1, -1]
        try #require(wa_pipe(&ends) == 0)
        return (ends[0], ends[1])
    }

    /// What the descriptor is; its number may be another's by now.
    private func inode(_ descriptor: CInt) -> ino_t? {
        var info = stat()
        return fstat(descriptor, &info) == 0 ? info.st_ino : nil
    }
}

/// Keeps the reactor's thread busy until it is let go.
private final class HeldReactor: ReactorSource {
    private let isHeld = DispatchSemaphore(value: 0)
    private let letGo = DispatchSemaphore(value: 0)
    private let reactor: Reactor
    private let descriptor: CInt
    private let token: UInt64

    init(_ reactor: Reactor) throws {
        self.reactor = reactor
        descriptor = wa_eventfd()
        token = reactor.makeToken()
        try reactor.add(descriptor, events: UInt32(WA_EPOLLIN), token: token, self)
        wa_eventfd_signal(descriptor)
        isHeld.wait()
    }

    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer) {
        isHeld.signal()
        letGo.wait()
        reactor.remove(descriptor, token: token)
        close(descriptor)
    }

    func release() { letGo.signal() }
}
