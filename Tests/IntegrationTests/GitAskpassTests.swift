import AgentTestSupport
import ControlPlaneSimulator
import Foundation
import Glibc
import Testing

/// `gitaskpass` with real git against a real `git http-backend`, a daemon and a control plane that has the login.
@Suite("gitaskpass", .blocking, .timeLimit(.minutes(5))) struct GitAskpassTests {
    private static let password = "p4ss word'%40"

    /// What a test needs of the world around git.
    private final class World: Sendable {
        let directory: TemporaryDirectory
        let server: GitHTTPServer
        let link: LinkWorld
        let daemon: DaemonProcess?

        init(_ auth: SimulatorServer.ExternalAuth? = nil, daemon hasDaemon: Bool = true) async throws {
            directory = try TemporaryDirectory()
            let server = try await GitHTTPServer(user: "oauth2", password: GitAskpassTests.password)
            self.server = server
            let login = auth ?? World.login(server)
            link = try await LinkWorld(server: { $0.externalAuth = login }) { _, _ in }
            daemon = hasDaemon ? try link.daemon() : nil
            try done("init", "-q", "\(directory.path)/work")
            try done("-C", "\(directory.path)/work", "commit", "-q", "--allow-empty", "-m", "first")
            try done("clone", "-q", "--bare", "\(directory.path)/work", "\(server.root)/repo.git")
        }

        static func login(_ server: GitHTTPServer) -> SimulatorServer.ExternalAuth {
            .init(
                accessToken: "t", username: "oauth2", password: GitAskpassTests.password,
                serves: ["http://127.0.0.1:\(server.port)"])
        }

        var clone: String { "\(directory.path)/clone" }

        func git(_ arguments: String..., environment more: [String: String] = [:]) throws -> CommandResult {
            let socket = daemon == nil ? "/nonexistent" : "\(link.directory.path)/agent.sock"
            let environment = [
                "HOME": directory.path, "GIT_ASKPASS": DaemonProcess.binary, "GIT_TERMINAL_PROMPT": "0",
                "CODER_AGENT_SOCKET_PATH": socket, "CODER_AGENT_URL": link.url, "CODER_AGENT_TOKEN": LinkWorld.token,
                "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "no_proxy": "*",
                "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "init.defaultBranch", "GIT_CONFIG_VALUE_0": "main",
            ]
            return try CommandResult.of(
                ["git"] + arguments, environment: environment.merging(more) { _, new in new })
        }

        func done(_ arguments: String..., environment more: [String: String] = [:]) throws {
            let result = try CommandResult.of(
                ["git"] + arguments,
                environment: [
                    "HOME": directory.path, "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a",
                    "GIT_AUTHOR_EMAIL": "a@b",
                    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_COUNT": "1",
                    "GIT_CONFIG_KEY_0": "init.defaultBranch", "GIT_CONFIG_VALUE_0": "main",
                ])
            #expect(result.code == 0, "git \(arguments): \(result.errors)")
        }

        var requests: [String] { link.requests("me/external-auth") }

        func stop() async {
            _ = try? await daemon?.stop()
            await link.stop()
        }
    }

    @Test func gitClonesAndPushesWithOneRequestEach() async throws {
        let world = try await World()
        let cloned = try world.git("clone", "-q", world.server.url("repo.git"), world.clone)
        #expect(cloned.code == 0, "\(cloned.errors)")
        #expect(world.requests.count == 1)
        #expect(world.requests[0].contains("match=http%3A%2F%2F127.0.0.1%3A\(world.server.port)"))
        #expect(try world.git("-C", world.clone, "commit", "-q", "--allow-empty", "-m", "second").code == 0)
        let pushed = try world.git("-C", world.clone, "push", "-q")
        #expect(pushed.code == 0, "\(pushed.errors)")
        #expect(world.requests.count == 2)
        let origin = "http%3A%2F%2F127.0.0.1%3A\(world.server.port)%2Fgit%2Frepo.git"
        #expect(world.requests[1].contains("git_branch=main&git_remote_origin=\(origin)"), "\(world.requests[1])")
        await world.stop()
    }

    /// The URL's own user, and what credential.useHttpPath adds.
    @Test func questionsWithUserAndPath() async throws {
        let world = try await World()
        let cloned = try world.git(
            "-c", "credential.useHttpPath=true", "clone", "-q", world.server.url("repo.git", user: "oauth2"),
            world.clone)
        #expect(cloned.code == 0, "\(cloned.errors)")
        #expect(world.requests.count == 1)
        #expect(world.requests[0].contains("match=http%3A%2F%2F127.0.0.1%3A\(world.server.port)%2Fgit%2Frepo.git"))
        await world.stop()
    }

    @Test func aWrongPasswordIsNotRepeated() async throws {
        let world = try await World()
        try world.server.setLogin(user: "oauth2", password: "changed")
        let failed = try world.git("clone", "-q", world.server.url("repo.git"), world.clone)
        #expect(failed.code == 128 && failed.errors.contains("Authentication failed"), "\(failed.errors)")
        #expect(world.requests.count == 1)
        // The user logs in anew; nothing of the old answer is left in the daemon.
        var login = World.login(world.server)
        login.password = "changed"
        world.link.server.logIn(login)
        #expect(try world.git("clone", "-q", world.server.url("repo.git"), world.clone).code == 0)
        #expect(world.requests.count == 2)
        await world.stop()
    }

    @Test func withoutADaemonTheControlPlaneIsAskedItself() async throws {
        let world = try await World(daemon: false)
        let cloned = try world.git("clone", "-q", world.server.url("repo.git"), world.clone)
        #expect(cloned.code == 0, "\(cloned.errors)")
        #expect(world.requests.count == 2)
        await world.stop()
    }

    // MARK: Logging in first

    private static let notYet = SimulatorServer.ExternalAuth(accessToken: "", url: "https://control.plane/gitauth/x")

    @Test(arguments: [true, false]) func gitWaitsWhileTheUserLogsIn(hasDaemon: Bool) async throws {
        let world = try await World(Self.notYet, daemon: hasDaemon)
        async let cloned = Task.detached { try world.git("clone", "-q", world.server.url("repo.git"), world.clone) }
            .value
        try await eventually("it waits") { world.link.server.waitingForLogin == 1 }
        world.link.server.logIn(World.login(world.server))
        let result = try await cloned
        #expect(result.code == 0)
        #expect(result.errors.contains("Log in to let git reach http://127.0.0.1:\(world.server.port):"))
        #expect(result.errors.contains("\n\n  https://control.plane/gitauth/x\n\n"))
        #expect(world.requests.contains { $0.contains("listen=true") })
        await world.stop()
    }

    @Test func aChatGetsTheAddressAndDoesNotWait() async throws {
        let world = try await World(Self.notYet)
        let chat = "5a7f4c63-5f6c-4a0e-9d8c-2f6f5f6f0b11"
        let failed = try world.git(
            "clone", "-q", world.server.url("repo.git"), world.clone,
            environment: ["CODER_CHAT_AGENT": "1", "CODER_CHAT_ID": chat])
        #expect(failed.code == 128 && failed.errors.contains("https://control.plane/gitauth/x"), "\(failed.errors)")
        #expect(world.requests.allSatisfy { $0.contains("chat_id=\(chat)") && !$0.contains("listen") })
        await world.stop()
    }

    @Test func anAddressThatWouldWriteOnTheTerminalIsNotShown() async throws {
        let world = try await World(.init(accessToken: "", url: "https://x/\u{1b}]0;title\u{7}"), daemon: false)
        let failed = try world.git("clone", "-q", world.server.url("repo.git"), world.clone)
        #expect(
            failed.code == 128 && failed.errors.contains("is not a web address") && !failed.errors.contains("\u{1b}"))
        await world.stop()
    }

    @Test func endingGitEndsTheWait() async throws {
        let world = try await World(Self.notYet)
        let pid = try DaemonProcess.spawn(
            ["/bin/sh", "-c", "exec \"$@\" >/dev/null 2>&1", "sh", DaemonProcess.binary, "Username for 'https://x': "],
            ProcessInfo.processInfo.environment.merging([
                "CODER_AGENT_SOCKET_PATH": "\(world.link.directory.path)/agent.sock", "CODER_AGENT_URL": world.link.url,
                "CODER_AGENT_TOKEN": LinkWorld.token,
            ]) { _, new in new })
        try await eventually("it waits") { world.link.server.waitingForLogin == 1 }
        kill(pid, SIGTERM)
        waitpid(pid, nil, 0)
        try await eventually("the request is gone") { world.link.server.waitingForLogin == 0 }
        await world.stop()
    }

    // MARK: Nothing to answer with

    @Test(arguments: [true, false]) func anUnknownHostIsLeftToGit(hasDaemon: Bool) async throws {
        let world = try await World(.init(accessToken: "t", serves: ["https://elsewhere"]), daemon: hasDaemon)
        let failed = try world.git("clone", "-q", world.server.url("repo.git"), world.clone)
        #expect(failed.code == 128)
        let url = "http://127.0.0.1:\(world.server.port)"
        #expect(
            failed.errors.contains("workspace-agent: the control plane has no login for \(url)\n"), "\(failed.errors)")
        // What git does when it has asked all: its terminal, which was forbidden.
        #expect(failed.errors.contains("terminal prompts disabled"))
        await world.stop()
    }

    @Test func aTokenThatIsNotAcceptedIsSaid() async throws {
        let world = try await World(daemon: false)
        let failed = try world.git(
            "clone", "-q", world.server.url("repo.git"), world.clone, environment: ["CODER_AGENT_TOKEN": "wrong"])
        #expect(
            failed.code == 128 && failed.errors.contains("does not accept this workspace's token"), "\(failed.errors)")
        await world.stop()
    }

    @Test(arguments: [
        ("Username for 'https://user@github.com': ", "cannot tell the host"),
        ("Password for 'https://github.com/x@evil.example': ", "cannot tell the host"),
        ("Password for 'cert:///home/me/key.pem': ", "not for cert"), ("Username: ", "does not say which host"),
    ]) func questionsThatAreRefused(prompt: String, says: String) throws {
        let result = try CommandResult.ofAgent(prompt)
        #expect(result.code == 2 && result.output == "" && result.errors.contains(says), "\(result.errors)")
        #expect(result.errors.hasPrefix("workspace-agent: "))
    }
}
