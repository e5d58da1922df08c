import AgentCore
import ArgumentParser
import CPlatform
import FoundationEssentials
import Glibc
import LocalAgent

/// `workspace-agent ui`.
struct UICommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ui", abstract: "Print the address of the agent's page, and open it where there is a browser.",
        discussion: """
            The address works once and for 60 seconds, on this machine or through a forwarded port. It opens a session \
            that ends 12 hours after its last use.

            Example:
              workspace-agent ui
              workspace-agent ui --read-only --no-open
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Flag(help: "Make the session read-only. [WORKSPACE_AGENT_UI_READ_ONLY]")
    var readOnly = false

    @Flag(help: "Print the address without opening it. [WORKSPACE_AGENT_NO_OPEN]")
    var noOpen = false

    private struct Answer: Decodable { var url: String }

    func run() throws {
        SyncInterrupt.exitWith130()
        let client = agent.client
        let answer = try client.request(
            "POST", "/api/v0/ui/sessions", readOnly ? #"{"mode":"read-only"}"# : "{}", allowing: [404])
        guard answer.status != 404 else {
            throw CommandFailure(
                message: "the agent at \(client.socket) serves no page; start it without --ui off")
        }
        let url = try client.decode(Answer.self, answer).url
        print(url)
        fflush(wa_stdout())
        if !noOpen { Browser.open(url) }
    }
}

/// The user's browser.
enum Browser {
    /// Where a person sits in front of it; a failure is no harm, the address is printed.
    static func open(_ url: String) {
        let environment = ProcessEnvironment.current
        guard isatty(1) != 0, environment["DISPLAY"] ?? environment["WAYLAND_DISPLAY"] != nil else { return }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for stream in CInt(0)...2 { posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0) }
        var arguments: [UnsafeMutablePointer<CChar>?] = [strdup("xdg-open"), strdup(url), nil]
        defer { for argument in arguments { free(argument) } }
        var pid = pid_t()
        posix_spawnp(&pid, "xdg-open", &actions, nil, &arguments, wa_environ())
    }
}
