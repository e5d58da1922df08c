import AgentCore
import AgentTestSupport
import CPlatform
import Foundation
import Glibc
import Testing

@testable import AgentProc

@Suite struct ProcessManagerTests {
    private let chat = ChatIdentity(id: UUID(), ancestors: [UUID()])

    @Test func capturesBothStreamsInOrder() async throws {
        let fixture = try ManagerFixture()
        let process = try await fixture.start("echo a; echo b >&2; echo c; exit 3")
        let exit = try #require(await fixture.finish(process))
        #expect(fixture.output(process) == "a\nb\nc\n")
        #expect(exit.code == 3)
        #expect(exit.reason == .exited)
        #expect(exit.signal == nil)
        #expect(exit.wallSeconds == 1_700_000_000)
        await fixture.end()
    }

    @Test func exitNeverComesBeforeTheLastOutput() async throws {
        let fixture = try ManagerFixture()
        for _ in 0..<50 {
            let process = try await fixture.start("head -c 50000 /dev/zero | tr '\\0' x; echo; echo end")
            _ = await fixture.finish(process)
            #expect(process.snapshot().buffer.total == 50_005)
        }
        await fixture.end()
    }

    @Test func forgottenFiveMinutesAfterItsExitAndNotBefore() async throws {
        let fixture = try ManagerFixture()
        let process = try await fixture.start("true")
        let id = process.description.id.lowercased
        _ = await fixture.finish(process)
        await fixture.clock.sleepers(1)
        fixture.clock.advance(by: .seconds(299))
        #expect(fixture.manager.find(id, chat: nil) != nil)
        fixture.clock.advance(by: .seconds(1))
        try await eventually("the process is forgotten") { fixture.manager.find(id, chat: nil) == nil }
        await fixture.end()
    }

    @Test func aThousandExitedAreKeptAndTheOldestGoes() {
        var table = ProcessTable()
        for index in 0..<ProcLimits.exited {
            try? table.reserve()
            #expect(table.exited(UUID(), forgetAt: .seconds(index)).isEmpty)
        }
        #expect(table.occupied == 0)
        #expect(table.nextDeadline == .zero)
        try? table.reserve()
        _ = table.exited(UUID(), forgetAt: .seconds(5000))
        #expect(table.nextDeadline == .seconds(1))
    }

    @Test func runningLimitAtBelowAndAbove() throws {
        var table = ProcessTable()
        for _ in 0..<ProcLimits.running { try table.reserve() }
        #expect(throws: ProcError(.tooManyProcesses)) { try table.reserve() }
        table.unreserve()
        try table.reserve()
        table.shuttingDown = true
        #expect(throws: ProcError(.shuttingDown)) { try table.reserve() }
    }

    @Test func timeoutTerminatesThenKills() async throws {
        let fixture = try ManagerFixture()
        let ready = "\(fixture.directory.path)/ready"
        let process = try await fixture.start("trap '' TERM; touch \(ready); while :; do sleep 0.05; done") {
            $0.timeout = .seconds(60)
        }
        try await eventually("the trap is set") { access(ready, F_OK) == 0 }
        await fixture.clock.sleepers(1)
        fixture.clock.advance(by: .seconds(60))
        // Sleeping again means that SIGTERM was sent; the loop goes on, since the shell ignores it.
        await fixture.clock.sleepers(1)
        #expect(process.exit == nil)
        fixture.clock.advance(by: ProcLimits.timeoutGrace)
        let exit = try #require(await fixture.finish(process))
        #expect(exit.reason == .timeout)
        #expect(exit.signal == SIGKILL)
        await fixture.end()
    }

