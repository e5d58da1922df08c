import AgentTestSupport
import CPlatform
import CTestSupport
import Glibc
import Testing

@testable import AgentProc

@Suite struct LauncherTests {
    /// Whatever this process's own umask is, which other tests share and so is left alone.
    @Test(arguments: [(mode_t(0o022), mode_t(0o644)), (0o002, 0o664), (0o077, 0o600), (0, 0o666)])
    func childrenHaveTheFileMaskThatTheyAreGiven(mask: mode_t, expected: mode_t) throws {
        let directory = try TemporaryDirectory()
        let launcher = try Launcher(fileMask: mask)
        // By the shell and by a program that it starts.
        try run(launcher, "cd \(directory.path); : > a; touch b; mkdir c")
        for (name, mode) in [("a", expected), ("b", expected), ("c", 0o777 & ~mask)] {
            var info = stat()
            try #require(stat("\(directory.path)/\(name)", &info) == 0)
            #expect(info.st_mode & 0o777 == mode, "\(name)")
        }
    }

    /// Where the kernel is too old for clone3, or a container's seccomp profile refuses it.
    @Test func withoutClone3() async {
        for number in [ENOSYS, EPERM] {
            await #expect(processExitsWith: .success) { [number = number as Int32] in
                #expect(test_refuse_clone3(number) == 0)
                try LauncherTests.startWithDefaultSignals()
            }
        }
    }

    @Test func withClone3() async {
        await #expect(processExitsWith: .success) { try LauncherTests.startWithDefaultSignals() }
    }

    /// A child has no signal ignored or blocked as ours are, and is held by its pidfd.
    private static func startWithDefaultSignals() throws {
        for number in [SIGPIPE, SIGHUP, SIGUSR1] { signal(number, SIG_IGN) }
        signal(SIGTERM) { _ in }
        var blocked = sigset_t()
        sigemptyset(&blocked)
        sigaddset(&blocked, SIGUSR2)
        pthread_sigmask(SIG_BLOCK, &blocked, nil)
        let launcher = try Launcher()
        // Twice: what the kernel refused is remembered.
        for _ in 0..<2 {
            try run(launcher, "! grep -E '^Sig(Ign|Blk):' /proc/self/status | grep -v '[[:space:]]0*$'")
        }
        // A start that fails says why and leaves no child.
        let request = LaunchRequest(
            arguments: ["/nowhere"], environment: [:], workdir: "/", stdout: STDOUT_FILENO, stderr: STDERR_FILENO)
        let error = #expect(throws: LaunchError.self) { try launcher.launch(request) }
        #expect(error?.stage == .program && error?.errno == ENOENT)
        #expect(waitpid(-1, nil, WNOHANG) == -1 && errno == ECHILD)
    }

    private func run(_ launcher: Launcher, _ script: String) throws { try Self.run(launcher, script) }

    private static func run(_ launcher: Launcher, _ script: String) throws {
        let nowhere = wa_open("/dev/null", O_WRONLY, 0)
        defer { close(nowhere) }
        let process = try launcher.launch(
            LaunchRequest(
                arguments: ["/bin/sh", "-c", script], environment: ["PATH": "/usr/bin:/bin"], workdir: "/",
                stdout: nowhere, stderr: nowhere))
        defer { close(process.pidfd) }
        #expect(fcntl(process.pidfd, F_GETFD) == FD_CLOEXEC)
        #expect(wa_pidfd_send_signal(process.pidfd, 0) == 0)
        var status: CInt = 0
        #expect(waitpid(process.pid, &status, 0) == process.pid)
        #expect(status == 0)
    }
}
