import AgentCore
import AgentTestSupport
import CPlatform
import Glibc
import Testing

@testable import AgentProc

@Suite struct SessionProcessesTests {
    @Test func namesMayHoldAnything() throws {
        let line = "42 (a) S 1 (b) R 7 42 99 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 1 2"
        // The last ) ends the name: what is before belongs to it.
        let parsed = try #require(SessionProcesses.parse(Array(line.utf8), pid: 42))
        #expect(parsed.parent == 7)
        #expect(parsed.session == 99)
        #expect(parsed.startTime == 123456)
        #expect(!parsed.isZombie)
    }

    @Test func zombiesAreTold() throws {
        let line = "42 (x) Z 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 5 1 2"
        #expect(try #require(SessionProcesses.parse(Array(line.utf8), pid: 42)).isZombie)
    }

    @Test func brokenLinesAreNoProcess() {
        for line in ["", "42", "42 (x", "42 (x) S 1", "42 (x) S a b c d e f g h i j k l m n o p q r s t"] {
            #expect(SessionProcesses.parse(Array(line.utf8), pid: 42) == nil)
        }
    }

    @Test func findsThisProcess() throws {
        let own = try #require(SessionProcesses().identity(getpid()))
        #expect(own.parent == getppid())
        #expect(SessionProcesses().members(of: [getsid(0)]).contains { $0.pid == getpid() })
    }

    @Test func birthsAreToldAsNowIs() async throws {
        let before = SessionProcesses.now()
        try await withChild { child, _ in
            let identity = try #require(SessionProcesses().identity(child.pid))
            #expect(identity.startTime <= SessionProcesses.now())
            #expect(identity.startTime >= before)
        }
    }

    /// A /proc of our own says what the session is of a process that really runs.
    @Test(arguments: [(UInt64(999), false, true), (1000, false, false), (1000, true, true), (1001, true, false)])
    func aSessionWithAFormerNumberIsNotSignalled(born: UInt64, below: Bool, isSignalled: Bool) async throws {
        try await withChild { child, fake in
            let parent = below ? getpid() : 1
            try fake.put(child.pid, parent: parent, session: 9_999_999, born: born)
            let processes = SessionProcesses(procfs: fake.path)
            let session = OwnSession(9_999_999)
            session.leaderEnds(at: 1000)
            #expect(processes.members(of: [session]).map(\.pid) == (isSignalled ? [child.pid] : []))
            #expect(processes.signal(SIGSTOP, sessions: [session]) == (isSignalled ? .delivered(1) : .empty))
            if isSignalled {
                try await eventually("it stops") { ProcFS.state(child.pid) == "T" }
            } else {
                #expect(ProcFS.state(child.pid) != "T")
            }
        }
    }

    /// Between the look and the signal the number went to another process.
    @Test func aProcessWithAFormerNumberIsNotSignalled() async throws {
        try await withChild { child, fake in
            let processes = SessionProcesses(procfs: fake.path)
            try fake.put(child.pid, parent: 1, session: child.pid, born: 5)
            let seen = try #require(processes.identity(child.pid))
            try fake.put(child.pid, parent: 1, session: child.pid, born: 6)
            #expect(processes.send(SIGKILL, to: seen) == ESRCH)
            try fake.put(child.pid, parent: 1, session: 7, born: 5)
            #expect(processes.send(SIGKILL, to: seen) == ESRCH)
            #expect(ProcFS.runs(child.pid))
            try fake.put(child.pid, parent: 1, session: child.pid, born: 5)
            #expect(processes.send(SIGSTOP, to: seen) == 0)
            try await eventually("it stops") { ProcFS.state(child.pid) == "T" }
        }
    }

    private struct FakeProc {
        let directory: TemporaryDirectory
        var path: String { directory.path }

        func put(_ pid: pid_t, parent: pid_t, session: pid_t, born: UInt64) throws {
            let line = "\(pid) (x) S \(parent) \(session) \(session) 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 \(born) 1 2"
            mkdir("\(path)/\(pid)", 0o755)
            try OwnFile.replace("\(path)/\(pid)/stat", with: Array(line.utf8))
        }
    }

    private func withChild(_ body: (LaunchedProcess, FakeProc) async throws -> Void) async throws {
        try await withSleepingChild { try await body($0, FakeProc(directory: TemporaryDirectory())) }
    }

    @Test func signalNames() {
        #expect(SignalName.number("kill") == SIGKILL)
        #expect(SignalName.number("terminate") == SIGTERM)
        for name in ["SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGSTOP"] {
            let number = SignalName.number(name)
            #expect(number.map(SignalName.name) == name)
        }
        for name in ["SIGKILL", "SIGTERM", "sigint", "9", "", "SIGSEGV"] { #expect(SignalName.number(name) == nil) }
        #expect(SignalName.name(34) == "SIGRTMIN")
        #expect(SignalName.name(36) == "SIGRTMIN+2")
    }
}

/// A program that sleeps, ended after the body.
func withSleepingChild(_ body: (LaunchedProcess) async throws -> Void) async throws {
    let launcher = try Launcher()
    let nowhere = wa_open("/dev/null", O_RDWR, 0)
    defer { close(nowhere) }
    let child = try launcher.launch(
        LaunchRequest(
            arguments: ["sleep", "1000"], environment: ["PATH": "/usr/bin:/bin"], workdir: "/", stdout: nowhere,
            stderr: nowhere))
    defer {
        launcher.discard(child)
        close(child.pidfd)
    }
    try await body(child)
}
