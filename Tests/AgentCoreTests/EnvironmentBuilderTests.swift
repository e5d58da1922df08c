import AgentTestSupport
import FoundationEssentials
import Glibc
import Logging
import Testing

@testable import AgentCore

@Suite struct EnvironmentBuilderTests {
    private static let base = [
        "A": "base", "B": "base", "HOME": "/home/me", "PATH": "/bin", "CODER": "stale", "CODER_AGENT_TOKEN": "stale",
        "CODER_WORKSPACE_NAME": "stale", "GIT_ASKPASS": "stale", "NOTIFY_SOCKET": "/x", "VSCODE_PROXY_URI": "stale",
    ]

    private func builder(token: String? = "t0ken", bin: String? = "/state/bin", logger: Logger? = nil)
        -> EnvironmentBuilder
    {
        EnvironmentBuilder(
            base: Self.base,
            agent: AgentLayer(
                url: "https://c.example", token: { token.map { Secret($0) } }, executable: "/opt/agent",
                scriptBinDirectory: bin), logger: logger)
    }

    @Test func theKindOfSSHIsOfOurCommandAlone() {
        let agent = AgentLayer(url: "https://c.example", token: { nil }, executable: "/opt/agent")
        let builder = EnvironmentBuilder(base: [:], agent: agent)
        builder.update(ManifestLayer())
        #expect(builder.build()["GIT_SSH_VARIANT"] == "ssh")
        #expect(builder.build(request: ["GIT_SSH_COMMAND": "plink"])["GIT_SSH_VARIANT"] == nil)
        let both = ["GIT_SSH_COMMAND": "mine", "GIT_SSH_VARIANT": "ssh"]
        #expect(builder.build(request: both)["GIT_SSH_VARIANT"] == "ssh")
    }

    @Test func standaloneLayersInOrder() throws {
        let builder = EnvironmentBuilder(base: [
            "A": "base", "B": "base", "CODER_CHAT_ID": "stale", "CODER_PROC_PRIO_MGMT": "1",
            "CODER_PROC_NICE_SCORE": "1", "CODER_PROC_": "1", "CODER_PROC_ANYTHING": "1",
            "CODER_PROC_OOM_SCORE": "1", "NOTIFY_SOCKET": "/x", "LISTEN_FDS": "1", "PATH": "/bin",
        ])
        let chat = ChatIdentity(id: try #require(UUID(uuidString: "6BA7B810-9DAD-11D1-80B4-00C04FD430C8")))
        let built = builder.build(request: ["B": "request", "CODER_CHAT_ID": "forged"], chat: chat)
        #expect(
            built == [
                "A": "base", "B": "request", "PATH": "/bin", "CODER_CHAT_ID": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            ])
    }

    /// The daemon reads them from its own environment; a caller may set one for a program of its own.
    @Test func settingsOfTheDaemonComeFromNoLayerButTheRequest() {
        let builder = builder()
        builder.update(
            ManifestLayer(
                variables: ["CODER_PROC_PRIO_MGMT": "1", "CODER_PROCESS": "kept"],
                secrets: [.init(name: "CODER_PROC_X", value: Secret("1"))]))
        #expect(builder.build().keys.filter { $0.hasPrefix("CODER_PROC") } == ["CODER_PROCESS"])
        #expect(builder.build(request: ["CODER_PROC_X": "2"])["CODER_PROC_X"] == "2")
    }

    @Test func everyLayerBeatsTheOnesBelow() throws {
        let builder = builder()
        builder.update(
            ManifestLayer(
                workspaceName: "ws", agentName: "main", ownerName: "ann", workspaceID: "id", proxyURI: "https://p",
                variables: [
                    "B": "manifest", "FROM_HOME": "${HOME}/x:$A", "CODER": "manifest", "PATH": "/opt:$PATH",
                    "S": "manifest", "GIT_ASKPASS": "manifest", "R": "manifest", "SELF": "$B",
                ],
                secrets: [
                    .init(name: "S", value: Secret("raw $A")), .init(name: "R", value: Secret("secret")),
                    .init(name: "CODER_CHAT_ID", value: Secret("secret")),
                ]))
        let chat = ChatIdentity(id: try #require(UUID(uuidString: "6BA7B810-9DAD-11D1-80B4-00C04FD430C8")))
        let built = builder.build(request: ["R": "request"], chat: chat)
        #expect(
            built == [
                "CODER": "manifest", "CODER_WORKSPACE_NAME": "ws", "CODER_WORKSPACE_AGENT_NAME": "main",
                "CODER_WORKSPACE_OWNER_NAME": "ann", "CODER_WORKSPACE_ID": "id", "CODER_AGENT_TOKEN": "t0ken",
                "CODER_AGENT_URL": "https://c.example", "GIT_SSH_COMMAND": "/opt/agent gitssh --",
                "GIT_SSH_VARIANT": "ssh",
                "VSCODE_PROXY_URI": "https://p", "A": "base", "B": "manifest", "HOME": "/home/me",
                "FROM_HOME": "/home/me/x:base", "S": "raw $A", "GIT_ASKPASS": "/opt/agent",
                "SSH_CLIENT": "0.0.0.0 0 0", "SSH_CONNECTION": "0.0.0.0 0 0.0.0.0 0",
                "CS_DISABLE_GETTING_STARTED_OVERRIDE": "true",
                "PATH": "/state/bin:/opt:/bin", "R": "request", "SELF": "base",
                "CODER_CHAT_ID": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            ])
    }

