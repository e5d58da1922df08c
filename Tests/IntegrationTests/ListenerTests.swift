import AgentTestSupport
import Foundation
import Glibc
import Testing

@Suite(.blocking) struct ListenerTests {
    private func socketAt(_ path: String, listening: Bool) throws -> CInt {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix(107)) }
        let rc = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        try #require(rc == 0)
        if listening { try #require(listen(descriptor, 8) == 0) }
        return descriptor
    }

    private func mode(_ path: String) -> mode_t? {
        var info = stat()
        return lstat(path, &info) == 0 ? info.st_mode & 0o7777 : nil
    }

    @Test func filesAreTheUsersAloneAndGoAtShutdown() async throws {
        let daemon = try DaemonProcess(tcp: true)
        let token = "\(daemon.directory.path)/http.token"
        #expect(mode(daemon.socket) == 0o600)
        #expect(mode(token) == 0o600)
        #expect(mode("\(daemon.directory.path)/state") == 0o700)
        #expect(daemon.token.count == 43)
        #expect(daemon.token.allSatisfy { $0.isLetter || $0.isNumber || $0 == "-" || $0 == "_" })
        #expect(try await daemon.stop() == 0)
        #expect(mode(daemon.socket) == nil)
        #expect(mode(token) == nil)
    }

    @Test func aStaleSocketIsReplaced() async throws {
        let directory = try TemporaryDirectory()
        let descriptor = try socketAt("\(directory.path)/http.sock", listening: true)
        // A child that another thread is about to start has it, too, until it executes its program.
        shutdown(descriptor, Int32(SHUT_RD))
        close(descriptor)
        let daemon = try DaemonProcess(directory: directory)
        #expect(try daemon.connect().request("GET", "/").status == 200)
    }

    @Test func theSocketOfAKilledDaemonIsReplaced() async throws {
        let first = try DaemonProcess()
        first.signal(SIGKILL)
        _ = try await first.wait()
        let second = try DaemonProcess(directory: first.directory)
        #expect(try second.connect().request("GET", "/").status == 200)
    }

    @Test func aLiveSocketIsLeftAlone() throws {
        let daemon = try DaemonProcess()
        let log = ["--log-dir", daemon.directory.path, "--state-dir", "\(daemon.directory.path)/other"]
        let result = try CommandResult.of([DaemonProcess.binary, "agent", "--http-socket", daemon.socket] + log)
        #expect(result.code == 1)
        #expect(result.errors.split(separator: "\n").count == 1)
        #expect(
            result.errors.contains("process \(daemon.pid) of uid \(geteuid()) already listens on \(daemon.socket)"),
            "\(result.errors)")
        #expect(try daemon.connect().request("GET", "/").status == 200)
    }

    /// It serves the rest, and says who has the socket.
    @Test func aLiveAgentSocketIsLeftAlone() throws {
        let first = try DaemonProcess()
        let path = "\(first.directory.path)/agent.sock"
        let second = try DaemonProcess(arguments: ["--socket-path", path])
        let health = try second.connect().request("GET", "/healthz")
        #expect(health.json["status"] as? String == "degraded")
        #expect(
            health.text.contains(
                "agent socket: process \(first.pid) of uid \(geteuid()) already listens on \(path); stop it or choose"),
            "\(health.text)")
    }

    /// A read-only home: what needs the directory is left out, and said.
    @Test(arguments: [true, false]) func aReadOnlyStateDirectory(existed: Bool) async throws {
        let directory = try TemporaryDirectory()
        let state = "\(directory.path)/readonly"
        mkdir(state, 0o700)
        var wrapper: [String] = []
        if Privileges.isRoot {
            // As root no mode keeps us from writing. The daemon gets a file system of its own.
            wrapper = [
                "unshare", "-m", "sh", "-c",
                "mount -t tmpfs -o mode=700 tmpfs \(state) && \(existed ? "touch \(state)/.lock &&" : "") "
                    + #"mount -o remount,ro \#(state) && exec "$@""#, "sh",
            ]
        } else {
            if existed { _ = FileManager.default.createFile(atPath: "\(state)/.lock", contents: nil) }
            chmod(state, 0o500)
        }
        defer { chmod(state, 0o700) }
        let daemon = try DaemonProcess(tcp: true, arguments: ["--state-dir", state], wrapper: wrapper)
        let connection = try daemon.connect()
        let health = try connection.request("GET", "/healthz")
        #expect(health.json["status"] as? String == "degraded")
        #expect(health.text.contains("state directory: cannot open \(state)/.lock: "), "\(health.text)")
        #expect(try connection.run("echo works")["output"] as? String == "works\n")
        let file = "\(daemon.directory.path)/file"
        #expect(try connection.request("POST", "/api/v0/write-file?path=\(file)", body: "text").status == 200)
        #expect(try await daemon.stop() == 0)
    }

    @Test func aFileInTheWayIsNeverDeleted() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/http.sock"
        try "precious".write(toFile: path, atomically: false, encoding: .utf8)
        let result = try CommandResult.ofAgent(
            "agent", "--http-socket", path, "--state-dir", "\(directory.path)/state", "--log-dir", directory.path)
        #expect(result.code == 1)
        #expect(result.errors.split(separator: "\n").count == 1)
        #expect(result.errors.contains(path))
        #expect(try String(contentsOfFile: path, encoding: .utf8) == "precious")
    }

    @Test func severalListenersAtOnce() async throws {
        let daemon = try DaemonProcess(tcp: true, arguments: ["--http-address", "127.0.0.1:0"])
        let ports = daemon.readyStatus.components(separatedBy: "http://127.0.0.1:").dropFirst().compactMap {
            Int($0.prefix { $0.isNumber })
        }
        try #require(ports.count == 2)
        #expect(try daemon.connect().request("GET", "/").status == 200)
        for port in ports {
            let response = try RawConnection(port: port).request("GET", "/", headers: daemon.authorization)
            #expect(response.status == 200)
        }
        // One line that lists them all.
        let log = try await daemon.logged("listening on")
        let lines = log.split(separator: "\n").filter { $0.contains("listening on") }
        #expect(lines.count == 1)
        for place in ["unix:\(daemon.socket)", "http://127.0.0.1:\(ports[0])", "http://127.0.0.1:\(ports[1])"] {
            #expect(lines.first?.contains(place) == true)
        }
    }

    @Test func noUnixSocket() async throws {
        let daemon = try DaemonProcess(tcp: true, arguments: ["--http-socket", ""])
        #expect(mode(daemon.socket) == nil)
        #expect(try daemon.connectTCP().request("GET", "/healthz").status == 200)
        // Without a socket there is a token file all the same, in the state directory.
        #expect(mode("\(daemon.directory.path)/state/http.token") == 0o600)
        #expect(try await daemon.stop() == 0)
    }

    @Test func anAddressThatIsTakenIsAnErrorThatNamesIt() throws {
        #expect(try startOnTakenAddress().code == 1)
    }

    @Test func aFailedStartLeavesNoSocket() throws {
        let directory = try TemporaryDirectory()
        _ = try startOnTakenAddress(directory)
        #expect(access("\(directory.path)/a.sock", F_OK) != 0)
    }

    private func startOnTakenAddress(_ directory: TemporaryDirectory? = nil) throws -> CommandResult {
        let daemon = try DaemonProcess(tcp: true)
        let directory = try directory ?? TemporaryDirectory()
        let result = try CommandResult.ofAgent(
            "agent", "--http-socket", "\(directory.path)/a.sock", "--http-address", "127.0.0.1:\(daemon.port)",
            "--state-dir", "\(directory.path)/state", "--log-dir", directory.path)
        #expect(result.errors.contains("127.0.0.1:\(daemon.port)"))
        #expect(result.errors.split(separator: "\n").count == 1)
        return result
    }

    @Test func socketActivation() async throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/activated.sock"
        let unix = try socketAt(path, listening: true)
        let tcp = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { for descriptor in [unix, tcp] { close(descriptor) } }
        try #require(listen(tcp, 8) == 0)
        var address = sockaddr_in()
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(tcp, $0, &size) }
        }
        // LISTEN_PID has to be the daemon's own, which the shell's is once it has become it.
        let daemon = try DaemonProcess(
            environment: ["LISTEN_FDS": "2"], wrapper: ["sh", "-c", #"LISTEN_PID=$$ exec "$@""#, "sh"],
            descriptors: [unix, tcp], directory: directory)
        let connection = try RawConnection(unix: path)
        #expect(try connection.request("GET", "/").status == 200)
        let port = Int(in_port_t(bigEndian: address.sin_port))
        #expect(try RawConnection(port: port).request("GET", "/").status == 401)
        #expect(try RawConnection(port: port).request("GET", "/healthz").status == 200)
        let tokens = try FileManager.default.contentsOfDirectory(atPath: directory.path)
        #expect(tokens.contains("http.token"))
        #expect(access(daemon.socket, F_OK) != 0)
        // None of it reaches a child.
        let child = try connection.run("ls -l /proc/self/fd; env | grep LISTEN")
        #expect((child["output"] as? String)?.contains("socket:") == false)
        #expect((child["output"] as? String)?.contains("LISTEN") == false)
        #expect(try await daemon.stop() == 0)
        // The socket is systemd's, not ours to remove.
        #expect(access(path, F_OK) == 0)
    }

    @Test(.enabled(if: Privileges.isRoot)) func theSocketServesItsUserAndRootOnly() throws {
        let daemon = try DaemonProcess()
        let line = Privileges.asNobody + ["curl", "-s", "--unix-socket", daemon.socket, "http://localhost/healthz"]
        // The file keeps them out …
        #expect(try CommandResult.of(line).code == 7)
        // … and where somebody opened it up, the peer's credentials do.
        chmod(daemon.socket, 0o666)
        let refused = try CommandResult.of(line + ["-w", " %{http_code}"])
        #expect(refused.output.hasSuffix(" 403"))
        #expect(refused.output.contains("This socket serves uid 0 and root only."))
    }

    @Test(.enabled(if: Privileges.isRoot)) func rootMayUseTheSocketOfAnotherUser() throws {
        let daemon = try DaemonProcess(
            environment: ["HOME": "/tmp"], wrapper: Privileges.asNobody, directory: try Privileges.directoryOfNobody())
        let connection = try daemon.connect()
        #expect(try connection.request("GET", "/").status == 200)
        #expect(try connection.run("id -u")["output"] as? String == "65534\n")
        let own = Privileges.asNobody + ["curl", "-s", "--unix-socket", daemon.socket, "http://localhost/"]
        #expect(try CommandResult.of(own).output.contains("Hello"))
    }

    @Test func systemdHearsOfTheEnd() async throws {
        let daemon = try DaemonProcess()
        #expect(daemon.readyStatus.contains("STATUS=Listening on unix:\(daemon.socket)"))
        daemon.signal(SIGTERM)
        #expect(try daemon.notified("STOPPING=1").contains("STATUS="))
        _ = try await daemon.wait()
    }

    @Test func stateAndSocketInOneDirectory() async throws {
        let directory = try TemporaryDirectory()
        let daemon = try DaemonProcess(arguments: ["--state-dir", directory.path], directory: directory)
        #expect(try daemon.connect().request("GET", "/").status == 200)
        #expect(try await daemon.stop() == 0)
    }
}
