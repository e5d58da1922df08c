import AgentCore
import ControlPlane

/// The settings about the control plane, as they were written; the link checks it in full.
struct LinkSettings: Sendable {
    var url: String
    var token: Secret<String>?
    var tokenFile: String?
    var auth: String
    var headers: [String]
    var headerCommand: String?
    var caFile: String?

    /// With a token in a file.
    init(url: String, tokenFile: String) {
        (self.url, self.tokenFile) = (url, tokenFile)
        (auth, headers) = ("token", [])
    }

    /// The address for people: without user and password.
    var address: String {
        guard let scheme = url.firstRange(of: "://") else { return url }
        let rest = url[scheme.upperBound...]
        let end = rest.firstIndex { "/?#".contains($0) } ?? rest.endIndex
        guard let at = rest[..<end].lastIndex(of: "@") else { return url }
        return "\(url[..<scheme.upperBound])\(rest[rest.index(after: at)...])"
    }

    /// nil without an address: standalone.
    init?(_ options: LinkOptions, _ environment: [String: String]) throws(ConfigurationError) {
        func value(_ flag: String?, _ name: String) -> String? {
            (flag ?? environment[name]).flatMap { $0.isEmpty ? nil : $0 }
        }
        tokenFile = value(options.agentTokenFile, "CODER_AGENT_TOKEN_FILE")
        token = value(options.agentToken, "CODER_AGENT_TOKEN").map { Secret($0) }
        auth = value(options.auth, "CODER_AGENT_AUTH") ?? "token"
        headers =
            options.agentHeader.isEmpty
            ? HeaderList.parse(environment["CODER_AGENT_HEADER"] ?? "")
            : options.agentHeader.filter { !$0.isEmpty }
        headerCommand = value(options.agentHeaderCommand, "CODER_AGENT_HEADER_COMMAND")
        caFile = value(options.agentCaFile, "CODER_AGENT_CA_FILE")
        guard let url = value(options.agentURL, "CODER_AGENT_URL") else {
            // A flag means to connect; a variable may be left from elsewhere.
            if options.agentToken != nil || options.agentTokenFile != nil {
                throw ConfigurationError("--agent-url is missing: a token alone does not say where to connect")
            }
            return nil
        }
        self.url = url
    }

    /// For the link, which checks it.
    func input(_ environment: [String: String]) -> LinkConfiguration.Input {
        var input = LinkConfiguration.Input()
        input.url = url
        input.token = token
        input.tokenFile = tokenFile
        input.auth = auth
        input.headers = headers
        input.headerCommand = headerCommand
        input.caFile = caFile
        input.agentName = environment["CODER_AGENT_NAME"]
        input.environment = environment
        return input
    }
}
