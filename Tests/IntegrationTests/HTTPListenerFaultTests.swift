import AgentTestSupport
import Foundation
import Glibc
import Testing

/// Addresses that cannot be had, and files and directories that others have a hand in.
@Suite(.blocking) struct HTTPListenerFaultTests {
    /// Runs a daemon that cannot start.
    private func failure(_ arguments: [String]) throws -> CommandResult {
        let directory = try TemporaryDirectory()
        return try CommandResult.of(
            [
                DaemonProcess.binary, "agent", "--http-socket", "\(directory.path)/s", "--state-dir",
                "\(directory.path)/state", "--log-dir", directory.path, "--log-human", "\(directory.path)/human.log",
            ] + arguments)
    }

    /// One line that says so, without names of our types or of system calls.
    private func expect(_ result: CommandResult, _ line: String) {
        #expect(result.code == 1)
        #expect(result.errors == "workspace-agent: \(line)\n")
    }

    @Test(arguments: [("--http-address", ""), ("--prometheus-address", "--prometheus-address: ")])
    func addressesThatCannotBeHad(flag: String, prefix: String) throws {
        let daemon = try DaemonProcess(tcp: true)
        let taken = "127.0.0.1:\(daemon.port)"
        expect(
            try failure([flag, taken]),
            "\(prefix)cannot listen on \(taken): Address already in use; end what listens there or choose another port")
        // An address for documentation, which no machine has.
        expect(
            try failure([flag, "192.0.2.1:1"]),
            "\(prefix)cannot listen on 192.0.2.1:1: Cannot assign requested address; "
                + "use an address that this machine has, as 127.0.0.1")
        let unknown = try failure([flag, "no-such-host.invalid:1"])
        #expect(unknown.code == 1)
        #expect(unknown.errors.split(separator: "\n").count == 1)
        #expect(
            unknown.errors.hasPrefix(
                "workspace-agent: \(prefix)cannot listen on no-such-host.invalid:1: the host is not known ("))
        #expect(unknown.errors.hasSuffix("); use an address of this machine, as 127.0.0.1\n"))
        #expect(!unknown.errors.contains("SocketAddressError"))
    }

    @Test func tokenFilesThatAreNone() throws {
        let directory = try TemporaryDirectory()
        let fifo = "\(directory.path)/fifo"
        try #require(mkfifo(fifo, 0o600) == 0)
        let large = "\(directory.path)/large"
        try String(repeating: "x", count: (8 << 10) + 1).write(toFile: large, atomically: false, encoding: .utf8)
        for (path, problem) in [
            (fifo, "\(fifo) is a named pipe, not a regular file"),
            (directory.path, "\(directory.path) is a directory, not a regular file"),
            ("/dev/zero", "/dev/zero is a device, not a regular file"),
            ("\(directory.path)/none", "cannot read \(directory.path)/none: No such file or directory"),
            (large, "\(large) is larger than 8192 bytes"),
        ] {
            expect(
                try failure(["--http-address", "127.0.0.1:0", "--http-token-file", path]),
                "--http-token-file: \(problem)")
        }
    }

    @Test(.enabled(if: Privileges.isRoot)) func anotherUsersTokenFileIsRefused() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/token"
        try "0123456789abcdef".write(toFile: path, atomically: false, encoding: .utf8)
        chown(path, Privileges.nobody, Privileges.nobody)
        let link = "\(directory.path)/link"
        symlink(path, link)
        for named in [path, link] {
            expect(
                try failure(["--http-address", "127.0.0.1:0", "--http-token-file", named]),
                "--http-token-file: \(named) belongs to uid 65534, who is neither root nor uid 0")
        }
    }

    @Test(arguments: [0o600, 0o640, 0o644, 0o602]) func openTokenFilesAreWarnedOf(mode: mode_t) async throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/token"
        try "0123456789abcdef".write(toFile: path, atomically: false, encoding: .utf8)
        chmod(path, mode)
        let daemon = try DaemonProcess(tcp: true, arguments: ["--http-token-file", path])
        let log = try await daemon.logged("listening on")
        let warning = log.split(separator: "\n").first { $0.contains("Others may read or change the token file") }
        #expect((warning != nil) == (mode != 0o600))
        if let warning { #expect(warning.contains("WARN ") && warning.contains(path)) }
    }

    @Test(arguments: [(0o700, nil), (0o1777, nil), (0o777, "is writable by other users"), (0o770, "is writable by")])
    func directoriesThatOthersMayWriteTo(mode: mode_t, problem: String?) async throws {
        try await expectWarning(problem) { chmod($0, mode) }
    }

    @Test(.enabled(if: Privileges.isRoot)) func directoriesOfAnotherUser() async throws {
        try await expectWarning("belongs to uid 65534") { chown($0, Privileges.nobody, Privileges.nobody) }
    }

    private func expectWarning(_ problem: String?, prepare: (String) -> CInt) async throws {
        let directory = try TemporaryDirectory()
        let shared = "\(directory.path)/shared"
        try #require(mkdir(shared, 0o700) == 0 && prepare(shared) == 0)
        let socket = "\(shared)/http.sock"
        let daemon = try DaemonProcess(arguments: ["--http-socket", socket], directory: directory)
        let log = try await daemon.logged("listening on")
        let health = try RawConnection(unix: socket).request("GET", "/healthz").json
        // It serves all the same.
        #expect(health["status"] as? String == "ok")
        let reason = (health["reasons"] as? [String])?.first { $0.hasPrefix("http socket: ") }
        let warning = log.split(separator: "\n").first { $0.contains("may replace the HTTP socket") }
        guard let problem else {
            #expect(reason == nil && warning == nil)
            return
        }
        #expect(reason?.contains("\(shared) \(problem)") == true)
        #expect(warning?.contains("WARN ") == true && warning?.contains("\(shared) \(problem)") == true)
    }

    /// Whatever lies where the token goes is replaced, not written to or waited for.
    @Test func whatLiesWhereTheTokenGoes() async throws {
        let directory = try TemporaryDirectory()
        let target = "\(directory.path)/precious"
        try "precious".write(toFile: target, atomically: false, encoding: .utf8)
        for prepare in [{ symlink(target, $0) }, { mkfifo($0, 0o666) }] as [(String) -> CInt] {
            try #require(prepare("\(directory.path)/http.token") == 0)
            let daemon = try DaemonProcess(tcp: true, directory: directory)
            #expect(daemon.token.count == 43)
            #expect(try daemon.connectTCP().request("GET", "/", headers: daemon.authorization).status == 200)
            #expect(try await daemon.stop() == 0)
            #expect(access("\(directory.path)/http.token", F_OK) != 0)
            #expect(try String(contentsOfFile: target, encoding: .utf8) == "precious")
        }
    }
}
