import AgentCore
import AgentSocket
import ArgumentParser
import CPlatform
import GitCredentials
import Glibc
import LocalAgent

/// `gitaskpass`: what GIT_ASKPASS points to in the workspace. Git gives it the prompt alone, so the
/// program also takes a prompt in the place of a command.
struct GitAskpassCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gitaskpass", abstract: "Answer git's question for a user name or password.",
        discussion: """
            Git calls it. When the user has not logged in to the git host yet, it shows the address to do so and \
            waits; for a chat (CODER_CHAT_AGENT is set) it shows the address and ends with code 1.

            Example:
              workspace-agent gitaskpass "Username for 'https://github.com': "
            """)

    /// Set for the processes of an AI agent, which must not wait for a person.
    static let chatAgentVariable = "CODER_CHAT_AGENT"

    @Argument(help: "Git's prompt.")
    var prompt: String

    func run() async throws {
        let parsed: GitPrompt
        do { parsed = try GitPrompt(prompt) } catch { throw CommandFailure(message: error.message.harmless, code: 2) }
        let environment = ProcessEnvironment.current
        let place = GitWorkTree(environment: environment)
        var question = GitLoginQuestion(
            prompt: parsed, branch: place?.branch, remoteOrigin: place?.remoteOrigin,
            chatID: environment[EnvironmentBuilder.chatVariable])
        let source = LocalLogins(socket: LocalSocket.agent(nil, environment))
        do {
            var login = try await source.login(question)
            if let page = login.page {
                guard Self.isAddress(page) else {
                    throw GitLoginFailure(.other, "the login address is not a web address")
                }
                fputs("Log in to let git reach \(parsed.url):\n\n  \(page)\n\n", wa_stderr())
                guard (environment[Self.chatAgentVariable] ?? "").isEmpty else { throw ExitCode(1) }
                question.waits = true
                login = try await source.login(question)
                guard login.page == nil else {
                    throw GitLoginFailure(.other, "the control plane still wants the user to log in")
                }
            }
            print((parsed.field == .username ? login.username : login.password).reveal())
        } catch let failure as GitLoginFailure {
            // Git asks elsewhere then: on the terminal, where it has one.
            throw CommandFailure(message: Self.text(failure, parsed).harmless)
        }
    }

    /// Whether it can be shown on a terminal, to be opened in a browser.
    private static func isAddress(_ page: String) -> Bool {
        (page.hasPrefix("https://") || page.hasPrefix("http://")) && page.unicodeScalars.allSatisfy(\.isHarmless)
    }

    private static func text(_ failure: GitLoginFailure, _ prompt: GitPrompt) -> String {
        switch failure.code {
        case .unknownHost: "the control plane has no login for \(prompt.url)"
        case .unauthorized:
            "no login for \(prompt.url): the control plane does not accept this workspace's token; restart the workspace"
        case .other: "no access to \(prompt.url) from the control plane: \(failure)"
        }
    }
}
