import ArgumentParser

/// The flags of the link to the control plane (docs/contracts/control-plane.md#configuration).
struct LinkOptions: ParsableArguments {
    @Option(help: "Address of the control plane; without it the daemon runs standalone. [CODER_AGENT_URL]")
    var agentURL: String?

    @Option(help: "The agent's token; visible to all who may list processes: prefer the file. [CODER_AGENT_TOKEN]")
    var agentToken: String?

    @Option(help: "File that holds the agent's token, read again at each connect. [CODER_AGENT_TOKEN_FILE]")
    var agentTokenFile: String?

    @Option(
        help: "token, aws-, azure- or google-instance-identity; default token. [CODER_AGENT_AUTH]")
    var auth: String?

    @Option(help: "Header k=v of every request to the control plane; repeatable. [CODER_AGENT_HEADER, commas]")
    var agentHeader: [String] = []

    @Option(help: "Command that prints extra headers, one k=v per line. [CODER_AGENT_HEADER_COMMAND]")
    var agentHeaderCommand: String?

    @Option(help: "PEM file with an additional CA certificate to trust. [CODER_AGENT_CA_FILE]")
    var agentCaFile: String?
}

/// The flags of the socket that takes boundary audit logs (docs/contracts/boundary.md).
struct BoundaryOptions: ParsableArguments {
    @Option(
        name: [.long, .customLong("agent-firewall-log-proxy-socket-path")],
        help: """
            Socket for boundary audit logs, default $TMPDIR/boundary-audit.sock; empty for none. \
            [CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH]
            """)
    var boundaryLogProxySocketPath: String?

    @Option(
        help: "Octal mode of that socket, default 0600. [CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_MODE]")
    var boundaryLogProxySocketMode: String?
}
