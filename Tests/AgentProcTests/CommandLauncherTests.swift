import AgentCore
import AgentTestSupport
import CPlatform
import FoundationEssentials
import Glibc
import Logging
import NIOPosix
import Synchronization
import Testing

@testable import AgentProc

@Suite(.serialized) struct CommandLauncherTests {
    @Test func bothOutputsAndTheExitArrive() async throws {
        try await withLauncher { fixture in
            let run = try await fixture.run("echo out; echo err >&2; exit 7")
            #expect(await run.command.exit() == .exited(7))
            await run.command.outputEnd()
            #expect(run.output.text(.stdout) == "out\n")
            #expect(run.output.text(.stderr) == "err\n")
        }
    }

    @Test func startsASessionWithEmptyInput() async throws {
        try await withLauncher { fixture in
            let run = try await fixture.run("cat; ps -o sid= -p $$ | tr -d ' '; echo $$; pwd; echo $V")
            _ = await run.command.exit()
            await run.command.outputEnd()
            let lines = run.output.text(.stdout).split(separator: "\n")
            #expect(lines == ["\(run.command.pid)", "\(run.command.pid)", "/", "value"])
        }
    }

    @Test func anExitBySignalIsToldAsOne() async throws {
        try await withLauncher { fixture in
            let run = try await fixture.run("kill -9 $$")
            #expect(await run.command.exit() == .signalled(SIGKILL))
        }
    }

    @Test func aSignalForTheLeaderReachesNoOtherProcess() async throws {
        try await withLauncher { fixture in
            let run = try await fixture.run("trap 'exit 3' TERM; sleep 1000 & echo $!; wait")
            try await eventually("it runs") { run.output.text(.stdout).hasSuffix("\n") }
            let child = try #require(pid_t(run.output.text(.stdout).dropLast()))
            run.command.signalLeader(SIGTERM)
            #expect(await run.command.exit() == .exited(3))
            #expect(ProcFS.runs(child))
            // No process has the number any more.
            run.command.signalLeader(SIGKILL)
            #expect(ProcFS.runs(child))
            kill(child, SIGKILL)
            await run.command.outputEnd()
        }
    }