    @Test func timeoutOfAPoliteProcessIsStillATimeout() async throws {
        let fixture = try ManagerFixture()
        let ready = "\(fixture.directory.path)/ready"
        let process = try await fixture.start("trap 'exit 0' TERM; touch \(ready); while :; do sleep 0.05; done") {
            $0.timeout = .seconds(1)
        }
        try await eventually("the trap is set") { access(ready, F_OK) == 0 }
        await fixture.clock.sleepers(1)
        fixture.clock.advance(by: .seconds(1))
        let exit = try #require(await fixture.finish(process))
        #expect(exit.reason == .timeout)
        #expect(exit.code == 0)
        await fixture.end()
    }

    @Test func signalsReachTheWholeSession() async throws {
        let fixture = try ManagerFixture()
        let process = try await fixture.start("sleep 1000 & sleep 1001 & (sleep 1002; true) & echo up; wait")
        try await eventually("all have started") {
            SessionProcesses().members(of: [process.pid]).count >= 5
        }
        try await fixture.manager.signal(process, SIGKILL)
        let exit = try #require(await fixture.finish(process))
        #expect(exit.code == -1)
        #expect(exit.signal == SIGKILL)
        #expect(exit.reason == .killedByRequest)
        try await eventually("the session is empty") { SessionProcesses().members(of: [process.pid]).isEmpty }
        await #expect(throws: ProcError(.notRunning)) { try await fixture.manager.signal(process, SIGTERM) }
        await fixture.end()
    }

    @Test func deathByAForeignSignal() async throws {
        let fixture = try ManagerFixture()
        let process = try await fixture.start("kill -SEGV $$")
        let exit = try #require(await fixture.finish(process))
        #expect(exit.reason == .signaled)
        #expect(exit.signal == SIGSEGV)
        #expect(exit.code == -1)
        await fixture.end()
    }

    /// A signal that it outlived does not explain a later death.
    @Test func anOutlivedSignalIsNotTheReason() async throws {
        let fixture = try ManagerFixture()
        let ready = "\(fixture.directory.path)/ready"
        // No program makes the second file: the signal would reach it, too.
        let process = try await fixture.start(
            "trap ': > \(ready).2' TERM; touch \(ready); while ! [ -e \(ready).2 ]; do sleep 0.02; done; kill -SEGV $$"
        )
        try await eventually("the trap is set") { access(ready, F_OK) == 0 }
        try await fixture.manager.signal(process, SIGTERM)
        let exit = try #require(await fixture.finish(process))
        #expect(exit.signal == SIGSEGV)
        #expect(exit.reason == .signaled)
        await fixture.end()
    }

    @Test func aTimeoutGoesWithItsProcess() async throws {
        let fixture = try ManagerFixture()
        let process = try await fixture.start("true") { $0.timeout = .seconds(3600) }
        _ = await fixture.finish(process)
        // What still sleeps is the janitor.
        try await eventually("the time-out's task ends") { fixture.clock.sleeping == 1 }
        await fixture.end()
    }

    @Test func aTimeoutEndsWhatOutlivesTheLeader() async throws {
        let fixture = try ManagerFixture()
        let process = try await fixture.start("(trap '' TERM; echo up; while :; do sleep 0.05; done) & wait") {
            $0.timeout = .seconds(1)
        }
        try await eventually("both run") { fixture.output(process) == "up\n" }
        await fixture.clock.sleepers(1)
        fixture.clock.advance(by: .seconds(1))
        let exit = try #require(await fixture.finish(process))
        #expect(exit.reason == .timeout)
        // Sleeping again, beside the janitor, means that SIGTERM was sent.
        await fixture.clock.sleepers(2)
        fixture.clock.advance(by: ProcLimits.timeoutGrace)
        try await eventually("the session is empty") { SessionProcesses().members(of: [process.pid]).isEmpty }
        await fixture.end()
    }

