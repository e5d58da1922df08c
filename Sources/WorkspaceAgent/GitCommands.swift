import AgentCore
import AgentProc
import ArgumentParser
import CPlatform
import ControlPlane
import GitCredentials
import Glibc
import Logging
import NIOPosix

/// `gitssh`: what GIT_SSH_COMMAND points to in the workspace.
struct GitSSHCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gitssh", abstract: "Run ssh with the user's key from the control plane.",
        discussion: """
            Git calls it. The key is held in memory only and never on disk. Without one from the control \
            plane ssh goes on with the keys of this machine. What follows -- is for ssh.

            Example:
              workspace-agent gitssh -- git@github.com git-upload-pack project.git
            """)

    @Argument(parsing: .captureForPassthrough, help: "What ssh is given.")
    var arguments: [String] = []

    func run() async throws {
        var arguments = arguments
        if let first = arguments.first, ["--help", "-h"].contains(first) { throw CleanExit.helpRequest(Self.self) }
        if arguments.first == "--" { arguments.removeFirst() }
        var key: Secret<String>?
        var gitKey: GitKey?
        do {
            let answer = try await GitLink.use { try await $0.rest.gitSSHKey() }
            key = answer.privateKey
            gitKey = GitKey(publicKey: answer.publicKey, privateKey: answer.privateKey)
        } catch {
            fputs(
                "workspace-agent: no key from the control plane: \(error); going on with this machine's keys\n",
                wa_stderr())
        }
        let environment = ProcessEnvironment.current
        let hasSSH = (environment["PATH"] ?? "").split(separator: ":").contains { access("\($0)/ssh", X_OK) == 0 }
        guard hasSSH else { throw ExitCode(BuiltInSSH.run(arguments, key: gitKey, environment: environment)) }
        // Kept open until ssh has ended: it reads the key through our descriptor.
        let descriptor = try key.map { try Self.hold($0) }
        if let descriptor { arguments = ["-i", "/proc/\(getpid())/fd/\(descriptor)"] + arguments }
        throw ExitCode(try Self.runSSH(arguments))
    }

    /// A file in memory that holds the key, readable by this user alone, or ssh would refuse it.
    private static func hold(_ key: Secret<String>) throws -> CInt {
        let descriptor = wa_memfd("git-ssh-key")
        guard descriptor >= 0 else { throw CoreError.system(descriptor, "cannot hold the key in memory") }
        let bytes = Array(key.reveal().utf8)
        guard write(descriptor, bytes, bytes.count) == bytes.count else {
            throw CoreError.system(errno, "cannot hold the key in memory")
        }
        return descriptor
    }

    private static func runSSH(_ arguments: [String]) throws -> Int32 {
        var pid: pid_t = 0
        var argv: [UnsafeMutablePointer<CChar>?] = (["ssh"] + arguments).map { strdup($0) } + [nil]
        defer { for argument in argv { free(argument) } }
        let failure = posix_spawnp(&pid, "ssh", nil, nil, &argv, wa_environ())
        guard failure == 0 else {
            throw CommandFailure(message: "cannot run ssh: \(errnoText(failure)); install openssh-client")
        }
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        return status & 0x7f == 0 ? status >> 8 & 0xff : 128 + status & 0x7f
    }
}

