import ArgumentParser

/// The daemon's flags, which every command has that runs the daemon or looks at one: `agent`, `dev` and `doctor`.
struct DaemonOptions: ParsableArguments {
    @Option(
        help: """
            Unix socket of the HTTP API; default $XDG_RUNTIME_DIR/workspace-agent/http.sock, else \
            /tmp/workspace-agent-UID/http.sock; empty for none. [WORKSPACE_AGENT_HTTP_SOCKET]
            """)
    var httpSocket: String?

    @Option(help: "TCP address host:port of the HTTP API; repeatable. [WORKSPACE_AGENT_HTTP_ADDRESS, commas]")
    var httpAddress: [String] = []

    @Option(
        help: """
            File that holds the token of the TCP addresses; default a new token in http.token beside the socket. \
            [WORKSPACE_AGENT_HTTP_TOKEN_FILE]
            """)
    var httpTokenFile: String?

    @Option(help: "token or none: whether TCP addresses ask for the token; default token. [WORKSPACE_AGENT_HTTP_AUTH]")
    var httpAuth: String?

    @Flag(
        help:
            "Allow --http-auth none on an address that other hosts can reach. [WORKSPACE_AGENT_HTTP_AUTH_NONE_I_UNDERSTAND]"
    )
    var httpAuthNoneIUnderstand = false

    @Option(
        help:
            "Additional host name to accept in the Host header; repeatable. [WORKSPACE_AGENT_HTTP_ALLOWED_HOST, commas]"
    )
    var httpAllowedHost: [String] = []

    @Option(help: "The agent socket; default /tmp/coder-agent.sock. [CODER_AGENT_SOCKET_PATH]")
    var socketPath: String?

    @Option(help: "true or false: serve the agent socket; default true. [CODER_AGENT_SOCKET_SERVER_ENABLED]")
    var socketServerEnabled: String?

    @OptionGroup(title: "Control plane")
    var link: LinkOptions

    @Option(
        help: """
            File of a WireGuard node, as wg-quick has it: its peers reach the HTTP API on port 4 and this machine's \
            loopback ports. [WORKSPACE_AGENT_WIREGUARD_CONFIG]
            """)
    var wireguardConfig: String?

    @Option(
        help: """
            on or off: whether clients of the control plane reach this agent over the tailnet; default on. \
            [WORKSPACE_AGENT_TAILNET]
            """)
    var tailnet: String?

    @Option(
        help: """
            UDP port of direct tailnet connections; default 0, which picks a free port. \
            [CODER_AGENT_TAILNET_LISTEN_PORT]
            """)
    var tailnetListenPort: String?

    @OptionGroup(title: "Boundary logs")
    var boundary: BoundaryOptions

    @Option(help: "on, read-only or off: the page at /ui, see workspace-agent ui --help. [WORKSPACE_AGENT_UI]")
    var ui: String?

    @Option(help: "Directory of noVNC, for the desktop's viewer; default /usr/share/novnc. [WORKSPACE_AGENT_NOVNC_DIR]")
    var novncDir: String?

    @Option(
        help: """
            Directory for state; default $XDG_STATE_HOME/workspace-agent, else ~/.local/state/workspace-agent, else \
            /tmp/workspace-agent-UID. [WORKSPACE_AGENT_STATE_DIR]
            """)
    var stateDir: String?

    @Option(help: "Directory for commands that name none; default the home directory. [WORKSPACE_AGENT_DIRECTORY]")
    var directory: String?

    @Option(help: "File for human-readable logs; default -, which is stderr. [CODER_AGENT_LOGGING_HUMAN]")
    var logHuman: String?

    @Option(help: "File for JSON logs; - is stderr. [CODER_AGENT_LOGGING_JSON]")
    var logJson: String?

    @Option(
        help: "Directory of workspace-agent.log, rotated at 5 MiB, 3 kept; default $TMPDIR. [CODER_AGENT_LOG_DIR]")
    var logDir: String?

    @Option(help: "trace, debug, info, notice, warning, error or critical; default info. [WORKSPACE_AGENT_LOG_LEVEL]")
    var logLevel: String?

    @Option(help: "Address of a listener for Prometheus alone. [CODER_AGENT_PROMETHEUS_ADDRESS]")
    var prometheusAddress: String?

    @Flag(help: "Do not adopt and reap orphaned processes. [WORKSPACE_AGENT_NO_REAP]")
    var noReap = false

    @Flag(
        help: """
            Do not put a directory with this program under the name coder at the end of PATH for commands. \
            [WORKSPACE_AGENT_NO_CODER_LINK]
            """)
    var noCoderLink = false

    @OptionGroup
    var stock: StockOptions

    @Flag(help: "Print commands to try once the daemon listens. [WORKSPACE_AGENT_PRINT_EXAMPLES]")
    var printExamples = false
}