    /// A daemon that init started, without a login: children still get what every login has.
    @Test func theUserDatabaseFillsWhatTheDaemonLacks() {
        let account = UserAccount(name: "ann", home: "/home/ann", shell: "/bin/zsh")
        func built(_ base: [String: String]) -> [String: String] {
            EnvironmentBuilder(base: base, local: LocalLayer(account: account)).build()
        }
        let all = ["USER": "ann", "LOGNAME": "ann", "HOME": "/home/ann", "SHELL": "/bin/zsh"]
        #expect(built([:]) == all)
        #expect(built(["USER": "", "SHELL": ""]) == all)
        let own = ["USER": "me", "LOGNAME": "you", "HOME": "/h", "SHELL": "/bin/sh"]
        #expect(built(own) == own)
        #expect(built(["HOME": "/h"])["USER"] == "ann")
        #expect(!LocalLayer.isComplete(["USER": "me", "LOGNAME": "you", "HOME": "/h", "SHELL": ""]))
        #expect(LocalLayer.isComplete(own))
        // A user that the database does not know.
        #expect(EnvironmentBuilder(base: ["A": "1"]).build() == ["A": "1"])
    }

    @Test func theLastEntryOfPathIsOursWhateverPathTheLayersMake() {
        func path(_ base: [String: String], manifest: [String: String]? = nil, request: [String: String] = [:])
            -> String?
        {
            let agent = AgentLayer(
                url: "https://c.example", token: { nil }, executable: "/opt/agent", scriptBinDirectory: "/s")
            let builder = EnvironmentBuilder(
                base: base, local: LocalLayer(lastOnPath: "/state/bin"), agent: manifest == nil ? nil : agent)
            if let manifest { builder.update(ManifestLayer(variables: manifest)) }
            return builder.build(request: request)["PATH"]
        }
        #expect(path(["PATH": "/bin"]) == "/bin:/state/bin")
        #expect(path(["PATH": ""]) == "/state/bin")
        #expect(path([:]) == "\(EnvironmentBuilder.defaultPath):/state/bin")
        #expect(path(["PATH": "/bin"], manifest: [:]) == "/s:/bin:/state/bin")
        #expect(path(["PATH": "/bin"], manifest: ["PATH": "/m:$PATH"]) == "/s:/m:/bin:/state/bin")
        #expect(path(["PATH": "/bin"], manifest: ["PATH": "/m"]) == "/s:/m:/state/bin")
        #expect(path(["PATH": "/bin"], manifest: [:], request: ["PATH": "/r"]) == "/r", "a request's own is its own")
    }

    /// What the daemon was given by flags beats its variables, and a manifest beats both.
    @Test func settingsOfTheDaemonReachChildren() {
        let local = LocalLayer(settings: ["CODER_AGENT_SOCKET_PATH": "/flag", "CODER_AGENT_CA_FILE": "/ca"])
        let base = ["CODER_AGENT_SOCKET_PATH": "/variable"]
        #expect(EnvironmentBuilder(base: base, local: local).build() == local.settings)
        let agent = AgentLayer(url: "https://c.example", token: { nil }, executable: "/opt/agent")
        let builder = EnvironmentBuilder(base: base, local: local, agent: agent)
        #expect(builder.build() == local.settings, "also before the manifest")
        builder.update(ManifestLayer(variables: ["CODER_AGENT_CA_FILE": "/manifest"]))
        #expect(builder.build()["CODER_AGENT_SOCKET_PATH"] == "/flag")
        #expect(builder.build()["CODER_AGENT_CA_FILE"] == "/manifest")
    }

    @Test func whatIsNotGivenStaysTheDaemons() {
        let builder = builder(token: nil, bin: nil)
        builder.update(ManifestLayer())
        let built = builder.build()
        #expect(built["VSCODE_PROXY_URI"] == "stale")
        #expect(built["CODER_AGENT_TOKEN"] == "stale")
        #expect(built["CODER_WORKSPACE_NAME"] == "")
        #expect(built["PATH"] == "/bin")
    }

