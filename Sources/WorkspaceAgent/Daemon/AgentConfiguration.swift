import AgentCore
import AgentHTTP
import AgentProc
import AgentSocket
import BoundaryLog
import Desktop
import Glibc
import LocalAgent
import Logging
import NIOCore

/// A flag or variable that does not make sense.
struct ConfigurationError: Error, Equatable {
    var message: String
    init(_ message: String) { self.message = message }
}

/// `host:port`, IPv6 in brackets.
struct ListenAddress: Sendable, Equatable, CustomStringConvertible {
    var host: String
    var port: Int

    init(_ text: String, flag: String) throws(ConfigurationError) {
        let problem = ConfigurationError("\(flag): \"\(text)\" is not host:port")
        guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[text.index(after: colon)...]) else {
            throw problem
        }
        var host = String(text[..<colon])
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = String(host.dropFirst().dropLast())
        } else if host.contains(":") {
            throw problem
        }
        guard !host.isEmpty else { throw problem }
        (self.host, self.port) = (host, Int(port))
    }

    /// Whether every interface is meant, however it is spelled (`0`, `::0` and so on).
    var isWildcard: Bool {
        let resolved = try? SocketAddress.makeAddressResolvingHost(host, port: port)
        return ["0.0.0.0", "::", "::ffff:0.0.0.0"].contains(resolved?.ipAddress ?? host)
    }

    var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

/// The daemon's settings: flags first, then the environment, then defaults.
struct AgentConfiguration: Sendable {
    enum HTTPAuth: Sendable { case token, none }

    var environment: [String: String]
    /// nil serves no unix socket.
    var httpSocket: String?
    /// The socket is in a place of our choosing, whose directory must be private.
    var httpSocketIsDefault: Bool
    var httpAddresses: [ListenAddress]
    var httpTokenFile: String?
    var httpAuth: HTTPAuth
    /// `--http-auth none` may serve every host that can reach the machine.
    var understandsOpenAccess: Bool
    var allowedHosts: Set<String>
    /// nil serves no agent socket.
    var agentSocket: String?
    var stateDirectory: String
    var directory: String
    var logHuman: String
    var logJSON: String?
    var logDirectory: String
    var logLevel: Logger.Level
    var prometheusAddress: ListenAddress?
    var reapsOrphans: Bool
    var printsExamples: Bool
    var priority: ChildPriority?
    /// nil runs standalone.
    var link: LinkSettings?
    /// Whether clients of the control plane reach this agent over the tailnet.
    var isTailnetEnabled: Bool
    /// UDP port of the tailnet's direct paths; 0 takes a free one.
    var tailnetPort: UInt16
    /// Whether what the daemon starts finds this program under the name `coder`.
    var hasCoderLink: Bool
    /// The file of a plain WireGuard node; nil for none.
    var wireGuardFile: String?
    /// nil takes no boundary logs.
    var boundarySocket: String?
    var boundarySocketMode: UInt32
    /// What the page at `/ui` may do; nil serves none.
    var page: PageSessions.Mode?
    /// Gets the page's address with a one-time code once the daemon listens.
    var showPage: (@Sendable (String) -> Void)?
    /// Where noVNC is, for the desktop's viewer.
    var novncDirectory: String
    /// What was wrong but can be lived with; logged at start.
    var warnings: [String] = []

