import AgentProc
import AgentTestSupport
import Dispatch
import Glibc
import NIOPosix
import Synchronization
import Testing

@testable import WorkspaceAgent

/// Signs of life for systemd's watchdog.
@Suite("Watchdog", .blocking) struct WatchdogTests {
    private static let mine = ["sh", "-c", "export WATCHDOG_PID=$$; exec \"$@\"", "sh"]

    @Test func pingsComeForAsLongAsTheDaemonRuns() async throws {
        let begin = ContinuousClock.now
        let daemon = try DaemonProcess(environment: ["WATCHDOG_USEC": "2000000"], wrapper: Self.mine)
        for _ in 0..<4 { #expect(try daemon.notified("WATCHDOG=1") == "WATCHDOG=1") }
        #expect(begin.duration(to: .now) >= .seconds(3), "at half the time, not as fast as they can be sent")
        daemon.signal(SIGTERM)
        _ = try daemon.notified("STOPPING=1")
        #expect(try await daemon.wait() == 0)
    }

    @Test(arguments: [
        ["WATCHDOG_USEC": "2000", "WATCHDOG_PID": "1"], ["WATCHDOG_PID": ""], ["WATCHDOG_USEC": "0"],
        ["WATCHDOG_USEC": "soon"],
    ])
    func noneAreSentThatAreNotAskedForOfThisProcess(_ environment: [String: String]) throws {
        let daemon = try DaemonProcess(environment: environment)
        let connection = try daemon.connect()
        // Each takes longer than the time between two pings.
        for _ in 0..<50 { _ = try connection.request("GET", "/debug/prometheus") }
        daemon.signal(SIGTERM)
        #expect(try daemon.notifications(until: "STOPPING=1").count == 1)
    }

    @Test func childrenAreNotToldOfIt() throws {
        let daemon = try DaemonProcess(environment: ["WATCHDOG_USEC": "60000000"], wrapper: Self.mine)
        let started = try daemon.connect().request(
            "POST", "/api/v0/processes/start", body: #"{"command": "env", "wait_ms": 60000}"#)
        #expect(started.text.contains("PATH="))
        #expect(!started.text.contains("WATCHDOG") && !started.text.contains("NOTIFY_SOCKET"))
    }

    /// The reactor last, which each ping comes through at its end.
    @Test(arguments: 0..<3) func oneThreadThatHangsKeepsThePingBack(_ which: Int) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let reactor = try Reactor()
        try #require(reactor.start())
        let pings = Atomic(0)
        var watchdog: Watchdog? = Watchdog(every: .milliseconds(1), group: group, reactor: reactor) {
            pings.add(1, ordering: .relaxed)
        }
        watchdog?.start()
        try await eventually("pings come") { pings.load(ordering: .relaxed) > 3 }

        let (hangs, goOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let work: @Sendable () -> Void = {
            hangs.signal()
            goOn.wait()
        }
        let loops = Array(group.makeIterator())
        if which < loops.count { loops[which].execute(work) } else { reactor.perform(work) }
        hangs.wait()
        let before = pings.load(ordering: .relaxed)
        let other = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        try await other.next().scheduleTask(in: .milliseconds(200)) {}.futureResult.get()
        // One may have been on its way behind the thread.
        #expect(pings.load(ordering: .relaxed) <= before + 1)
        goOn.signal()
        try await eventually("they go on") { pings.load(ordering: .relaxed) > before + 3 }

        // It has ended when its last piece of work has.
        watchdog = nil
        for loop in loops { try await loop.submit {}.get() }
        await reactor.stop()
        try await group.shutdownGracefully()
        try await other.shutdownGracefully()
    }
}