    @Test func plainAndOneWarningBeforeTheManifest() {
        let log = LogLines()
        let builder = builder(logger: log.logger)
        #expect(builder.build(request: ["X": "1"])["CODER_WORKSPACE_NAME"] == "stale")
        #expect(builder.build()["NOTIFY_SOCKET"] == nil)
        #expect(log.lines.count == 1)
        builder.update(ManifestLayer(workspaceName: "ws"))
        #expect(builder.build()["CODER_WORKSPACE_NAME"] == "ws")
        #expect(log.lines.count == 1)
    }

    @Test func impossibleEntriesAreLeftOutAndNamedWithoutTheirValues() {
        let log = LogLines()
        let builder = builder(logger: log.logger)
        builder.update(
            ManifestLayer(
                variables: ["": "hush", "A=B": "hush", "N": "hu\0sh", "OK": "fine"],
                secrets: [.init(name: "S\0", value: Secret("hush")), .init(name: "T", value: Secret("hush"))]))
        let built = builder.build()
        #expect(built["OK"] == "fine")
        #expect(built["T"] == "hush")
        #expect(built["N"] == nil && built["A=B"] == nil && built[""] == nil && built["S\0"] == nil)
        #expect(log.lines.count == 4)
        #expect(!log.lines.contains { $0.contains("hush") })
    }

    @Test(arguments: [
        ("", ""), ("plain", "plain"), ("$A", "1"), ("${A}", "1"), ("$AB", "2"), ("${A}B", "1B"), ("$A$A", "11"),
        ("$UNKNOWN.", "."), ("$", "$"), ("$$A", "$1"), ("${", "${"), ("${A", "${A"), ("${}", "${}"), ("$1", "$1"),
        ("${A B}", "${A B}"), ("a$Aé", "a1é"), ("\\$A", "\\1"), ("$É", "$É"),
    ])
    func expands(_ text: String, _ expected: String) {
        #expect(EnvironmentBuilder.expand(text) { ["A": "1", "AB": "2"][$0] } == expected)
    }

    @Test(arguments: [("/opt/agent", "/opt/agent"), ("/a b", "'/a b'"), ("/it's", "'/it'\\''s'"), ("", "''")])
    func quotesForTheShell(_ path: String, _ word: String) { #expect(AgentLayer.shellWord(path) == word) }

    @Test func layersDoNotShowValues() {
        let layer = ManifestLayer(
            variables: ["V": "hush"], secrets: [.init(name: "S", value: Secret("hush"))])
        #expect(!"\(layer)".contains("hush"))
        #expect(!String(reflecting: layer).contains("hush"))
        var dumped = ""
        dump(layer, to: &dumped)
        #expect(!dumped.contains("hush"))
    }

    /// The kernel starts no program with a longer one, so that every script would fail.
    @Test func tooLongVariablesAreLeftOutAndNamedWithoutTheirValues() throws {
        let log = LogLines()
        let builder = builder(logger: log.logger)
        func value(_ name: String, _ more: Int) -> String {
            String(repeating: "h", count: EnvironmentBuilder.maximumVariable - name.utf8.count + more)
        }
        builder.update(
            ManifestLayer(
                variables: [
                    "BELOW": value("BELOW", -1), "AT": value("AT", 0), "ABOVE": value("ABOVE", 1),
                    // Short as it is written, too long once it is expanded.
                    "EXPANDED": value("EXPANDED", -10) + "$HOME$HOME",
                ],
                secrets: [
                    .init(name: "S_AT", value: Secret(value("S_AT", 0))),
                    .init(name: "S_ABOVE", value: Secret(value("S_ABOVE", 1))),
                ]))
        #expect(log.lines.count == 2)
        let built = builder.build()
        #expect(built["BELOW"] != nil && built["AT"] != nil && built["S_AT"] != nil)
        #expect(built["ABOVE"] == nil && built["S_ABOVE"] == nil && built["EXPANDED"] == nil)
        for name in ["ABOVE", "S_ABOVE", "EXPANDED"] {
            #expect(log.lines.contains { $0.contains("too long") && $0.contains(name) }, "\(name)")
        }
        #expect(!log.lines.contains { $0.contains("hhhh") })
        // The kernel agrees.
        let longest = ["AT": value("AT", 0)]
        #expect(try CommandResult.of(["/bin/true"], environment: longest).code == 0)
        #expect(throws: (any Error).self) {
            try CommandResult.of(["/bin/true"], environment: ["ABOVE": value("ABOVE", 1)])
        }
    }

    @Test func readsThisProcess() {
        setenv("WORKSPACE_AGENT_TEST", "a=b", 1)
        #expect(EnvironmentBuilder.current()["WORKSPACE_AGENT_TEST"] == "a=b")
    }
}