    @Test func aClientTokenStartsOnce() async throws {
        let fixture = try ManagerFixture()
        var request = StartRequest(.shell("echo x >> \(fixture.directory.path)/count"))
        request.clientToken = "t"
        let same = request
        let ids = try await withThrowingTaskGroup(of: ProcessManager.Started.self) { group in
            for _ in 0..<20 { group.addTask { try await fixture.manager.start(same, chat: nil) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(Set(ids.map(\.id)).count == 1)
        #expect(ids.count { !$0.attached } == 1)
        #expect(fixture.manager.process(forToken: "t", chat: nil) == ids[0].id)

        var other = request
        other.program = .shell("true")
        await #expect(throws: ProcError(.tokenConflict)) { try await fixture.manager.start(other, chat: nil) }
        // Another chat's token is another token.
        let elsewhere = try await fixture.manager.start(other, chat: chat)
        #expect(elsewhere.id != ids[0].id)
        #expect(fixture.manager.process(forToken: "t", chat: chat) == elsewhere.id)
        await fixture.end()
    }

    @Test func aTokenOfAFailedStartIsFree() async throws {
        let fixture = try ManagerFixture()
        var request = StartRequest(.argv(["/nonexistent/program"]))
        request.clientToken = "t"
        await #expect(throws: ProcError.self) { try await fixture.manager.start(request, chat: nil) }
        request.program = .shell("true")
        #expect(try await fixture.manager.start(request, chat: nil).attached == false)
        await fixture.end()
    }

    @Test func theGitWatcherIsToldOfAChatsProcesses() async throws {
        let fixture = try ManagerFixture()
        let chat = chat
        let process = try await fixture.start("true", chat: chat) { $0.workdir = "/tmp" }
        _ = await fixture.finish(process)
        try await eventually("the end is reported") { fixture.paths.all.count == 2 }
        #expect(fixture.paths.all == [.added(["/tmp"], chat), .notified(chat)])
        let plain = try await fixture.start("true", chat: chat)
        _ = await fixture.finish(plain)
        try await eventually("the end is reported") { fixture.paths.all.count == 3 }
        #expect(fixture.paths.all.last == .notified(chat))
        let withoutChat = try await fixture.start("true") { $0.workdir = "/tmp" }
        _ = await fixture.finish(withoutChat)
        #expect(fixture.paths.all.count == 3)
        await fixture.end()
    }

    @Test func chatsDoNotSeeEachOther() async throws {
        let fixture = try ManagerFixture()
        let other = ChatIdentity(id: UUID())
        let mine = try await fixture.start("true", chat: chat)
        let open = try await fixture.start("true")
        let id = mine.description.id.lowercased
        #expect(fixture.manager.find(id, chat: other) == nil)
        #expect(fixture.manager.find(id, chat: chat) != nil)
        #expect(fixture.manager.find(id.uppercased(), chat: nil) != nil)
        let free = open.description.id.lowercased
        for caller in [chat, other, nil] { #expect(fixture.manager.find(free, chat: caller) != nil) }
        #expect(fixture.manager.list(chat: other, limit: 10, running: nil).isEmpty)
        #expect(fixture.manager.list(chat: chat, limit: 10, running: nil).map(\.pid) == [mine.pid])
        #expect(fixture.manager.list(chat: nil, limit: 10, running: nil).map(\.pid) == [open.pid, mine.pid])
        await fixture.end()
    }

    @Test func priorityDescriptorLimitAndSignalsOfAChild() async throws {
        let own = getpriority(.init(PRIO_PROCESS.rawValue), 0)
        let fixture = try ManagerFixture(
            priority: ChildPriority(niceIncrement: 3, oomScoreAdjustment: 500), descriptorLimit: 256)
        signal(SIGPIPE, SIG_IGN)
        // More descriptors than the child may have.
        let open = (0..<300).map { _ in dup(0) }
        defer { for descriptor in open { close(descriptor) } }
        // A child of the program must have them too.
        let process = try await fixture.start(
            "sh -c 'nice; cat /proc/self/oom_score_adj; ulimit -Sn; grep -E \"Sig(Blk|Ign)\" /proc/self/status'; "
                + "ls /proc/self/fd | wc -l; readlink /proc/self/fd/0")
        _ = await fixture.finish(process)
        let lines = fixture.output(process).split(separator: "\n").map(String.init)
        #expect(lines[0] == String(own + 3))
        #expect(lines[1] == "500")
        #expect(lines[2] == "256")
        #expect(lines[3].hasSuffix("0000000000000000"))
        #expect(lines[4].hasSuffix("0000000000000000"))
        // 0, 1, 2 and the directory that ls reads.
        #expect(lines[5] == "4")
        #expect(lines[6] == "/dev/null")
        await fixture.end()
    }

    @Test func failedStartsSayWhy() async throws {
        let fixture = try ManagerFixture()
        func failure(_ change: (inout StartRequest) -> Void) async -> String? {
            var request = StartRequest(.shell("true"))
            change(&request)
            do {
                _ = try await fixture.manager.start(request, chat: nil)
                return nil
            } catch {
                return (error as? ProcError)?.detail
            }
        }
        #expect(await failure { $0.workdir = "/nonexistent" } == "workdir /nonexistent: No such file or directory")
        #expect(await failure { $0.workdir = "/etc/passwd" } == "workdir /etc/passwd: Not a directory")
        #expect(await failure { $0.workdir = "relative" } == "workdir relative: must be an absolute path")
        #expect(await failure { $0.program = .argv(["nothing-like-this"]) } == "nothing-like-this: not found in PATH")
        #expect(await failure { $0.program = .argv(["/etc/passwd"]) } == "/etc/passwd: Permission denied")
        #expect(fixture.manager.running == 0)
        await fixture.end()
    }

    @Test func aCommandBeyondTheKernelsArgumentLimitRuns() async throws {
        let fixture = try ManagerFixture()
        let text = String(repeating: "x", count: 200_000)
        let process = try await fixture.start("v='\(text)'; echo ${#v} $# $0")
        _ = await fixture.finish(process)
        #expect(fixture.output(process) == "200000 0 sh\n")
        await fixture.end()
    }

    @Test func descendantsGoOnBeingCaptured() async throws {
        let fixture = try ManagerFixture()
        let gate = "\(fixture.directory.path)/gate"
        mkfifo(gate, 0o600)
        let process = try await fixture.start("(read x < \(gate); echo late) & echo early")
        _ = await fixture.finish(process)
        #expect(process.snapshot().lingering)
        #expect(fixture.output(process) == "early\n")
        let descriptor = wa_open(gate, O_WRONLY, 0)
        write(descriptor, "go\n", 3)
        close(descriptor)
        try await eventually("the pipe ends") { !process.snapshot().lingering }
        #expect(fixture.output(process) == "early\nlate\n")
        await fixture.end()
    }

    @Test func shutdownEndsEverythingInTime() async throws {
        let fixture = try ManagerFixture()
        let ready = "\(fixture.directory.path)/ready"
        let stubborn = try await fixture.start("trap '' TERM; touch \(ready); while :; do sleep 0.05; done")
        let polite = try await fixture.start("sleep 1000")
        try await eventually("the trap is set") { access(ready, F_OK) == 0 }
        let clock = fixture.clock
        let shutdown = fixture.beginShutdown()
        _ = await fixture.finish(polite)
        #expect(stubborn.exit == nil)
        // The grace is asleep on the clock at some moment from now on.
        try await eventually("SIGKILL after the grace", within: .seconds(60)) {
            clock.advance(by: ProcLimits.shutdownGrace)
            return stubborn.exit != nil
        }
        await shutdown.value
        #expect(stubborn.exit?.signal == SIGKILL)
        #expect(stubborn.exit?.reason == .agentShutdown)
        #expect(polite.exit?.signal == SIGTERM)
        await #expect(throws: ProcError(.shuttingDown)) {
            try await fixture.manager.start(StartRequest(.shell("true")), chat: nil)
        }
        await fixture.reactor.stop()
    }
}