    init(_ command: DaemonOptions, environment: [String: String]) throws(ConfigurationError) {
        self.environment = environment
        func value(_ flag: String?, _ name: String) -> String? { flag ?? environment[name] }
        func present(_ flag: String?, _ name: String) -> String? {
            value(flag, name).flatMap { $0.isEmpty ? nil : $0 }
        }
        func list(_ flags: [String], _ name: String) -> [String] {
            // An empty flag is none at all, whatever the variable says.
            flags.isEmpty
                ? (environment[name] ?? "").split(separator: ",").map(String.init) : flags.filter { !$0.isEmpty }
        }

        let defaultSocket = AgentPaths.httpSocket(environment)
        let socket = value(command.httpSocket, "WORKSPACE_AGENT_HTTP_SOCKET") ?? defaultSocket
        httpSocket = socket.isEmpty ? nil : socket
        httpSocketIsDefault = socket == defaultSocket
        guard socket.isEmpty || socket.hasPrefix("/") else {
            throw ConfigurationError("--http-socket: \"\(socket)\" must be an absolute path")
        }

        var addresses: [ListenAddress] = []
        for text in list(command.httpAddress, "WORKSPACE_AGENT_HTTP_ADDRESS") {
            addresses.append(try ListenAddress(text, flag: "--http-address"))
        }
        httpAddresses = addresses
        httpTokenFile = present(command.httpTokenFile, "WORKSPACE_AGENT_HTTP_TOKEN_FILE")
        switch value(command.httpAuth, "WORKSPACE_AGENT_HTTP_AUTH") ?? "token" {
        case "token": httpAuth = .token
        case "none": httpAuth = .none
        case let other: throw ConfigurationError("--http-auth: \"\(other)\" is neither token nor none")
        }
        func flag(_ flag: Bool, _ name: String) -> Bool {
            flag || TypedArguments.isTrue(environment[name])
        }
        understandsOpenAccess = flag(command.httpAuthNoneIUnderstand, "WORKSPACE_AGENT_HTTP_AUTH_NONE_I_UNDERSTAND")
        if httpAuth == .none, !understandsOpenAccess, let open = addresses.first(where: \.isWildcard) {
            throw ConfigurationError(
                "--http-auth none on \(open) lets every host that can reach this machine run commands; "
                    + "name an address, or add --http-auth-none-i-understand")
        }
        // Who listens under a name is reached under it.
        allowedHosts = Set(list(command.httpAllowedHost, "WORKSPACE_AGENT_HTTP_ALLOWED_HOST") + addresses.map(\.host))

        let socketPath =
            present(command.socketPath, "CODER_AGENT_SOCKET_PATH") ?? AgentSocketServer.Configuration.defaultPath
        let served = present(command.socketServerEnabled, "CODER_AGENT_SOCKET_SERVER_ENABLED") ?? ""
        agentSocket = StockOptions.goBool(served) == false ? nil : socketPath

        stateDirectory =
            present(command.stateDir, "WORKSPACE_AGENT_STATE_DIR") ?? AgentPaths.stateDirectory(environment)
        directory = present(command.directory, "WORKSPACE_AGENT_DIRECTORY") ?? AgentPaths.home(environment)
        for (flag, path) in [("--state-dir", stateDirectory), ("--directory", directory)] where !path.hasPrefix("/") {
            throw ConfigurationError("\(flag): \"\(path)\" must be an absolute path")
        }

        logHuman = present(command.logHuman, "CODER_AGENT_LOGGING_HUMAN") ?? "-"
        logJSON = present(command.logJson, "CODER_AGENT_LOGGING_JSON")
        logDirectory = present(command.logDir, "CODER_AGENT_LOG_DIR") ?? environment["TMPDIR"] ?? "/tmp"
        let level = present(command.logLevel, "WORKSPACE_AGENT_LOG_LEVEL") ?? "info"
        guard let parsed = Logger.Level(rawValue: level.lowercased() == "warn" ? "warning" : level.lowercased()) else {
            throw ConfigurationError(
                "--log-level: \"\(level)\" is none of \(Logger.Level.allCases.map(\.rawValue).joined(separator: ", "))")
        }
        logLevel = parsed
        if let text = present(command.prometheusAddress, "CODER_AGENT_PROMETHEUS_ADDRESS") {
            prometheusAddress = try ListenAddress(text, flag: "--prometheus-address")
        }
        reapsOrphans = !flag(command.noReap, "WORKSPACE_AGENT_NO_REAP")
        printsExamples = flag(command.printExamples, "WORKSPACE_AGENT_PRINT_EXAMPLES")
        link = try LinkSettings(command.link, environment)
        switch present(command.tailnet, "WORKSPACE_AGENT_TAILNET") ?? "on" {
        case "on": isTailnetEnabled = true
        case "off": isTailnetEnabled = false
        case let other: throw ConfigurationError("--tailnet: \"\(other)\" is neither on nor off")
        }
        let port = present(command.tailnetListenPort, "CODER_AGENT_TAILNET_LISTEN_PORT") ?? "0"
        guard let number = UInt16(port) else {
            throw ConfigurationError("--tailnet-listen-port: must be a port from 0 to 65535, not \"\(port)\"")
        }
        tailnetPort = number
        wireGuardFile = present(command.wireguardConfig, "WORKSPACE_AGENT_WIREGUARD_CONFIG")
        let boundary =
            command.boundary.boundaryLogProxySocketPath ?? environment["CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH"]
            ?? environment["CODER_AGENT_FIREWALL_LOG_PROXY_SOCKET_PATH"]
            ?? BoundaryProxy.Configuration.defaultPath(temporary: environment["TMPDIR"])
        boundarySocket = boundary.isEmpty ? nil : boundary
        guard boundary.isEmpty || boundary.hasPrefix("/") else {
            throw ConfigurationError("--boundary-log-proxy-socket-path: \"\(boundary)\" must be an absolute path")
        }
        let mode =
            present(command.boundary.boundaryLogProxySocketMode, "CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_MODE") ?? "0600"
        guard let bits = UInt32(mode, radix: 8), bits <= 0o777 else {
            throw ConfigurationError(
                "--boundary-log-proxy-socket-mode: must be an octal mode up to 0777, not \"\(mode)\"")
        }
        boundarySocketMode = bits
        novncDirectory = present(command.novncDir, "WORKSPACE_AGENT_NOVNC_DIR") ?? ViewerFiles.defaultDirectory
        guard novncDirectory.hasPrefix("/") else {
            throw ConfigurationError("--novnc-dir: \"\(novncDirectory)\" must be an absolute path")
        }
        switch present(command.ui, "WORKSPACE_AGENT_UI") ?? "on" {
        case "off": page = nil
        case let text:
            guard let mode = PageSessions.Mode(rawValue: text) else {
                throw ConfigurationError("--ui: must be on, read-only or off, not \"\(text)\"")
            }
            page = mode
        }
        hasCoderLink = !flag(command.noCoderLink, "WORKSPACE_AGENT_NO_CODER_LINK")
        readPriority()
        let unused = command.stock.withoutEffect(environment)
        if !unused.isEmpty {
            warnings.append("settings of Coder's agent that have no effect here: \(unused.joined(separator: ", "))")
        }
    }

