import AgentTestSupport
import Foundation
import Glibc
import Testing

/// Which servers the client trusts, and with which keys it logs in.
@Suite("Trust of the built-in ssh client", .blocking, .timeLimit(.minutes(5))) struct BuiltInSSHTrustTests {
    // MARK: Host keys

    @Test func anUnknownServerIsRefusedAndItsLineMakesItKnown() async throws {
        let world = try await GitWorld(isKnown: false)
        for options in [[], ["-o", "StrictHostKeyChecking=yes"], ["-o", "StrictHostKeyChecking=ask"]] {
            let result = try world.ssh(options)
            #expect(result.isClearRefusal && result.errors.contains("is not known"), "\(result.errors)")
            #expect(result.errors.contains("ED25519 \(world.server.hostKeys[0].fingerprint)\n"))
            #expect(result.errors.contains("add this line to \(world.knownHosts):"))
            #expect(result.errors.contains("StrictHostKeyChecking=accept-new"))
            let line = "workspace-agent: \(world.server.hostKeyLines[0])"
            #expect(result.errors.split(separator: "\n").contains { $0 == line }, "\(result.errors)")
        }
        #expect(access(world.knownHosts, F_OK) != 0)
        try world.know(world.server.hostKeyLines)
        let result = try world.ssh([])
        #expect(result.code == 0 && result.output == "done\n" && result.errors == "", "\(result.errors)")
        await world.stop()
    }

    @Test(arguments: ["accept-new", "no", "off"])
    func aNewServerIsRemembered(choice: String) async throws {
        let world = try await GitWorld(isKnown: false)
        try Data("other ssh-ed25519 AAAA".utf8).write(to: URL(fileURLWithPath: world.knownHosts))
        for round in 0..<2 {
            let result = try world.ssh(["-o", "StrictHostKeyChecking=\(choice)"])
            #expect(result.code == 0 && result.output == "done\n", "\(result.errors)")
            #expect(result.errors.contains("workspace-agent: Warning: Permanently added") == (round == 0))
            #expect(ProcFS.text(world.knownHosts) == "other ssh-ed25519 AAAA\n\(world.server.hostKeyLines[0])\n")
        }
        // OpenSSH finds it there, too.
        let theirs = try CommandResult.of(openSSH(world, world.knownHosts, "yes"))
        #expect(theirs.code == 0, "\(theirs.errors)")
        await world.stop()
    }

    @Test func whatCannotBeRememberedIsAWarning() async throws {
        let world = try await GitWorld(isKnown: false)
        let accept = ["-o", "StrictHostKeyChecking=accept-new"]
        for (file, says) in [("/dev/null", "not remembered"), ("/proc/none/known_hosts", "cannot be remembered")] {
            let result = try world.ssh(accept + ["-o", "UserKnownHostsFile=\(file)"])
            #expect(result.code == 0 && result.output == "done\n", "\(result.errors)")
            #expect(result.errors.contains("Warning") && result.errors.contains(says), "\(result.errors)")
        }
        // One that cannot be read may revoke keys.
        mkfifo(world.knownHosts, 0o600)
        let result = try world.ssh(accept)
        #expect(
            result.isClearRefusal && result.errors.contains("\(world.knownHosts) is a named pipe"), "\(result.errors)")
        await world.stop()
    }

    @Test(arguments: ["yes", "accept-new", "no"])
    func changedAndRevokedKeysAreRefusedAlways(choice: String) async throws {
        let world = try await GitWorld(isKnown: false)
        let line = world.server.hostKeyLines[0]
        let other = try SSHKeyPair.make(type: "ed25519", in: world.directory.path)
        try world.know(["# one line", "[127.0.0.1]:\(world.server.port) \(other.publicKey)"])
        let changed = try world.ssh(["-o", "StrictHostKeyChecking=\(choice)"])
        #expect(changed.isClearRefusal, "\(changed.errors)")
        for part in ["has changed", other.fingerprint, world.server.hostKeys[0].fingerprint, "\(world.knownHosts):2"] {
            #expect(changed.errors.contains(part), "\(changed.errors)")
        }
        // A type that cannot be checked here.
        let rsa = try SSHKeyPair.make(type: "rsa-2048", in: world.directory.path)
        try world.know(["127.0.0.1,[127.0.0.1]:* \(rsa.publicKey)"])
        let unchecked = try world.ssh(["-o", "StrictHostKeyChecking=\(choice)"])
        #expect(unchecked.isClearRefusal && unchecked.errors.contains("cannot check RSA keys"), "\(unchecked.errors)")
        try world.know([line, "@revoked \(line)"])
        let revoked = try world.ssh(["-o", "StrictHostKeyChecking=\(choice)"])
        #expect(
            revoked.isClearRefusal && revoked.errors.contains("revoked at \(world.knownHosts):2"), "\(revoked.errors)")
        #expect(!world.server.log.contains("Accepted"))
        await world.stop()
    }

    /// The same files, judged by the real client.
    @Test(arguments: [["ed25519", "ecdsa-256"], ["ecdsa-256"]], ["yes", "accept-new"])
    func verdictsAreThoseOfOpenSSH(hostKeys: [String], choice: String) async throws {
        let world = try await GitWorld(hostKeys: hostKeys, isKnown: false)
        let (keys, port) = (world.server.hostKeys.map(\.publicKey), world.server.port)
        let (first, last) = (keys[0], keys[keys.count - 1])
        let other = try ["ed25519", "ecdsa-384"].map {
            try SSHKeyPair.make(type: $0, in: world.directory.path).publicKey
        }
        let (name, bare) = ("[127.0.0.1]:\(port)", "127.0.0.1")
        let files: [[String]] = [
            [], ["\(name) \(first)"], ["\(name) \(last)"], ["\(bare) \(first)"], ["\(bare) \(last)"],
            ["\(name) \(other[0])"], ["\(name) \(other[1])"], ["\(bare) \(other[0])"],
            ["\(name) \(other[0])", "\(bare) \(first)"], ["\(name) \(other[0])", "\(name) \(first)"],
            ["\(name) \(other[0])", "\(name) \(last)"], ["\(name) \(other[1])", "\(name) \(first)"],
            ["@revoked * \(first)", "\(name) \(first)"], ["@revoked \(name) \(first)", "\(name) \(last)"],
            ["@cert-authority * \(first)"], ["*,!\(bare) \(first)"], ["127.*,[127.*]:* \(first)"],
            ["[127.0.0.1]:\(port)1 \(first)"], ["x,\(name) \(first) comment"],
            ["\(name) ssh-rsa AAAA", "\(name) \(first)"],
        ]
        for (index, file) in files.enumerated() {
            let results = try [true, false].map { isOurs in
                try world.know(file)
                // With hashed names every second time.
                if index % 2 == 1 { _ = try CommandResult.of(["ssh-keygen", "-H", "-f", world.knownHosts]) }
                return isOurs
                    ? try world.ssh(["-o", "GlobalKnownHostsFile=none", "-o", "StrictHostKeyChecking=\(choice)"])
                    : try CommandResult.of(openSSH(world, world.knownHosts, choice))
            }
            #expect(results[0].code == results[1].code, "\(file):\n\(results[0].errors)\n\(results[1].errors)")
        }
        await world.stop()
    }

    /// OpenSSH's client with the control plane's key.
    private func openSSH(_ world: GitWorld, _ file: String, _ choice: String) -> [String] {
        world.line(
            [
                "ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=\(choice)", "-o",
                "UpdateHostKeys=no",
            ]
                + [
                    "-o", "UserKnownHostsFile=\(file)", "-o", "GlobalKnownHostsFile=/dev/null", "-i",
                    world.key?.path ?? "",
                ]
                + ["-p", "\(world.server.port)", world.destination, "true"], whole: true)
    }

    @Test func rsaAloneIsRefusedClearly() async throws {
        let world = try await GitWorld(hostKeys: ["rsa-2048"])
        let result = try world.ssh([])
        #expect(result.isClearRefusal && result.errors.contains("not RSA"), "\(result.errors)")
        #expect(result.errors.contains("install openssh-client"))
        await world.stop()
        let second = try await GitWorld(key: "rsa-2048")
        let refused = try second.ssh([])
        #expect(refused.isClearRefusal && refused.errors.contains("Permission denied (publickey)"), "\(refused.errors)")
        #expect(refused.errors.contains("the key from the control plane was not tried: "))
        #expect(refused.errors.contains("ssh-rsa; install openssh-client"))
        await second.stop()
    }

    // MARK: Keys of the user

    @Test func aRefusedKeyIsNamed() async throws {
        let world = try await GitWorld(isAuthorized: false)
        try Data("Host *\n".utf8).write(to: URL(fileURLWithPath: "\(world.home)/.ssh/config"))
        let key = try world.ownKey("ed25519", named: "id_ed25519")
        _ = try world.ownKey("rsa-2048", named: "id_rsa")
        let locked = try SSHKeyPair.make(
            type: "ecdsa-256", named: "id_ecdsa", passphrase: "secret", in: "\(world.home)/.ssh")
        let result = try world.git("ls-remote", world.url)
        #expect(result.code == 128)
        for part in [
            "workspace-agent: \(world.destination): Permission denied (publickey).", world.key?.publicKey ?? "none",
            "\(locked.path) was not tried: it has a passphrase; run ssh-add \(locked.path)", "id_rsa was not tried",
            "\(world.home)/.ssh/config was not read",
        ] { #expect(result.errors.contains(part), "\(result.errors)") }
        // All that could be tried was.
        try await world.server.logged("Failed publickey for \(world.server.user) from 127.0.0.1")
        for tried in [key, world.key].compactMap({ $0 }) { #expect(world.server.log.contains(tried.fingerprint)) }
        await world.stop()
    }

    /// As a secret that is mounted into a container.
    @Test(.enabled(if: geteuid() == 0, "needs another user"))
    func aKeyOfRootThatAllMayReadIsTaken() async throws {
        let keys = try TemporaryDirectory()
        let mounted = try SSHKeyPair.make(type: "ed25519", in: keys.path)
        let world = try await GitWorld(key: nil, authorized: [mounted.publicKey])
        for path in [keys.path, world.directory.path, world.home, "\(world.home)/.ssh"] { chmod(path, 0o755) }
        for path in [mounted.path, world.knownHosts] { chmod(path, 0o444) }
        let result = try CommandResult.of(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
                + world.line(world.sshLine(["-i", mounted.path], "echo done")))
        #expect(result.code == 0 && result.output == "done\n", "\(result.errors)")
        chmod(mounted.path, 0o644)
        let own = try world.ssh(["-i", mounted.path])
        #expect(own.isClearRefusal && own.errors.contains("run chmod 600"))
        await world.stop()
    }

    @Test func theUsersOwnKeyComesFirst() async throws {
        let directory = try TemporaryDirectory()
        let keys = try ["ed25519", "ecdsa-256", "ed25519"].map { try SSHKeyPair.make(type: $0, in: directory.path) }
        let world = try await GitWorld(authorized: keys.map(\.publicKey))
        func accepted(_ options: [String] = [], _ variables: [String: String] = [:]) throws -> String? {
            let result = try world.ssh(options, variables: variables)
            #expect(result.code == 0 && result.errors == "", "\(result.errors)")
            return world.server.log.split(separator: "\n").last { $0.contains("Accepted publickey") }
                .flatMap { $0.split(separator: " ").last.map(String.init) }
        }
        #expect(try accepted() == world.key?.fingerprint)
        for (key, name) in zip(keys, ["id_ed25519", "id_ecdsa"]) {
            try FileManager.default.copyItem(atPath: key.path, toPath: "\(world.home)/.ssh/\(name)")
        }
        #expect(try accepted() == keys[1].fingerprint)
        unlink("\(world.home)/.ssh/id_ecdsa")
        #expect(try accepted() == keys[0].fingerprint)
        #expect(try accepted(["-i", keys[1].path]) == keys[1].fingerprint)
        #expect(try accepted(["-o", "IdentityFile=\(keys[2].path)"]) == keys[2].fingerprint)
        // Without a control plane they do, too, and a line says so.
        let down = try world.ssh([], variables: ["CODER_AGENT_URL": "http://127.0.0.1:1"])
        #expect(down.code == 0 && down.output == "done\n" && down.errors.contains("no key from the control plane"))

        let agent = try await SSHAgent(socket: "\(directory.path)/agent")
        let variables = ["SSH_AUTH_SOCK": agent.socket]
        let rsa = try SSHKeyPair.make(type: "rsa-2048", in: directory.path)
        for key in [rsa, keys[2]] { try agent.add(key) }
        #expect(try accepted([], variables) == keys[2].fingerprint)
        #expect(try accepted(["-i", keys[1].path], variables) == keys[2].fingerprint)
        #expect(try accepted(["-i", keys[1].path, "-o", "IdentitiesOnly=yes"], variables) == keys[1].fingerprint)
        #expect(try accepted(["-o", "IdentityAgent=none"], variables) == keys[0].fingerprint)
        #expect(try accepted(["-o", "IdentityAgent=\(agent.socket)"]) == keys[2].fingerprint)
        #expect(try accepted([], ["SSH_AUTH_SOCK": "/no/such"]) == keys[0].fingerprint)
        await world.stop()
    }

    @Test func tooManyKeysDoNotHideTheControlPlanes() async throws {
        for (isAuthorized, code) in [(true, 0), (false, 255)] {
            let world = try await GitWorld(isAuthorized: isAuthorized, extra: ["MaxAuthTries 3"])
            let keys = try (0..<5).map { try world.ownKey("ed25519", named: "own\($0)") }
            let result = try world.ssh(keys.flatMap { ["-i", $0.path] })
            #expect(result.code == code, "\(result.errors)")
            #expect(result.errors.contains("connecting again with the key from the control plane"), "\(result.errors)")
            #expect(result.errors.contains("Permission denied") == !isAuthorized)
            try await world.server.logged(world.key?.fingerprint ?? "none")
            await world.stop()
        }
        let world = try await GitWorld(key: nil, extra: ["MaxAuthTries 2"])
        let keys = try (0..<3).map { try world.ownKey("ed25519", named: "own\($0)") }
        let result = try world.ssh(keys.flatMap { ["-i", $0.path] })
        #expect(result.code == 255 && result.errors.contains("Too many authentication failures"), "\(result.errors)")
        #expect(result.errors.contains("IdentitiesOnly=yes"))
        await world.stop()
    }

    @Test func nothingToLogInWith() async throws {
        let world = try await GitWorld(key: nil)
        let result = try world.ssh([])
        #expect(result.isClearRefusal && result.errors.contains("Permission denied (publickey)"), "\(result.errors)")
        #expect(result.errors.contains("there is no key to log in with"))
        await world.stop()
    }

    @Test func aServerWithoutKeysIsRefused() async throws {
        let world = try await GitWorld(extra: ["PubkeyAuthentication no", "PasswordAuthentication yes"])
        let result = try world.ssh([])
        #expect(result.isClearRefusal && result.errors.contains("only: password"), "\(result.errors)")
        await world.stop()
    }
}