/// `gitaskpass`: what GIT_ASKPASS points to in the workspace. Git gives it the prompt alone, so the
/// program also takes a prompt in the place of a command.
struct GitAskpassCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gitaskpass", abstract: "Answer git's question for a user name or password.",
        discussion: """
            Git calls it. When the user has not logged in to the git host yet, it shows the address to do so and waits.

            Example:
              workspace-agent gitaskpass "Username for 'https://github.com': "
            """)

    @Argument(help: "Git's prompt.")
    var prompt: String

    /// Whether an argument is a prompt of git's, as GIT_ASKPASS gets it.
    static func isPrompt(_ text: String) -> Bool { question(text) != nil }

    /// What a prompt asks for, and the host's address without a user.
    static func question(_ prompt: String) -> (isUser: Bool, url: String)? {
        for (start, isUser) in [("Username for '", true), ("Password for '", false)] where prompt.hasPrefix(start) {
            let rest = prompt.dropFirst(start.count)
            guard let end = rest.lastIndex(of: "'"), let scheme = rest.firstRange(of: "://") else { return nil }
            var address = rest[scheme.upperBound..<end]
            if let at = address.lastIndex(of: "@") { address = address[address.index(after: at)...] }
            return (isUser, "\(rest[..<scheme.upperBound])\(address)")
        }
        return nil
    }

    func run() async throws {
        guard let question = Self.question(prompt) else {
            throw CommandFailure(message: "\"\(prompt)\" is no question of git's for a user name or password", code: 2)
        }
        var request = ControlPlaneREST.ExternalAuthRequest()
        request.match = question.url
        request.chatID = ProcessEnvironment.current[EnvironmentBuilder.chatVariable]
        do {
            let asked = request
            let answer = try await GitLink.use { link in
                let answer = try await link.rest.externalAuth(asked)
                guard !answer.url.isEmpty else { return answer }
                fputs("Log in to let git reach \(question.url):\n\n  \(answer.url)\n\n", wa_stderr())
                var waiting = asked
                waiting.listen = true
                return try await link.rest.externalAuth(waiting)
            }
            print(question.isUser ? answer.username : answer.password.reveal())
        } catch {
            throw CommandFailure(message: "no access to \(question.url) from the control plane: \(error)")
        }
    }
}

/// The control plane's REST for a command that git runs: configured by the environment that the daemon
/// gives to whatever it starts.
enum GitLink {
    /// - Throws: ``ControlPlaneError`` for an answer that has not what was asked for; ``CommandFailure`` when
    ///   there is no control plane to ask.
    static func use<T: Sendable>(_ body: @escaping @Sendable (ControlPlaneAccess) async throws -> T) async throws -> T {
        let environment = ProcessEnvironment.current
        guard let settings = try LinkSettings(LinkOptions.parse([]), environment) else {
            throw CommandFailure(
                message: "CODER_AGENT_URL is not set, so there is none to ask; run git in the workspace")
        }
        guard settings.auth != "token" || settings.token != nil || settings.tokenFile != nil else {
            throw CommandFailure(
                message: "neither CODER_AGENT_TOKEN nor CODER_AGENT_TOKEN_FILE is set; run git in the workspace")
        }
        do {
            return try await use(settings, environment, body)
        } catch let error as ControlPlaneError {
            switch error.code {
            case .unreachable, .timeout:
                throw CommandFailure(message: "\(error); check CODER_AGENT_URL and whether its machine can be reached")
            case .configuration, .tls, .token:
                throw CommandFailure(
                    message: "\(error); check the variables CODER_AGENT_…, which stand for these flags")
            default: throw error
            }
        }
    }

    private static func use<T: Sendable>(
        _ settings: LinkSettings, _ environment: [String: String],
        _ body: @escaping @Sendable (ControlPlaneAccess) async throws -> T
    ) async throws -> T {
        let configuration = try LinkConfiguration(settings.input(environment))
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let pool = BlockingPool(threads: 1)
        let logger = Logger(label: "git") { _ in SwiftLogNoOpLogHandler() }
        let clock = AgentClock(EventLoopClock(group: group))
        let executor = EventLoopTaskExecutor(group.next())
        let reactor = try Reactor()
        guard reactor.start() else { throw CommandFailure(message: "cannot start a thread") }
        let runner = CommandLauncher(
            launcher: try Launcher(), reactor: reactor, pool: pool, executor: executor, clock: clock,
            metrics: MetricsRegistry(), logger: logger)
        let link = ControlPlaneAccess(
            configuration, group: group, pool: pool, clock: clock, runner: runner, environment: environment,
            logger: logger)
        let result: Result<T, any Error>
        do { result = .success(try await body(link)) } catch { result = .failure(error) }
        await link.shutdown()
        await reactor.stop()
        await pool.shutdown()
        try? await group.shutdownGracefully()
        return try result.get()
    }
}

extension CommandFailure: CustomStringConvertible {
    /// As part of another message.
    var description: String { message }
}