    /// Variables by which this program's own commands (gitssh, gitaskpass, sync, coder) find this daemon and its control
    /// plane when it was given flags. They hold no secret besides the headers, which every process of this user can read
    /// in the daemon's command line.
    var childSettings: [String: String] {
        var settings: [String: String] = [:]
        // What our commands assume anyway needs no variable, unless there is one that says otherwise.
        func set(_ name: String, _ value: String?, unless usual: String) {
            guard let value, value != environment[name] ?? usual else { return }
            settings[name] = value
        }
        func absolute(_ path: String?) -> String? { path.map { (try? WorkingDirectory.absolute($0)) ?? $0 } }
        set("CODER_AGENT_SOCKET_PATH", absolute(agentSocket), unless: AgentSocketServer.Configuration.defaultPath)
        set("WORKSPACE_AGENT_HTTP_SOCKET", httpSocket, unless: AgentPaths.httpSocket(environment))
        if let link {
            set("CODER_AGENT_AUTH", link.auth, unless: "token")
            set("CODER_AGENT_HEADER", HeaderList.text(link.headers), unless: "")
            set("CODER_AGENT_HEADER_COMMAND", link.headerCommand ?? "", unless: "")
            set("CODER_AGENT_CA_FILE", absolute(link.caFile) ?? "", unless: "")
        }
        return settings
    }

    private mutating func readPriority() {
        guard let set = environment["CODER_PROC_PRIO_MGMT"], !set.isEmpty else { return }
        var priority = ChildPriority()
        func number(_ name: String, _ range: ClosedRange<Int32>, _ apply: (Int32) -> Void) {
            guard let text = environment[name], !text.isEmpty else { return }
            if let number = Int32(text), range.contains(number) {
                apply(number)
            } else {
                warnings.append(
                    "\(name)=\(text) is not a number from \(range.lowerBound) to \(range.upperBound); ignored")
            }
        }
        number("CODER_PROC_NICE_SCORE", -20...19) { priority.niceIncrement = $0 }
        number("CODER_PROC_OOM_SCORE", -1000...1000) { priority.oomScoreAdjustment = $0 }
        self.priority = priority
    }
}
