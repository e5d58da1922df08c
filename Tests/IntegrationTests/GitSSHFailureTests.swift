import AgentTestSupport
import Foundation
import Glibc
import Testing

/// `gitssh` with OpenSSH's client where something is wrong: what ssh says and does is left as it is.
@Suite("gitssh with ssh, failing", .blocking, .timeLimit(.minutes(5))) struct GitSSHFailureTests {
    /// Without what differs from one attempt to the next.
    private func steady(_ text: String) -> String { text.replacing(/port \d+/, with: "port N") }

    @Test func exitCodesAndErrorsAreSSHs() async throws {
        let world = try await GitSSHWorld()
        // ssh itself needs the key from a file.
        let file = "\(world.directory.path)/file"
        try world.key.privateKey.write(toFile: file, atomically: true, encoding: .utf8)
        chmod(file, 0o600)
        let commands = [
            ["exit 7"], ["echo out; echo err >&2; exit 3"], ["kill -9 $$"], ["-o", "NoSuchOption=1", "true"], ["-V"],
        ]
        for command in commands {
            let ours = try world.gitssh(world.target + command)
            let theirs = try world.ssh(["-i", file] + world.target + command)
            #expect(ours.code == theirs.code && ours.output == theirs.output, "\(command)")
            #expect(steady(ours.errors) == steady(theirs.errors), "\(command)")
        }
        unlink(file)
        await world.stop()
    }

    /// A path in Latin-1 is as good as any.
    @Test func bytesThatAreNoUTF8PassThrough() async throws {
        let world = try await GitSSHWorld(configuration: ["AcceptEnv LC_*"])
        let line = world.target.joined(separator: " ")
        let script = """
            latin=$(printf 'caf\\351') && export LC_LATIN="$latin" && \
            '\(DaemonProcess.binary)' gitssh -- -F \(world.config) -o SendEnv=LC_LATIN \(line) \
            "printf %s '$latin' | od -An -tx1; printf %s \\"\\$LC_LATIN\\" | od -An -tx1"
            """
        let result = try CommandResult.of(["bash", "-c", script], environment: world.environment)
        #expect(result.output == " 63 61 66 e9\n 63 61 66 e9\n", "\(result)")
        await world.stop()
    }

    /// Such as that of a jump host's forced command: it has run, and must not run again.
    @Test func aCommandOfTheServerIsNotBelieved() async throws {
        let world = try await GitSSHWorld()
        let said = """
            Received disconnect from 10.0.0.5 port 22:2: Too many authentication failures
            Disconnected from 10.0.0.5 port 22
            """
        for text in [said, "git@10.0.0.5: Permission denied (publickey)."] {
            let runs = "\(world.directory.path)/runs"
            unlink(runs)
            let result = try world.gitssh(world.target + ["echo run >>\(runs); echo '\(text)' >&2; exit 255"])
            #expect(result.code == 255 && ProcFS.text(runs) == "run\n")
            #expect(!result.errors.contains("workspace-agent"), "\(result.errors)")
        }
        await world.stop()
    }

    /// ssh would hand it over, and agents keep keys and may be forwarded from elsewhere.
    @Test func theKeyStaysOutOfTheUsersAgent() async throws {
        let world = try await GitSSHWorld()
        let agent = try await SSHAgent(socket: "\(world.directory.path)/agent")
        try world.settings(["AddKeysToAgent yes", "IdentityAgent \(agent.socket)"])
        #expect(try world.gitssh(world.target + ["true"]).code == 0)
        let listed = try agent.run(["ssh-add", "-l"])
        #expect(listed.output.contains("no identities"), "\(listed)")
        await world.stop()
    }

    /// Host keys are ssh's affair: it refuses, and we neither hide that nor try again.
    @Test(arguments: ["unknown", "changed", "revoked"])
    func hostKeysThatSSHRefuses(_ kind: String) async throws {
        let world = try await GitSSHWorld()
        let other = try SSHKeyPair.make(type: "ed25519", in: world.directory.path)
        let name = "[127.0.0.1]:\(world.server.port)"
        let lines =
            switch kind {
            case "unknown": ["elsewhere \(other.publicKey)"]
            case "changed": ["\(name) \(other.publicKey)"]
            default: ["@revoked * \(world.server.hostKeys[0].publicKey)"] + world.server.hostKeyLines
            }
        let file = "\(world.directory.path)/known_hosts"
        try lines.joined(separator: "\n").appending("\n").write(toFile: file, atomically: true, encoding: .utf8)
        // In a session without a terminal, so that ssh cannot ask.
        let ours = try CommandResult.of(
            ["setsid", "-w", DaemonProcess.binary, "gitssh", "--", "-F", world.config] + world.target + ["true"],
            environment: world.environment)
        let theirs = try CommandResult.of(
            ["setsid", "-w", "ssh", "-F", world.config] + world.target + ["true"], environment: world.environment)
        #expect(ours.code == 255 && theirs.code == 255)
        #expect(steady(ours.errors) == steady(theirs.errors))
        #expect(ours.errors.contains("Host key verification failed."))
        #expect(!world.server.log.contains("Accepted"))
        await world.stop()
    }

    @Test func aRefusedKeyIsShownWithThePlaceToAddIt() async throws {
        let world = try await GitSSHWorld(knowsKey: false)
        let result = try world.gitssh(world.target + ["true"])
        #expect(result.code == 255 && result.errors.contains("Permission denied (publickey)"))
        #expect(
            result.errors.contains(
                "workspace-agent: 127.0.0.1 does not know the key of the control plane; add it to your account's SSH "
                    + "keys at 127.0.0.1, or ~/.ssh/authorized_keys of \(world.server.user) there:\n"
                    + "workspace-agent: \(world.key.publicKey)\n"))
        await world.stop()
    }

    @Test func theMachinesKeysServeWhileTheControlPlaneIsSilent() async throws {
        let keys = try TemporaryDirectory()
        let own = try SSHKeyPair.make(type: "ed25519", in: keys.path)
        let world = try await GitSSHWorld(authorized: [own])
        try world.settings(["IdentityFile \(own.path)"])
        // Takes connections and never answers.
        let silent = try LoopbackSocket(backlog: 16)
        let result = try world.gitssh(
            world.target + ["true"], environment: ["CODER_AGENT_URL": "http://127.0.0.1:\(silent.port)"])
        // It is silent for longer than this test runs, so that an end says that it was not waited for.
        #expect(result.code == 0, "\(result.code) \(result.errors)")
        #expect(result.errors.contains("gave no answer within 10 s; check CODER_AGENT_URL"), "\(result.errors)")
        #expect(result.errors.contains("going on with this machine's keys"))
        withExtendedLifetime(silent) {}
        #expect(world.server.log.contains(own.fingerprint))
        await world.stop()
    }

    /// Whether git ends it, the terminal or the system: ssh goes with it.
    @Test(arguments: [SIGTERM, SIGINT, SIGHUP, SIGKILL])
    func nothingIsLeftOfAnInterruptedConnection(_ signal: Int32) async throws {
        let world = try await GitSSHWorld()
        let pid = try DaemonProcess.spawn(
            [
                "/bin/sh", "-c", "exec \"$@\" >/dev/null 2>&1 </dev/null", "sh", DaemonProcess.binary, "gitssh", "--",
                "-F",
                world.config,
            ] + world.target + ["sleep 600"],
            ProcessInfo.processInfo.environment.merging(world.environment) { _, new in new })
        try await world.server.logged("Accepted publickey")
        let ssh = try #require(ProcFS.children(of: pid).first?.pid)
        kill(pid, signal)
        var status: Int32 = 0
        waitpid(pid, &status, 0)
        // ssh ends with 255 where it was told to end, and died of others.
        #expect(signal == SIGKILL ? status & 0x7f == SIGKILL : status >> 8 & 0xff >= 128)
        try await eventually("ssh is gone") { !ProcFS.runs(ssh) }
        await world.stop()
    }

    private static let mayTrace = (try? CommandResult.of(["strace", "-o", "/dev/null", "true"]))?.code == 0

    /// What other programs of this user and of others can see while a connection is open.
    @Test(.enabled(if: mayTrace, "system calls cannot be traced here"))
    func thePrivateKeyIsInNoCommandLineNoEnvironmentAndNoFile() async throws {
        let world = try await GitSSHWorld()
        let secret = world.key.privateKey.split(separator: "\n")[1]
        let trace = "\(world.directory.path)/trace"
        let pid = try DaemonProcess.spawn(
            [
                "/bin/sh", "-c", "exec \"$@\" >/dev/null 2>&1 </dev/null", "sh", "strace", "-f", "-o", trace, "-s",
                "8192",
                "-yy", "-e", "trace=write,pwrite64,writev,sendto,sendmsg,open,openat,memfd_create,mmap,rename,link",
                DaemonProcess.binary, "gitssh", "--", "-F", world.config,
            ] + world.target + ["sleep 600"],
            ProcessInfo.processInfo.environment.merging(world.environment) { _, new in new })
        try await world.server.logged("Accepted publickey")
        for name in try FileManager.default.contentsOfDirectory(atPath: "/proc") where Int(name) != nil {
            for file in ["cmdline", "environ"] {
                #expect(!ProcFS.text("/proc/\(name)/\(file)").contains(secret), "/proc/\(name)/\(file)")
            }
        }
        let child = try #require(ProcFS.children(of: pid).first?.pid)
        let limit = ProcFS.text("/proc/\(child)/limits").split(separator: "\n").first { $0.contains("core file") }
        #expect(
            limit?.split(separator: " ").dropFirst(4).prefix(2).elementsEqual(["0", "0"]) == true, "\(limit ?? "")")
        kill(child, SIGTERM)
        waitpid(pid, nil, 0)
        let writes = ProcFS.text(trace).split(separator: "\n").filter { $0.contains(secret) }
        #expect(writes.count == 1 && writes.allSatisfy { $0.contains("/memfd:git-ssh-key") }, "\(writes)")
        await world.stop()
    }

    @Test func aQuestionAboutSSHAsksNoControlPlane() async throws {
        let world = try await GitSSHWorld()
        let result = try CommandResult.of(
            [DaemonProcess.binary, "gitssh", "--", "-G", "example.com"], environment: world.environment)
        #expect(result.code == 0 && result.output.contains("hostname example.com"))
        #expect(world.keyRequests == 0)
        await world.stop()
    }
}