    @Test func whatCannotStartIsNamed() async throws {
        try await withLauncher { fixture in
            await #expect(throws: LaunchError(stage: .program, errno: ENOENT, description: "")) {
                _ = try await fixture.run(arguments: ["/no/such/program"])
            }
            await #expect(throws: LaunchError(stage: .workdir, errno: ENOENT, description: "")) {
                _ = try await fixture.run(arguments: ["/bin/true"], workdir: "/no/such/directory")
            }
            #expect(fixture.launcher.running == 0)
        }
    }

    /// As a program of ours is while another thread's child, which has not executed yet, holds it open.
    @Test func aProgramThatIsOpenForWritingIsTriedAgain() async throws {
        try await withLauncher { fixture in
            let directory = try TemporaryDirectory()
            let path = "\(directory.path)/program"
            let script = "printf '#!/bin/sh\\nexit 5\\n' >\(path); chmod +x \(path); exec 3>>\(path); echo up"
            let busy = LaunchError(stage: .program, errno: ETXTBSY, description: "")
            let holding = try await fixture.run("\(script); exec sleep 1000")
            try await eventually("it is held") { holding.output.text(.stdout) == "up\n" }
            await #expect(throws: busy) { _ = try await fixture.run(arguments: [path]) }
            holding.command.signal(SIGKILL)
            _ = await holding.command.exit()
            // A busy machine may keep the file open for longer than it is tried.
            try await eventually("it starts once the file is closed") {
                let holding = try await fixture.run("\(script); exec sleep 0.02")
                try await eventually("it is held") { holding.output.text(.stdout) == "up\n" }
                do {
                    let run = try await fixture.run(arguments: [path])
                    #expect(await run.command.exit() == .exited(5))
                    _ = await holding.command.exit()
                    return true
                } catch let error as LaunchError where error == busy {
                    _ = await holding.command.exit()
                    return false
                }
            }
        }
    }

    @Test func outputMayOutliveTheLeader() async throws {
        try await withLauncher { fixture in
            let run = try await fixture.run("(read x </dev/zero; sleep 1000) & sleep 0.1; exit 3")
            #expect(await run.command.exit() == .exited(3))
            let ended = Box(false)
            let waiting = Task {
                await run.command.outputEnd()
                ended.change { $0 = true }
            }
            #expect(fixture.launcher.running == 1)
            #expect(!ended.value)
            run.command.abandonOutput()
            await waiting.value
            #expect(fixture.launcher.running == 0)
            run.command.signal(SIGKILL)
            try await eventually("nothing is left") { SessionProcesses().members(of: [run.command.pid]).isEmpty }
        }
    }

    @Test func aSignalReachesTheWholeSession() async throws {
        try await withLauncher { fixture in
            let run = try await fixture.run("sleep 1000 & sleep 1000 & echo ready; wait")
            try await eventually("both run") { run.output.text(.stdout) == "ready\n" }
            run.command.signal(SIGTERM)
            #expect(await run.command.exit() == .signalled(SIGTERM))
            await run.command.outputEnd()
            try await eventually("no process is left") { SessionProcesses().members(of: [run.command.pid]).isEmpty }
        }
    }

    @Test func aHeldGateStopsTheProgramAndLosesNothing() async throws {
        try await withLauncher { fixture in
            let gate = OutputGate()
            let seen = Box(0)
            let command = try await fixture.launcher.start(
                Command(
                    arguments: ["/bin/sh", "-c", "head -c 8000000 /dev/zero; head -c 3000000 /dev/zero >&2"],
                    environment: [:], workdir: "/", gate: gate)
            ) { _, bytes in
                let count = bytes.count
                seen.change { $0 += count }
                gate.hold()
            }
            let exited = Box(false)
            let waiting = Task {
                _ = await command.exit()
                exited.change { $0 = true }
            }
            try await eventually("the first bytes came") { gate.isHeld }
            let atHold = seen.value
            #expect(atHold < 2_000_000)
            try await eventually("the program waits in its write") {
                SessionProcesses().members(of: [command.pid]).contains {
                    (readTextFile("/proc/\($0.pid)/wchan") ?? "").contains("pipe")
                        || (readTextFile("/proc/\($0.pid)/stat") ?? "").contains(" S ")
                }
            }
            #expect(seen.value == atHold)
            #expect(!exited.value)
            while !exited.value || fixture.launcher.running > 0 {
                try await eventually("held again, or over") {
                    gate.isHeld || (exited.value && fixture.launcher.running == 0)
                }
                gate.release()
            }
            await waiting.value
            await command.outputEnd()
            #expect(seen.value == 11_000_000)
        }
    }

    @Test func twoHundredLeaveNothingBehind() async throws {
        try await withLauncher { fixture in
            let warm = try await fixture.run("true")
            _ = await warm.command.exit()
            await warm.command.outputEnd()
            let before = fixture.pipesAndPidfds()
            for batch in 0..<20 {
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for index in 0..<10 {
                        group.addTask {
                            let script =
                                index == 0 ? "sleep 1000 & exit 0" : index == 1 ? "kill -TERM $$" : "echo \(batch)"
                            let run = try await fixture.run(script)
                            _ = await run.command.exit()
                            if index == 0 {
                                run.command.abandonOutput()
                                run.command.signal(SIGKILL)
                            }
                            await run.command.outputEnd()
                        }
                    }
                    try await group.waitForAll()
                }
            }
            #expect(fixture.launcher.running == 0)
            // Other suites open and close theirs meanwhile.
            try await eventually("all descriptors are closed") { fixture.pipesAndPidfds() <= before }
            try await eventually("no child is left") { fixture.children().isEmpty }
        }
    }

    @Test func shutdownKillsAndTakesNoMore() async throws {
        let fixture = try LauncherFixture()
        let run = try await fixture.run("trap '' TERM; sleep 1000 & echo ready; wait")
        try await eventually("it runs") { run.output.text(.stdout) == "ready\n" }
        await fixture.launcher.shutdown()
        #expect(await run.command.exit() == .signalled(SIGKILL))
        #expect(fixture.launcher.running == 0)
        try await eventually("no process is left") { SessionProcesses().members(of: [run.command.pid]).isEmpty }
        await #expect(throws: LaunchError(stage: .resources, errno: EAGAIN, description: "")) {
            _ = try await fixture.run("true")
        }
        await fixture.end()
    }

    /// In a process of its own: it takes most of the descriptors that a process may have by default.
    @Test func startsBeyondTheLimitAreRefused() async throws {
        await #expect(processExitsWith: .success) {
            _ = wa_raise_nofile()
            try await CommandLauncherTests().withLauncher { fixture in
                var runs: [any RunningCommand] = []
                for _ in 0..<ProcLimits.commands {
                    runs.append(try await fixture.run(arguments: ["/bin/sleep", "1000"]).command)
                }
                await #expect(throws: LaunchError(stage: .resources, errno: EAGAIN, description: "")) {
                    _ = try await fixture.run("true")
                }
                runs[0].signal(SIGKILL)
                _ = await runs[0].exit()
                await runs[0].outputEnd()
                try await eventually("its place is free") { fixture.launcher.running < ProcLimits.commands }
                _ = try await fixture.run("true")
            }
        }
    }

    private func withLauncher(_ body: (LauncherFixture) async throws -> Void) async throws {
        let fixture = try LauncherFixture()
        do { try await body(fixture) } catch {
            await fixture.end()
            throw error
        }
        await fixture.end()
    }
}

