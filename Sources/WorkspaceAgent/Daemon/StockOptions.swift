import ArgumentParser

/// Flags of Coder's agent without a use here. They are accepted, so that a template's command line works as it is; the
/// log says once which were given.
struct StockOptions: ParsableArguments {
    @Option(help: ArgumentHelp("No effect. [CODER_AGENT_SCRIPT_DATA_DIR]", visibility: .hidden))
    var scriptDataDir: String?

    @Option(help: ArgumentHelp("No effect. [CODER_AGENT_PPROF_ADDRESS]", visibility: .hidden))
    var pprofAddress: String?

    @Option(help: ArgumentHelp("No effect. [CODER_AGENT_DEBUG_ADDRESS]", visibility: .hidden))
    var debugAddress: String?

    @Option(help: ArgumentHelp("No effect. [CODER_AGENT_LOGGING_STACKDRIVER]", visibility: .hidden))
    var logStackdriver: String?

    @Option(help: ArgumentHelp("No effect. [CODER_AGENT_SSH_MAX_TIMEOUT]", visibility: .hidden))
    var sshMaxTimeout: String?

    @Option(help: ArgumentHelp("No effect. [CODER_AGENT_BLOCK_FILE_TRANSFER]", visibility: .hidden))
    var blockFileTransfer: String?

    @Option(help: ArgumentHelp("No effect. [CODER_AGENT_BLOCK_LOCAL_PORT_FORWARDING]", visibility: .hidden))
    var blockLocalPortForwarding: String?

    @Option(help: ArgumentHelp("No effect. [CODER_AGENT_BLOCK_REVERSE_PORT_FORWARDING]", visibility: .hidden))
    var blockReversePortForwarding: String?

    @Option(help: ArgumentHelp("No effect. [CODER_AGENT_DEVCONTAINERS_ENABLE]", visibility: .hidden))
    var devcontainersEnable: String?

    @Option(
        help: ArgumentHelp("No effect. [CODER_AGENT_DEVCONTAINERS_PROJECT_DISCOVERY_ENABLE]", visibility: .hidden))
    var devcontainersProjectDiscoveryEnable: String?

    @Option(
        help: ArgumentHelp("No effect. [CODER_AGENT_DEVCONTAINERS_DISCOVERY_AUTOSTART_ENABLE]", visibility: .hidden))
    var devcontainersDiscoveryAutostartEnable: String?

    /// Of Coder's flags those that need no value: `--flag` is `--flag=true` there.
    private static let switches: Set<String> = [
        "--socket-server-enabled", "--block-file-transfer", "--block-local-port-forwarding",
        "--block-reverse-port-forwarding", "--devcontainers-enable", "--devcontainers-project-discovery-enable",
        "--devcontainers-discovery-autostart-enable",
    ]
    /// Our flags without a value that Coder's agent has as well, with `=true` or `=false`.
    private static let sharedSwitches: Set<String> = ["--no-reap"]

    /// The daemon's arguments as our parser expects them: it knows no flag that may have a value or not.
    static func normalized(_ arguments: [String]) -> [String] {
        arguments.compactMap { argument in
            if switches.contains(argument) { return "\(argument)=true" }
            let parts = argument.split(separator: "=", maxSplits: 1)
            guard parts.count == 2, let flag = parts.first.map(String.init), sharedSwitches.contains(flag),
                let isOn = goBool(String(parts[1]))
            else { return argument }
            return isOn ? flag : nil
        }
    }

    /// A truth value as Coder's flags and variables spell it; nil for another text.
    static func goBool(_ text: String) -> Bool? {
        switch text.lowercased() {
        case "1", "t", "true", "yes": true
        case "0", "f", "false", "no": false
        default: nil
        }
    }

    /// The flags and variables that were given and do nothing, by name. What turns something off that is not there
    /// (`false`, an empty address) has its effect.
    func withoutEffect(_ environment: [String: String]) -> [String] {
        let settings: [(flag: String, value: String?, variable: String)] = [
            ("--script-data-dir", scriptDataDir, "CODER_AGENT_SCRIPT_DATA_DIR"),
            ("--pprof-address", pprofAddress, "CODER_AGENT_PPROF_ADDRESS"),
            ("--debug-address", debugAddress, "CODER_AGENT_DEBUG_ADDRESS"),
            ("--log-stackdriver", logStackdriver, "CODER_AGENT_LOGGING_STACKDRIVER"),
            ("--ssh-max-timeout", sshMaxTimeout, "CODER_AGENT_SSH_MAX_TIMEOUT"),
            ("--block-file-transfer", blockFileTransfer, "CODER_AGENT_BLOCK_FILE_TRANSFER"),
            (
                "--block-local-port-forwarding", blockLocalPortForwarding, "CODER_AGENT_BLOCK_LOCAL_PORT_FORWARDING"
            ),
            (
                "--block-reverse-port-forwarding", blockReversePortForwarding,
                "CODER_AGENT_BLOCK_REVERSE_PORT_FORWARDING"
            ),
            ("--devcontainers-enable", devcontainersEnable, "CODER_AGENT_DEVCONTAINERS_ENABLE"),
            (
                "--devcontainers-project-discovery-enable", devcontainersProjectDiscoveryEnable,
                "CODER_AGENT_DEVCONTAINERS_PROJECT_DISCOVERY_ENABLE"
            ),
            (
                "--devcontainers-discovery-autostart-enable", devcontainersDiscoveryAutostartEnable,
                "CODER_AGENT_DEVCONTAINERS_DISCOVERY_AUTOSTART_ENABLE"
            ),
        ]
        return settings.compactMap { flag, value, variable in
            guard let given = value ?? environment[variable], !given.isEmpty, Self.goBool(given) != false else {
                return nil
            }
            return value == nil ? variable : flag
        }
    }
}
