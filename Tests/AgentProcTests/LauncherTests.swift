import AgentTestSupport
import CPlatform
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

    private func run(_ launcher: Launcher, _ script: String) throws {
        let nowhere = wa_open("/dev/null", O_WRONLY, 0)
        defer { close(nowhere) }
        let process = try launcher.launch(
            LaunchRequest(
                arguments: ["/bin/sh", "-c", script], environment: ["PATH": "/usr/bin:/bin"], workdir: "/",
                stdout: nowhere, stderr: nowhere))
        defer { close(process.pidfd) }
        var status: CInt = 0
        #expect(waitpid(process.pid, &status, 0) == process.pid)
        #expect(status == 0)
    }
}
