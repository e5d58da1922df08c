import AgentTestSupport
import Foundation
import Glibc
import Testing

/// git without an ssh program, against a real sshd.
@Suite("Built-in ssh client", .blocking, .timeLimit(.minutes(5))) struct BuiltInSSHTests {
    @Test(arguments: ["ed25519", "ecdsa-256", "ecdsa-521"])
    func cloneFetchAndPush(type: String) async throws {
        let world = try await GitWorld(key: type, hostKeys: [type])
        let copy = "\(world.directory.path)/copy"
        let cloned = try world.git("clone", world.url, copy, variables: ["GIT_TRACE_PACKET": "1"])
        #expect(cloned.code == 0, "\(cloned.errors)")
        #expect(cloned.errors.contains("< version 2"))
        #expect(!cloned.errors.contains("workspace-agent: "), "\(cloned.errors)")
        #expect(ProcFS.text("\(copy)/file") == "two\n")
        try await world.server.logged("Accepted publickey for \(world.server.user)")
        #expect(world.server.log.contains(world.key?.fingerprint ?? "none"))

        try world.run(["sh", "-ec", "cd '\(copy)' && echo three >file && git commit -qam three && git push -q"])
        try world.run(["git", "-C", "\(world.directory.path)/origin", "fetch", "-q", world.url, "main"])
        let fetched = try world.run(["git", "-C", "\(world.directory.path)/origin", "show", "FETCH_HEAD:file"])
        #expect(fetched.output == "three\n")
        await world.stop()
    }

    @Test func sixtyMegabytesBothWays() async throws {
        let world = try await GitWorld()
        let (path, copy) = (world.directory.path, "\(world.directory.path)/copy")
        try world.run(
            [
                "sh", "-ec",
                """
                cd "$0/origin" && head -c 60000000 /dev/urandom >large && git add large && git commit -qm large
                """, path,
            ], whole: true)
        try world.run(["git", "-C", "\(path)/origin", "push", "-q", world.url, "main"])
        try world.run(["git", "clone", "-q", world.url, copy])
        try world.run(["cmp", "\(path)/origin/large", "\(copy)/large"], whole: true)
        await world.stop()
    }

    @Test func submodules() async throws {
        let world = try await GitWorld()
        let (path, copy) = (world.directory.path, "\(world.directory.path)/copy")
        try world.run(["git", "clone", "-q", "--bare", "\(path)/repo.git", "\(path)/outer.git"])
        let outer = world.url.replacingOccurrences(of: "repo.git", with: "outer.git")
        try world.run(["git", "clone", "-q", outer, "\(path)/outer"])
        try world.run(
            [
                "sh", "-ec",
                """
                cd "$0/outer" && git submodule --quiet add "$1" inner && git commit -qm inner && git push -q
                """, path, world.url,
            ])
        try world.run(["git", "clone", "-q", "--recurse-submodules", "-j", "2", outer, copy])
        #expect(ProcFS.text("\(copy)/inner/file") == "two\n")
        await world.stop()
    }

    /// The exit code is the command's, and its three streams are ours.
    @Test func aCommandRunsAsWithSSH() async throws {
        let world = try await GitWorld()
        let both = try world.ssh([], "echo out; echo err >&2; exit 7")
        #expect(both.code == 7 && both.output == "out\n" && both.errors == "err\n")
        let killed = try world.ssh([], "kill -TERM $$")
        #expect(killed.isClearRefusal && killed.errors.contains("signal TERM"))
        // Of stdin, too, also for a command that ends without reading all of it.
        let sum = try CommandResult.of(["sh", "-c", "head -c 3000000 /dev/zero | cksum"]).output
        for (command, code, output) in [
            ("cat", 0, sum), ("head -c 5 >/dev/null; exit 3", 3, "4294967295 0\n"),
            ("exec <&-; exit 4", 4, "4294967295 0\n"),
        ] {
            let result = try CommandResult.of(
                ["bash", "-c", "head -c 3000000 /dev/zero | \"$@\" | cksum; exit ${PIPESTATUS[1]}", "bash"]
                    + world.line(world.sshLine([], command)))
            #expect(result.code == code && result.output == output, "\(command): \(result.errors)")
        }
        let closed = try CommandResult.of(
            ["sh", "-c", "\"$@\" <&-", "sh"] + world.line(world.sshLine([], "cat; echo end")))
        #expect(closed.code == 0 && closed.output == "end\n", "\(closed.errors)")
        // The reader has ended.
        let broken = try CommandResult.of(
            ["bash", "-c", "\"$@\" | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}", "bash"]
                + world.line(world.sshLine([], "yes")))
        #expect(broken.isClearRefusal && broken.errors.contains("Broken pipe"), "\(broken.errors)")
        await world.stop()
    }

    /// A packet that could be sent only in part must not keep those from going that let the server send on.
    @Test func bothWaysOverANarrowConnection() async throws {
        let world = try await GitWorld()
        let relay = try NarrowRelay(to: world.server.port)
        try world.know(["relay \(world.server.hostKeys[0].publicKey)"])
        let options = ["-p", "\(relay.port)", "-o", "HostKeyAlias=relay"]
        let result = try CommandResult.of(
            ["bash", "-c", "head -c 2000000 /dev/zero | \"$@\" | cksum; exit ${PIPESTATUS[1]}", "bash"]
                + world.line(world.sshLine(options, "cat")))
        let sum = try CommandResult.of(["sh", "-c", "head -c 2000000 /dev/zero | cksum"]).output
        #expect(result.code == 0 && result.output == sum, "\(result.errors)")
        await world.stop()
    }

    @Test func variablesThatTheServerTakes() async throws {
        let world = try await GitWorld(extra: ["AcceptEnv A_* SET"])
        let result = try world.ssh(
            ["-o", "SendEnv=A_* OTHER", "-o", "SetEnv=SET=2"], "echo $A_B$OTHER$SET",
            variables: ["A_B": "1", "OTHER": "x"])
        #expect(result.code == 0 && result.output == "12\n", "\(result.errors)")
        await world.stop()
    }

    /// What git shares with us is as it was: a descriptor that does not block would surprise it.
    @Test func sharedDescriptorsStayBlocking() async throws {
        let world = try await GitWorld()
        var ends: [CInt] = [0, 0]
        #expect(pipe(&ends) == 0)
        defer { close(ends[0]) }
        let line = world.line(world.sshLine([], "head -c 1000000 /dev/zero"))
        let pid = try DaemonProcess.spawn(
            ["sh", "-c", "exec \"$@\" >&3 2>&3 </dev/null", "sh"] + line, [:], descriptors: [ends[1]])
        var item = pollfd(fd: ends[0], events: Int16(POLLIN), revents: 0)
        #expect(poll(&item, 1, 60_000) == 1)
        #expect(fcntl(ends[1], F_GETFL) & O_NONBLOCK == 0)
        close(ends[1])
        var area = [UInt8](repeating: 0, count: 1 << 16)
        var count = 0
        while case let more = read(ends[0], &area, area.count), more > 0 { count += more }
        #expect(count == 1_000_000)
        var status: CInt = 0
        #expect(waitpid(pid, &status, 0) == pid && status == 0)
        await world.stop()
    }

    /// Signals end it, and nothing of it is left here or there.
    @Test(arguments: [SIGINT, SIGTERM, SIGKILL])
    func aSignalEndsIt(signal: CInt) async throws {
        let world = try await GitWorld()
        let started = "\(world.directory.path)/started"
        // Of git, whose end is all that the client hears of.
        let git = world.line(["git", "ls-remote", "-q", "--upload-pack=touch '\(started)'; cat >/dev/null;", world.url])
        // And of the client itself, with a stdin that stays open.
        let client = world.line(world.sshLine([], "touch '\(started)'; cat >/dev/null"))
        for words in [git, client] {
            unlink(started)
            let pid = try DaemonProcess.spawn(
                ["sh", "-c", "mkfifo \"$0\" 2>/dev/null; exec \"$@\" <>\"$0\" >/dev/null 2>&1", "\(started).pipe"]
                    + words, [:])
            try await eventually("the command runs") { access(started, F_OK) == 0 }
            kill(pid, signal)
            var status: CInt = 0
            try await eventually("it ends") { waitpid(pid, &status, WNOHANG) == pid }
            #expect(status & 0x7f == signal)
            try await eventually("its connection ends") { world.server.connections == 0 }
            try await eventually("no process is left") { world.processes.isEmpty }
        }
        await world.stop()
    }

    @Test func aServerThatDies() async throws {
        let world = try await GitWorld()
        let started = "\(world.directory.path)/started"
        let server = world.server
        let killer = Task(executorPreference: BlockingExecutor.shared) {
            try await eventually("the command runs") { access(started, F_OK) == 0 }
            server.dropConnections()
        }
        let result = try world.ssh([], "touch '\(started)'; sleep 1000")
        try await killer.value
        #expect(result.isClearRefusal && result.errors.contains("the connection to 127.0.0.1 port"), "\(result.errors)")
        await world.stop()
    }

    /// What the server sent before it died arrives, however slowly it is read here.
    @Test func whatWasReceivedIsWritten() async throws {
        let world = try await GitWorld()
        var ends: [CInt] = [0, 0]
        #expect(pipe(&ends) == 0)
        defer { close(ends[0]) }
        let errors = "\(world.directory.path)/errors"
        let line = world.line(world.sshLine([], "head -c 2000000 /dev/zero; echo sent >&2; cat >/dev/null"))
        let pid = try DaemonProcess.spawn(
            ["sh", "-c", "mkfifo \"$0.pipe\"; exec \"$@\" <>\"$0.pipe\" >&3 2>\"$0\" 3>&-", errors] + line, [:],
            descriptors: [ends[1]])
        close(ends[1])
        try await eventually("all is sent") { ProcFS.text(errors) == "sent\n" }
        world.server.dropConnections()
        try await eventually("it is gone") { world.server.connections == 0 }
        var area = [UInt8](repeating: 0, count: 1 << 16)
        var count = 0
        while case let more = read(ends[0], &area, area.count), more > 0 { count += more }
        // The server may not have read the last of it from the command.
        #expect(count >= 2_000_000 - 65_536 && count <= 2_000_000)
        var status: CInt = 0
        #expect(waitpid(pid, &status, 0) == pid && status == 255 << 8)
        #expect(ProcFS.text(errors).contains("closed by the server"))
        await world.stop()
    }

    /// Nothing listens, something else does, or it says nothing.
    @Test func whatIsNoServer() async throws {
        let world = try await GitWorld()
        let port = world.server.port
        world.server.stop()
        let closed = try world.ssh([])
        #expect(
            closed.isClearRefusal && closed.errors.contains("127.0.0.1 port \(port): 127.0.0.1: Connection refused"))
        for (says, expected) in [
            ("HTTP/1.1 400 Bad Request\r\n\r\n", "does not answer as an ssh server"),
            ("220 mail\r\n", "does not answer as an ssh server"), ("", "does not answer"),
        ] {
            let listener = try LoopbackSocket(backlog: 1)
            let answerer = Task(executorPreference: BlockingExecutor.shared) {
                let connection = listener.accepted()
                _ = Array(says.utf8).withUnsafeBytes { write(connection, $0.baseAddress, $0.count) }
                if !says.isEmpty { close(connection) }
                return connection
            }
            let result = try world.ssh(["-p", "\(listener.port)", "-o", "ConnectTimeout=1"])
            let connection = await answerer.value
            if says.isEmpty { close(connection) }
            #expect(result.isClearRefusal && result.errors.contains(expected), "\(result.errors)")
        }
        await world.stop()
    }

    @Test func optionsOfOthersAreRefused() async throws {
        let world = try await GitWorld()
        for options in [
            ["-J", "gate"], ["-o", "ProxyJump=gate"], ["-o", "ProxyCommand=nc %h %p"], ["-A"], ["-t"], ["-L", "1:x:2"],
        ] {
            let result = try world.ssh(options)
            #expect(result.isClearRefusal && result.errors.contains("install openssh-client"), "\(result.errors)")
            #expect(result.errors.contains(options[0] == "-o" ? String(options[1].prefix { $0 != "=" }) : options[0]))
        }
        // git asks what kind of ssh it has.
        let probe = try CommandResult.of(world.line([DaemonProcess.binary, "gitssh", "--", "-G", "-p", "5", "u@h"]))
        #expect(probe.code == 0 && probe.output == "host h\nuser u\nhostname h\nport 5\n")
        let automatic = try world.git("ls-remote", "-q", world.url, variables: ["GIT_SSH_VARIANT": "auto"])
        #expect(automatic.code == 0, "\(automatic.errors)")
        await world.stop()
    }
}
