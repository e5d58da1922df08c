import AgentCore

/// What the daemon is told about the control plane, as it was written; the link checks it in full.
struct LinkSettings: Sendable {
    var url: String
    var token: Secret<String>?
    var tokenFile: String?
    var auth: String
    var headers: [String]
    var headerCommand: String?
    var caFile: String?

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
            ? (environment["CODER_AGENT_HEADER"] ?? "").split(separator: ",").map(String.init) : options.agentHeader
        headerCommand = value(options.agentHeaderCommand, "CODER_AGENT_HEADER_COMMAND")
        caFile = value(options.agentCaFile, "CODER_AGENT_CA_FILE")
        guard let url = value(options.agentURL, "CODER_AGENT_URL") else {
            // Somebody who gives a flag means to connect; a variable may be left from elsewhere.
            if options.agentToken != nil || options.agentTokenFile != nil {
                throw ConfigurationError("--agent-url is missing: a token alone does not say where to connect")
            }
            return nil
        }
        self.url = url
    }
}
