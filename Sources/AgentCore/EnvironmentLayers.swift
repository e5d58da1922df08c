/// What this machine and the daemon's flags add to the environment of children, with and without a control plane.
public struct LocalLayer: Sendable {
    /// For USER, LOGNAME, HOME and SHELL where the daemon has none; nil for a user without one.
    public var account: UserAccount?
    /// How this program's own commands find this daemon: they win over the daemon's variables of these names, since it may
    /// have been given flags instead.
    public var settings: [String: String]
    /// A directory that becomes PATH's last entry, whatever PATH the layers make; nil for none. A request that brings a
    /// PATH of its own gets that.
    public var lastOnPath: String?

    public init(account: UserAccount? = nil, settings: [String: String] = [:], lastOnPath: String? = nil) {
        self.account = account
        self.settings = settings
        self.lastOnPath = lastOnPath
    }

    /// Whether an environment has everything that ``account`` would add.
    public static func isComplete(_ environment: [String: String]) -> Bool {
        UserAccount.variableNames.allSatisfy { !environment[$0, default: ""].isEmpty }
    }

    /// The daemon's environment with what is missing there.
    func completing(_ environment: [String: String]) -> [String: String] {
        var result = environment
        for (name, value) in account?.variables ?? [:] where result[name, default: ""].isEmpty { result[name] = value }
        return result.merging(settings) { _, setting in setting }
    }
}

/// What the environment of children takes from the link to the control plane.
public struct AgentLayer: Sendable {
    /// `CODER_AGENT_URL`.
    public var url: String
    /// `CODER_AGENT_TOKEN`: the token last used, whatever it came from; nil when there was none yet.
    /// Called at each start of a program; must not block.
    public var token: @Sendable () -> Secret<String>?
    /// Absolute path of this program, which is git's ssh and askpass command.
    public var executable: String
    /// Put in front of PATH, so that programs that scripts leave there are found; nil for none.
    public var scriptBinDirectory: String?

    public init(
        url: String, token: @escaping @Sendable () -> Secret<String>?, executable: String,
        scriptBinDirectory: String? = nil
    ) {
        self.url = url
        self.token = token
        self.executable = executable
        self.scriptBinDirectory = scriptBinDirectory
    }

    /// What no other layer changes: the program that answers git's questions, and the marks by which start-up files of
    /// shells know a session that came over the network.
    var fixedVariables: [String: String] {
        [
            "GIT_ASKPASS": executable,
            "SSH_CLIENT": "0.0.0.0 0 0",
            "SSH_CONNECTION": "0.0.0.0 0 0.0.0.0 0",
            "CS_DISABLE_GETTING_STARTED_OVERRIDE": "true",
        ]
    }

    /// `GIT_SSH_COMMAND`.
    var gitSSHCommand: String { "\(Self.shellWord(executable)) gitssh --" }

    /// The lowest layer (docs/contracts/control-plane.md#environment-of-every-command).
    func variables(_ manifest: ManifestLayer) -> [String: String] {
        var result = [
            "CODER": "true",
            "CODER_WORKSPACE_NAME": manifest.workspaceName,
            "CODER_WORKSPACE_AGENT_NAME": manifest.agentName,
            "CODER_WORKSPACE_OWNER_NAME": manifest.ownerName,
            "CODER_WORKSPACE_ID": manifest.workspaceID,
            "CODER_AGENT_URL": url,
            "GIT_SSH_COMMAND": gitSSHCommand,
            // Or git would run it twice: the first time to learn what it takes.
            "GIT_SSH_VARIANT": "ssh",
        ]
        if let token = token() { result["CODER_AGENT_TOKEN"] = token.reveal() }
        if !manifest.proxyURI.isEmpty { result["VSCODE_PROXY_URI"] = manifest.proxyURI }
        return result.filter { !$0.value.utf8.contains(0) }
    }

    /// The path as one word of a shell command, since git gives GIT_SSH_COMMAND to a shell.
    static func shellWord(_ path: String) -> String {
        let plain = path.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "/"), UInt8(ascii: "."), UInt8(ascii: "_"),
                UInt8(ascii: "-"), UInt8(ascii: "+"), UInt8(ascii: ","), UInt8(ascii: ":"), UInt8(ascii: "@"):
                true
            default: false
            }
        }
        if plain, !path.isEmpty { return path }
        return "'\(path.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''"))'"
    }
}

/// What the environment of children takes from the manifest.
public struct ManifestLayer: Sendable {
    /// A secret that is to be a variable.
    public struct SecretVariable: Sendable {
        public var name: String
        /// Set as it is, without expansion.
        public var value: Secret<String>

        public init(name: String, value: Secret<String>) {
            self.name = name
            self.value = value
        }
    }

    public var workspaceName: String
    public var agentName: String
    public var ownerName: String
    /// A UUID in lower case; empty when unknown.
    public var workspaceID: String
    /// `VSCODE_PROXY_URI`; empty sets none.
    public var proxyURI: String
    /// `environment_variables`, not yet expanded. Templates put tokens there, so they are kept out of logs
    /// like secrets.
    public var variables: Secret<[String: String]>
    /// A later one of the same name wins.
    public var secrets: [SecretVariable]

    public init(
        workspaceName: String = "", agentName: String = "", ownerName: String = "", workspaceID: String = "",
        proxyURI: String = "", variables: [String: String] = [:], secrets: [SecretVariable] = []
    ) {
        self.workspaceName = workspaceName
        self.agentName = agentName
        self.ownerName = ownerName
        self.workspaceID = workspaceID
        self.proxyURI = proxyURI
        self.variables = Secret(variables)
        self.secrets = secrets
    }
}
