import AgentTestSupport
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
