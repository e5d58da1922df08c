import AgentTestSupport
import Foundation
import Testing

/// A plain WireGuard client reaches the daemon.
@Suite("WireGuard", .blocking, .timeLimit(.minutes(10))) struct WireGuardTests {
    private static let possible = ConditionTrait.enabled(
        if: WireGuardWorld.isPossible, "network namespaces or TUN devices are not permitted")

    @Test(possible) func theHTTPAPIIsOnPort4() async throws {
        let world = try WireGuardWorld()
        try await world.start()
        let health = try world.curl("/healthz")
        #expect(health.output.contains(#""status":"ok""#), "\(health)")
        // Without a token: the tunnel's peers are the owner's.
        let run = try world.curl(
            "/api/v0/processes/start", "--json", #"{"command": "echo through the tunnel", "wait_ms": 60000}"#)
        #expect(run.output.contains("through the tunnel"), "\(run)")
        let upgrade = try world.curl(
            "/api/v0/git/watch", "-i", "--http1.1", "-m", "1", "-H", "Connection: Upgrade", "-H", "Upgrade: websocket",
            "-H", "Sec-WebSocket-Version: 13", "-H", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
        #expect(upgrade.output.hasPrefix("HTTP/1.1 101"), "\(upgrade)")
        #expect(try world.curl("/ui").output.contains("<html"))
        let code = try await world.daemon.stop()
        #expect(code == 0)
    }

    /// A page that the client's browser has open must not get at the API, under whatever name.
    @Test(possible) func otherSitesAreRefused() async throws {
        let world = try WireGuardWorld()
        try await world.start(arguments: ["--http-allowed-host", "ws.example.org"])
        func status(_ headers: String...) throws -> String {
            let flags = headers.flatMap { ["-H", $0] }
            return try world.inside(
                "curl", "-sS", "-g", "-o", "/dev/null", "-w", "%{http_code}",
                "http://[\(WireGuardWorld.address)]:4/healthz",
                flags.first ?? "-s", flags.count > 1 ? flags[1] : "-s", flags.count > 2 ? flags[2] : "-s",
                flags.count > 3 ? flags[3] : "-s"
            ).output
        }
        #expect(try status() == "200")
        #expect(try status("Host: rebound.example.com") == "403")
        #expect(try status("Host: ws.example.org") == "200")
        #expect(try status("Host: main.workspace.me.coder") == "200")
        #expect(try status("Host: workspace") == "200")
        #expect(try status("Host: workspace", "Origin: http://evil.example.com") == "403")
        _ = try await world.daemon.stop()
    }

    @Test(possible) func loopbackPortsAreForwardedAndOursAreNot() async throws {
        let world = try WireGuardWorld()
        try await world.start()
        // Another program's port.
        let other = try DaemonProcess(tcp: true)
        let answer = try world.curl("/healthz", port: other.port, "-H", "Host: localhost")
        #expect(answer.output.contains(#""status":"#), "\(answer)")
        for port in [try world.daemon.port, 1, 2, 22] {
            // curl's code for a connection that was refused.
            #expect(try world.curl("/healthz", port: port).code == 7, "port \(port)")
        }
        _ = try await other.stop()
        #expect(try world.curl("/healthz", port: other.port).code == 7)
        _ = try await world.daemon.stop()
    }

    @Test(possible) func bytesAreTheSameBothWays() async throws {
        let world = try WireGuardWorld()
        try await world.start()
        let (source, target) = ("\(world.directory.path)/source", "\(world.directory.path)/target")
        _ = try CommandResult.of(["sh", "-c", "head -c 67108864 /dev/urandom > \(source)"])
        let upload = try world.curl("/api/v0/write-file?path=\(target)", "--data-binary", "@\(source)")
        #expect(upload.output.contains("etag"), "\(upload)")
        #expect(try CommandResult.of(["cmp", source, target]).code == 0)
        let download = try world.curl("/api/v0/read-file?path=\(target)", "-o", "\(source).2")
        #expect(download.code == 0, "\(download)")
        #expect(try CommandResult.of(["cmp", source, "\(source).2"]).code == 0)
        _ = try await world.daemon.stop()
    }

    /// The kernel's UDP and ICMPv6: datagrams that need fragments both ways, a closed port, a large ping.
    @Test(possible) func datagramsOfTheKernel() async throws {
        let world = try WireGuardWorld()
        try await world.start()
        let server = """
            import socket, sys
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind(("127.0.0.1", 0))
            print(s.getsockname()[1], flush=True)
            while True:
                data, peer = s.recvfrom(65535)
                s.sendto(data[::-1], peer)
            """
        let answerer = try RunningProgram(
            ["python3", "-c", server], environment: ProcessInfo.processInfo.environment)
        let port = answerer.nextOutput().trimmingCharacters(in: .newlines)
        let client = """
            import os, socket, struct, sys
            # UDP may lose.
            def retried(ask):
                for _ in range(20):
                    try:
                        return ask()
                    except TimeoutError:
                        continue
                return "no answer"
            def udp(port, count):
                s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
                s.settimeout(3)
                s.connect(("fd99::1", port))
                data = os.urandom(count)
                def ask():
                    s.send(data)
                    return s.recv(65535) == data[::-1]
                try:
                    return retried(ask)
                except ConnectionRefusedError:
                    return "refused"
            def ping(count):
                s = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
                s.settimeout(3)
                data = struct.pack("!BBHHH", 128, 0, 0, 7, 1) + os.urandom(count)
                def ask():
                    s.sendto(data, ("fd99::1", 0))
                    while True:
                        answer = s.recv(65535)
                        if answer[0] == 129:
                            return answer[4:] == data[4:]
                return retried(ask)
            port = int(sys.argv[1])
            print([udp(port, n) for n in (1, 1232, 1233, 8000, 60000)], udp(9, 10), udp(9, 5000))
            print([ping(n) for n in (8, 1500, 20000)])
            """
        let result = try world.inside("python3", "-c", client, port)
        #expect(
            result.output == "[True, True, True, True, True] refused refused\n[True, True, True]\n", "\(result)")
        kill(answerer.pid, SIGKILL)
        _ = answerer.end()
        _ = try await world.daemon.stop()
    }

    /// OpenSSH to an sshd on the workspace's loopback.
    @Test(possible) func sshGoesThrough() async throws {
        let world = try WireGuardWorld()
        try await world.start()
        let path = world.directory.path
        let key = try SSHKeyPair.make(type: "ed25519", named: "ssh-key", in: path)
        let server = try await SSHServer(authorized: [key.publicKey])
        _ = try CommandResult.of(["sh", "-c", "head -c 8388608 /dev/urandom > \(path)/source"])
        let ssh = """
            ssh -F none -i \(key.path) -o IdentityAgent=none -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no \
            -p \(server.port) \(server.user)@\(WireGuardWorld.address)
            """
        let copy = try world.inside("sh", "-c", "\(ssh) 'cat; exit 7' < \(path)/source > \(path)/target")
        #expect(copy.code == 7, "\(copy)")
        #expect(try CommandResult.of(["cmp", "\(path)/source", "\(path)/target"]).code == 0)
        server.stop()
        _ = try await world.daemon.stop()
    }

    /// The page with its streams and a WebSocket, in a browser on the other side.
    @Test(possible) func aBrowserUsesThePage() async throws {
        let world = try WireGuardWorld()
        try await world.start()
        let id = try world.daemon.connect().start("read line; echo \"it said $line\"", ["stdin": true])
        let browser = try world.browser()
        try browser.open("http://[\(WireGuardWorld.address)]:4/ui#processes/\(id)")
        try browser.wait("an input", "!!document.querySelector('.input-line input')")
        _ = try browser.run(
            """
            document.querySelector('.input-line input').value = 'hello';
            document.querySelector('.input-line').requestSubmit();
            """)
        try browser.wait(
            "the program's answer", "document.querySelector('.output').textContent.includes('it said hello')")
        try browser.wait("its end", "document.querySelector('.output').textContent.includes('exit 0')")
        #expect(try browser.log("browser").isEmpty)
        _ = try await world.daemon.stop()
    }

    /// The client's address changes in the middle of a transfer, which goes on.
    @Test(possible) func aClientThatRoamsKeepsItsConnection() async throws {
        let world = try WireGuardWorld()
        try await world.start()
        let (source, target) = ("\(world.directory.path)/source", "\(world.directory.path)/target")
        _ = try CommandResult.of(["sh", "-c", "head -c 16777216 /dev/urandom > \(source)"])
        async let download = world.curl("/api/v0/read-file?path=\(source)", "-o", target, "--limit-rate", "8M")
        try await eventually("the transfer has begun") {
            (try? FileManager.default.attributesOfItem(atPath: target)[.size] as? Int).map { $0 > 1 << 20 } ?? false
        }
        try world.moveClient()
        let result = try await download
        #expect(result.code == 0, "\(result)")
        #expect(try CommandResult.of(["cmp", source, target]).code == 0)
        _ = try await world.daemon.stop()
    }

    @Test(possible) func aDaemonThatRestartsIsReachedAgain() async throws {
        let world = try WireGuardWorld()
        let port = try await world.start()
        #expect(try world.curl("/healthz").code == 0)
        _ = try await world.daemon.stop()
        try await world.start(port: port)
        try await eventually("the client's new handshake") { try world.curl("/healthz", "-m", "30").code == 0 }
        _ = try await world.daemon.stop()
    }

    // MARK: Faults

    @Test func aWrongFileIsToldAtTheStart() throws {
        let directory = try TemporaryDirectory()
        let file = "\(directory.path)/wireguard.conf"
        try "[Interface]\nPrivateKey = secret\n".write(toFile: file, atomically: true, encoding: .utf8)
        func run(_ path: String) throws -> CommandResult {
            try CommandResult.ofAgent(
                "agent", "--http-socket", "\(directory.path)/http.sock", "--state-dir", "\(directory.path)/state",
                "--log-dir", directory.path, "--socket-path", "\(directory.path)/agent.sock",
                "--boundary-log-proxy-socket-path", "", "--wireguard-config", path)
        }
        let wrong = try run(file)
        #expect(wrong.code == 1)
        #expect(
            wrong.errors.contains(
                "--wireguard-config: \(file): line 2: PrivateKey is not a key: 32 bytes in base64, as wg genkey and wg pubkey print"
            ), "\(wrong)")
        #expect(!wrong.errors.contains("secret"))
        let doctor = try CommandResult.ofAgent("doctor", "--wireguard-config", file)
        let row = doctor.output.split(separator: "\n").first { $0.contains(" wireguard ") } ?? ""
        #expect(row.hasPrefix("error") && row.contains("line 2: PrivateKey is not a key"), "\(doctor)")
        let missing = try run("\(file).2")
        #expect(
            missing.code == 1 && missing.errors.contains("--wireguard-config: cannot read \(file).2: "), "\(missing)")
    }

    @Test(possible) func withoutLibsodiumTheRestWorks() async throws {
        let script = """
            for file in $(ldconfig -p | grep -F 'libsodium.so.23 ' | sed 's/.*=> //'); do
                mount --bind /dev/null "$(readlink -f "$file")" || exit
            done
            exec "$@"
            """
        let daemon = try DaemonProcess(
            arguments: ["--wireguard-config", "/nowhere"], wrapper: ["unshare", "-m", "sh", "-c", script, "sh"])
        let health = try daemon.connect().request("GET", "/healthz").text
        #expect(health.contains(#""status":"degraded""#) && health.contains("install libsodium23"), "\(health)")
        #expect(try await daemon.stop() == 0)
    }
}
