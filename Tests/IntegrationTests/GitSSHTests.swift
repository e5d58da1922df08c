import AgentTestSupport
import Foundation
import Glibc
import Testing

/// `gitssh` with OpenSSH's client, against a real sshd.
@Suite("gitssh with ssh", .blocking, .timeLimit(.minutes(5))) struct GitSSHTests {
    @Test func gitClonesFetchesAndPushes() async throws {
        let world = try await GitSSHWorld()
        try world.repository("sub.git")
        try world.repository("repo.git")
        let work = "\(world.directory.path)/work-repo.git"
        try world.done(
            "-C", work, "submodule", "--quiet", "add", world.url("sub.git"), "inner")
        try world.done("-C", work, "commit", "-qm", "a submodule")
        try world.done("-C", work, "push", "-q", world.url("repo.git"), "HEAD:main")
        let clone = "\(world.directory.path)/clone"
        let trace = "\(world.directory.path)/trace"
        try world.done(
            "clone", "-q", "--recurse-submodules", world.url("repo.git"), clone,
            environment: ["GIT_TRACE_PACKET": trace])
        #expect(ProcFS.text(trace).contains("clone< version 2"))
        #expect(access("\(clone)/inner/random", F_OK) == 0)
        try world.done("-C", clone, "commit", "-q", "--allow-empty", "-m", "second")
        try world.done("-C", clone, "push", "-q")
        try world.done("-C", clone, "fetch", "-q")
        let heads = try ["rev-parse", "rev-parse"].enumerated().map { index, command in
            try world.git("-C", index == 0 ? clone : "\(world.directory.path)/repo.git", command, "main").output
        }
        #expect(heads[0] == heads[1] && !heads[0].isEmpty)
        #expect(world.server.log.contains("Accepted publickey for \(world.server.user)"))
        #expect(world.server.log.contains(world.key.fingerprint))
        // GIT_SSH_VARIANT spares the question what kind of ssh this is: one connection, one request.
        let sessions = world.server.log.split(whereSeparator: \.isNewline).filter { $0.contains("Accepted publickey") }
            .count
        #expect(world.keyRequests == sessions)
        await world.stop()
    }

    @Test func sixtyMegabytesArriveWhole() async throws {
        let world = try await GitSSHWorld()
        try world.repository("big.git", bytes: 60 << 20)
        let clone = "\(world.directory.path)/clone"
        try world.done("clone", "-q", world.url("big.git"), clone)
        try world.done("-C", clone, "fsck")
        #expect(
            try Data(contentsOf: URL(fileURLWithPath: "\(clone)/random"))
                == Data(contentsOf: URL(fileURLWithPath: "\(world.directory.path)/work-big.git/random")))
        await world.stop()
    }

    // MARK: Whose key comes first

    @Test func theUsersOwnKeysComeFirst() async throws {
        let keys = try TemporaryDirectory()
        let own = try SSHKeyPair.make(type: "ed25519", in: keys.path)
        let world = try await GitSSHWorld(authorized: [own])
        try world.settings(["IdentityFile \(own.path)"])
        #expect(try world.gitssh(world.target + ["true"]).code == 0)
        try await world.server.logged("Accepted publickey for \(world.server.user)")
        #expect(world.server.log.contains(own.fingerprint))
        #expect(!world.server.log.contains(world.key.fingerprint))
        await world.stop()
    }

    @Test func identitiesThatSSHExpandsComeFirst() async throws {
        let keys = try TemporaryDirectory()
        let own = try SSHKeyPair.make(type: "ed25519", named: "key-127.0.0.1", in: keys.path)
        let world = try await GitSSHWorld(authorized: [own])
        try world.settings(["IdentityFile \(keys.path)/key-%h"])
        #expect(try world.gitssh(world.target + ["true"]).code == 0)
        #expect(world.server.log.contains(own.fingerprint))
        #expect(!world.server.log.contains(world.key.fingerprint))
        await world.stop()
    }

    @Test func theUsersAgentComesFirst() async throws {
        let keys = try TemporaryDirectory()
        let inAgent = try SSHKeyPair.make(type: "ecdsa", in: keys.path)
        let world = try await GitSSHWorld(authorized: [inAgent])
        let agent = try await SSHAgent(socket: "\(keys.path)/agent")
        try agent.add(inAgent)
        try world.settings(["IdentityAgent \(agent.socket)"])
        #expect(try world.gitssh(world.target + ["true"]).code == 0)
        #expect(world.server.log.contains(inAgent.fingerprint))
        #expect(!world.server.log.contains(world.key.fingerprint))
        await world.stop()
    }

    private static let mayMount = (try? CommandResult.of(["unshare", "-m", "true"]))?.code == 0

    /// With one IdentityFile on the command line ssh would forget the ones that it tries by default.
    @Test(.enabled(if: mayMount, "needs a mount namespace for the account's directory"))
    func theKeysThatSSHHasByDefaultComeFirst() async throws {
        let home = try TemporaryDirectory()
        let own = try SSHKeyPair.make(type: "ed25519", named: "id_ed25519", in: home.path)
        let world = try await GitSSHWorld(authorized: [own])
        let account = try #require(getpwuid(geteuid())).pointee.pw_dir
        let directory = String(cString: try #require(account))
        let script = "mkdir -p \(directory)/.ssh && mount --bind \(home.path) \(directory)/.ssh && exec \"$@\""
        let result = try CommandResult.of(
            ["unshare", "-m", "sh", "-c", script, "sh", DaemonProcess.binary, "gitssh", "--", "-F", world.config]
                + world.target + ["true"], environment: world.environment)
        #expect(result.code == 0 && result.errors == "", "\(result.errors)")
        #expect(world.server.log.contains(own.fingerprint))
        #expect(!world.server.log.contains(world.key.fingerprint))
        await world.stop()
    }

    @Test func fiveKeysOfTheUsersDoNotShutOursOut() async throws {
        let keys = try TemporaryDirectory()
        let own = try (0..<5).map { _ in try SSHKeyPair.make(type: "ed25519", in: keys.path) }
        let world = try await GitSSHWorld(configuration: ["MaxAuthTries 3"])
        try world.settings(own.map { "IdentityFile \"\($0.path)\"" })
        try world.repository("repo.git")
        let result = try world.git("clone", "-q", world.url("repo.git"), "\(world.directory.path)/clone")
        #expect(result.code == 0)
        #expect(result.errors.contains("Too many authentication failures"))
        #expect(result.errors.contains("workspace-agent: the server took no more keys before"))
        #expect(world.server.log.contains(world.key.fingerprint))
        await world.stop()
    }

    @Test func aJumpHostIsReachedWithTheUsersOwnKey() async throws {
        let keys = try TemporaryDirectory()
        let own = try SSHKeyPair.make(type: "ed25519", in: keys.path)
        let jump = try await SSHServer(authorized: [own.publicKey])
        let world = try await GitSSHWorld()
        try (world.server.hostKeyLines + jump.hostKeyLines).joined(separator: "\n").appending("\n").write(
            toFile: "\(world.directory.path)/known_hosts", atomically: true, encoding: .utf8)
        try world.settings(["IdentityFile \(own.path)"])
        try world.repository("repo.git")
        let through = "\(world.environment["GIT_SSH_COMMAND"] ?? "") -J \(jump.user)@127.0.0.1:\(jump.port)"
        try world.done(
            "clone", "-q", world.url("repo.git"), "\(world.directory.path)/clone",
            environment: ["GIT_SSH_COMMAND": through])
        #expect(jump.log.contains(own.fingerprint))
        #expect(world.server.log.contains(world.key.fingerprint))
        jump.stop()
        await world.stop()
    }
}
