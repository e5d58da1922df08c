import AgentTestSupport
import Foundation
import Glibc
import Testing

/// Where processes run, and how others may use the files that they make.
@Suite(.blocking) struct ProcessDirectoryTests {
    private static func mode(_ path: String) throws -> mode_t {
        var info = stat()
        guard stat(path, &info) == 0 else { throw DeadlineExceeded(what: path) }
        return info.st_mode & 0o777
    }

    @Test(arguments: [("022", mode_t(0o644), mode_t(0o755)), ("002", 0o664, 0o775)])
    func filesOfProcessesHaveTheModesOfTheUmaskAtTheStart(
        umask: String, ofFiles: mode_t, ofDirectories: mode_t
    ) async throws {
        let daemon = try DaemonProcess(wrapper: ["sh", "-c", "umask \(umask); exec \"$@\"", "sh"])
        let connection = try daemon.connect()
        let work = "\(daemon.directory.path)/work"
        let answer = try connection.run(
            """
            set -e; umask; mkdir -p \(work)/origin; cd \(work)/origin; git init -q .; echo text > file; : > empty
            git add .; git -c user.name=a -c user.email=a@example.com commit -qm first; cd ..
            git clone -q origin clone
            """)
        #expect(answer["exit_code"] as? Int == 0)
        #expect((answer["output"] as? String)?.hasPrefix("0\(umask)\n") == true, "\(answer)")
        for file in ["origin/file", "clone/file", "clone/empty", "clone/.git/config"] {
            #expect(try Self.mode("\(work)/\(file)") == ofFiles, "\(file)")
        }
        #expect(try Self.mode("\(work)/clone") == ofDirectories)
        // What the daemon makes for itself stays its own.
        #expect(try Self.mode("\(daemon.directory.path)/state/processes") == 0o700)
        #expect(try await daemon.stop() == 0)
    }

    @Test func theManifestsDirectoryMayBeClonedLater() async throws {
        let world = try await LinkWorld { manifest, _ in manifest.directory = "~/not-cloned-yet" }
        let daemon = try world.daemon()
        try await world.reported(.ready)
        let (connection, home) = (try daemon.connect(), world.directory.path)
        #expect(try connection.run("pwd")["output"] as? String == "\(home)\n")
        #expect(try connection.run("mkdir not-cloned-yet")["exit_code"] as? Int == 0)
        #expect(try connection.run("pwd")["output"] as? String == "\(home)/not-cloned-yet\n")
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    @Test func aConfiguredDirectoryThatIsMissingMeansHomeUntilItIsThere() async throws {
        let directory = try TemporaryDirectory()
        let (home, wanted) = ("\(directory.path)/home", "\(directory.path)/not-cloned-yet")
        try #require(mkdir(home, 0o755) == 0)
        let daemon = try DaemonProcess(
            arguments: ["--directory", wanted], environment: ["HOME": home], directory: directory)
        let connection = try daemon.connect()
        let warning = "\(wanted) cannot be used"
        func warnings() -> Int { daemon.log.components(separatedBy: warning).count - 1 }

        for _ in 0..<3 {
            let id = try connection.start("pwd")
            #expect(try connection.finish(id)["output"] as? String == "\(home)\n")
            #expect(try connection.info(id)["workdir"] as? String == home)
        }
        _ = try await daemon.logged(warning)
        // A file in its place is no directory, either.
        try "".write(toFile: wanted, atomically: false, encoding: .utf8)
        #expect(try connection.run("pwd")["output"] as? String == "\(home)\n")
        unlink(wanted)
        try #require(mkdir(wanted, 0o755) == 0)
        let id = try connection.start("pwd")
        #expect(try connection.finish(id)["output"] as? String == "\(wanted)\n")
        #expect(try connection.info(id)["workdir"] as? String == wanted)
        try await eventually("the log is flushed") { warnings() >= 1 }
        #expect(warnings() == 1)

        // Gone again: told again.
        rmdir(wanted)
        #expect(try connection.run("pwd")["output"] as? String == "\(home)\n")
        try await eventually("it is told again") { warnings() == 2 }
        // An explicit one must exist.
        let refused = try connection.postStart(["command": "true", "workdir": wanted])
        #expect(refused.status == 400)
        #expect(refused.json["message"] as? String == "Failed to start process.")
        #expect(refused.json["detail"] as? String == "workdir \(wanted): No such file or directory")
        #expect(try await daemon.stop() == 0)
        #expect(warnings() == 2)
    }
}
