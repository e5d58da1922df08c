import AgentProto
import AgentTestSupport
import DRPC
import Foundation
import NIOCore
import NIOPosix
import Synchronization
import Testing

@testable import AgentSocket

/// `sync start` while it waits, as a process of its own.
@Suite(.timeLimit(.minutes(5)), .serialized) struct WaitingCommandTests {
    /// Voluntary context switches of each thread of a process.
    private func switches(_ pid: pid_t) -> [String: Int] {
        let tasks = "/proc/\(pid)/task"
        var result: [String: Int] = [:]
        for thread in (try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? [] {
            let status = (try? String(contentsOfFile: "\(tasks)/\(thread)/status", encoding: .utf8)) ?? ""
            let line = status.split(separator: "\n").first { $0.hasPrefix("voluntary_ctxt_switches:") }
            if let count = line?.split(separator: "\t").last.flatMap({ Int($0) }) { result[thread] = count }
        }
        return result
    }

    /// Whether every thread of a process sleeps; one that waits for a processor makes no switches either.
    private func allSleep(_ pid: pid_t) -> Bool {
        let tasks = "/proc/\(pid)/task"
        let threads = (try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? []
        return !threads.isEmpty
            && threads.allSatisfy { thread in
                let text = (try? String(contentsOfFile: "\(tasks)/\(thread)/stat", encoding: .utf8)) ?? ""
                // Behind the name, which may have anything in it.
                return text.split(separator: ")").last?.hasPrefix(" S ") == true
            }
    }

    @Test func waitingCostsNothing() async throws {
        try await withAgent { agent in
            try agent.units.register("U")
            try agent.units.want("U", "d")
            let waiting = try CommandLineTests.Running(["sync", "start", "U"], socket: agent.path)
            #expect(waiting.firstOutput() == "Unit \"U\" is waiting for dependencies to be satisfied: [d]\n")
            try await eventually("it waits") { agent.units.waiting == 1 }
            let other = try await agent.client()
            var before: [String: Int] = [:]
            try await eventually("it has gone to sleep") {
                guard allSleep(waiting.pid) else { return false }
                before = switches(waiting.pid)
                for _ in 0..<20 { try await other.ping() }
                return allSleep(waiting.pid) && switches(waiting.pid) == before
            }
            #expect(!before.isEmpty)
            // Other calls through the same agent, and longer than the interval of polling.
            let start = ContinuousClock.now
            var calls = 0
            while calls < 20 || ContinuousClock.now - start < .seconds(2) {
                try await other.start("unit \(calls)")
                calls += 1
            }
            let after = switches(waiting.pid)
            for (thread, count) in after {
                // A thread of the runtime that found no work for seconds may have ended since.
                #expect(count == before[thread], "thread \(thread) after \(calls) calls")
            }
            #expect(!after.isEmpty)
            try agent.units.register("d")
            try agent.units.complete("d")
            #expect(waiting.end().code == 0)
            await other.close()
        }
    }

    /// An older server knows no `SyncWait`: it is asked each second.
    @Test func anOlderServerIsAskedEachSecond() async throws {
        let units = UnitStore()
        try units.register("U")
        try units.want("U", "d")
        let service = AgentSocketService(units: units)
        let asked = Mutex<[ContinuousClock.Instant]>([])
        var router = Router()
        router.immediate(AgentSocketAPI.syncStatus) { request, _ in
            AgentSocketService.response(units.report(request.unit))
        }
        router.immediate(AgentSocketAPI.syncStart) { request, _ in
            try units.start(request.unit)
            return .init()
        }
        router.immediate(AgentSocketAPI.syncReady) { request, _ in
            let count = asked.withLock { asked in
                asked.append(.now)
                return asked.count
            }
            if count == 3 {
                try units.register("d")
                try units.complete("d")
            }
            return .with { $0.ready = units.isReady(request.unit) }
        }
        #expect(service.router().names.count > router.names.count)
        let old = router
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let path = "/tmp/wa-test-\(UUID().uuidString.prefix(8)).sock"
        let server = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(RPCServerHandler(router: old))
                }
            }
            .bind(unixDomainSocketPath: path).get()
        let outcome = try CommandLineTests.Running(["sync", "start", "U"], socket: path).end()
        #expect(
            outcome
                == .init(
                    code: 0,
                    stdout: "Unit \"U\" is waiting for dependencies to be satisfied: [d]\n"
                        + "Unit \"U\" finished waiting for dependencies: [d]\n", stderr: ""))
        let times = asked.withLock { $0 }
        #expect(times.count == 3)
        for (earlier, later) in zip(times, times.dropFirst()) {
            #expect(later - earlier > .milliseconds(950), "a second apart")
        }
        // What the older server can't do at all is said in one line.
        let timeline = try CommandLineTests.Running(["sync", "timeline"], socket: path).end()
        #expect(timeline.code == 1)
        #expect(
            timeline.stderr.hasPrefix("the agent at \(path) is too old for this command: protocol error: unknown rpc"))
        try await server.close()
        try await group.shutdownGracefully()
        unlink(path)
    }
}