/// A real command launcher.
private final class LauncherFixture: Sendable {
    struct Run {
        var command: any RunningCommand
        var output: Collected
    }

    let launcher: CommandLauncher
    private let sessions = Box<Set<pid_t>>([])
    private let reactor: Reactor
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    private let pool = BlockingPool(threads: 2)

    init() throws {
        reactor = try Reactor()
        _ = reactor.start()
        launcher = CommandLauncher(
            launcher: try Launcher(), reactor: reactor, pool: pool, executor: EventLoopTaskExecutor(group.next()),
            clock: AgentClock(ContinuousClock()), metrics: MetricsRegistry(),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    func run(_ script: String) async throws -> Run { try await run(arguments: ["/bin/sh", "-c", script]) }

    func run(arguments: [String], workdir: String = "/") async throws -> Run {
        let output = Collected()
        let command = try await launcher.start(
            Command(arguments: arguments, environment: ["V": "value", "PATH": "/bin:/usr/bin"], workdir: workdir)
        ) { stream, bytes in output.append(stream, bytes) }
        let pid = command.pid
        sessions.change { $0.insert(pid) }
        return Run(command: command, output: output)
    }

    /// Descriptors of this process that a command could leave behind.
    func pipesAndPidfds() -> Int {
        directoryEntries("/proc/self/fd").count { name in
            var buffer = [CChar](repeating: 0, count: 256)
            guard readlink("/proc/self/fd/\(name)", &buffer, 255) > 0 else { return false }
            return buffer.withUnsafeBufferPointer { area in
                guard let base = area.baseAddress else { return false }
                let target = String(cString: base)
                return target.hasPrefix("pipe:") || target.contains("pidfd")
            }
        }
    }

    /// Zombies among this process's children that no test of another suite may have made.
    func children() -> [String] {
        directoryEntries("/proc").filter { entry in
            guard let pid = pid_t(entry), let identity = SessionProcesses().identity(pid) else { return false }
            return identity.parent == getpid() && identity.isZombie
        }
    }

    func end() async {
        await launcher.shutdown()
        for identity in SessionProcesses().members(of: sessions.value) { kill(identity.pid, SIGKILL) }
        await reactor.stop()
        await pool.shutdown()
        try? await group.shutdownGracefully()
    }
}

private final class Collected: Sendable {
    private let bytes = Mutex<(out: [UInt8], err: [UInt8])>(([], []))

    func append(_ stream: CommandStream, _ more: UnsafeRawBufferPointer) {
        bytes.withLock { if stream == .stdout { $0.out += more } else { $0.err += more } }
    }

    func text(_ stream: CommandStream) -> String {
        bytes.withLock { String(decoding: stream == .stdout ? $0.out : $0.err, as: UTF8.self) }
    }
}

private final class Box<Value: Sendable>: Sendable {
    private let state: Mutex<Value>
    init(_ value: Value) { state = Mutex(value) }
    var value: Value { state.withLock { $0 } }
    func change(_ body: @Sendable (inout Value) -> Void) { state.withLock { value in body(&value) } }
}
