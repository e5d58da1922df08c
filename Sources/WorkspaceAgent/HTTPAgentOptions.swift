import ArgumentParser
import LocalAgent

/// How commands that use the HTTP API find the agent.
struct HTTPAgentOptions: ParsableArguments {
    @Option(help: "Unix socket of the HTTP API. [WORKSPACE_AGENT_HTTP_SOCKET]", completion: .file())
    var httpSocket: String?

    var client: LocalClient { LocalClient(socket: LocalSocket.http(httpSocket, ProcessEnvironment.current)) }
}
