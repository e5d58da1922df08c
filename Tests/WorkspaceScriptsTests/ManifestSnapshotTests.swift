import AgentCore
import AgentProto
import AgentTestSupport
import FoundationEssentials
import Glibc
import Testing

@testable import WorkspaceScripts

@Suite struct ManifestSnapshotTests {
    static func message(_ change: (inout Coder_Agent_V2_Manifest) -> Void = { _ in }) -> Coder_Agent_V2_Manifest {
        var message = Coder_Agent_V2_Manifest()
        message.agentID = Data(1...16)
        message.workspaceID = Data(17...32)
        message.agentName = "main"
        message.workspaceName = "ws"
        message.ownerUsername = "ann"
        message.environmentVariables = ["TOKEN": "hush-variable"]
        var script = Coder_Agent_V2_WorkspaceAgentScript()
        script.script = "echo hush-script"
        message.scripts = [script]
        var secret = Coder_Agent_V2_WorkspaceSecret()
        secret.envName = "API_KEY"
        secret.filePath = "~/key"
        secret.value = Data("hush-secret".utf8)
        message.secrets = [secret]
        change(&message)
        return message
    }

    private func receive(
        _ change: (inout Coder_Agent_V2_Manifest) -> Void = { _ in }
    ) throws -> (manifest: ManifestSnapshot, secrets: [WorkspaceSecretValue]) {
        try ManifestSnapshot.receive(Self.message(change), home: "/home/ann", environment: ["P": "proj", "R": "/root"])
    }

    @Test func secretsGoTheirOwnWay() throws {
        let (manifest, secrets) = try receive()
        #expect(manifest.message.secrets.isEmpty)
        #expect(secrets.map(\.envName) == ["API_KEY"])
        #expect(secrets.map(\.filePath) == ["~/key"])
        #expect(secrets.first?.value.reveal() == Array("hush-secret".utf8))
    }

    @Test func nothingPrintsAValue() throws {
        let (manifest, secrets) = try receive()
        var dumped = ""
        dump(manifest, to: &dumped)
        dump(secrets, to: &dumped)
        dump(manifest.scripts, to: &dumped)
        let encoded = String(decoding: try JSONEncoder().encode(secrets), as: UTF8.self)
        let report = String(decoding: try ManifestReport(manifest).json(), as: UTF8.self)
        let layer = manifest.environment(secrets: secrets.variables().variables)
        for text in [
            "\(manifest)", String(reflecting: manifest), "\(secrets)", String(reflecting: secrets), dumped, encoded,
            "\(layer)", String(reflecting: manifest.scripts),
        ] {
            #expect(!text.contains("hush"))
        }
        #expect(!report.contains("hush-variable") && !report.contains("hush-secret"))
        #expect(report.contains(#""environment_variables":{"TOKEN":"***REDACTED***"}"#))
    }

    @Test(arguments: [[], Array(repeating: UInt8(0), count: 16), Array(repeating: 1, count: 15)] as [[UInt8]])
    func refusesAnAgentThatIsNone(_ id: [UInt8]) {
        #expect(throws: ManifestError.self) { _ = try receive { $0.agentID = Data(id) } }
    }

    @Test func aParentMakesASubAgent() throws {
        #expect(try receive().manifest.isSubAgent == false)
        #expect(try receive { $0.parentID = Data(33...48) }.manifest.isSubAgent)
        #expect(throws: ManifestError.self) { _ = try receive { $0.parentID = Data(33...40) } }
    }

    @Test(arguments: [
        ("", "/home/ann"), ("~", "/home/ann"), ("~/", "/home/ann"), ("~/a", "/home/ann/a"), ("a/b", "/home/ann/a/b"),
        ("/abs", "/abs"), ("$R/x", "/root/x"), ("~/$P", "/home/ann/proj"), ("${P}", "/home/ann/proj"),
        ("~other/x", "/home/ann/~other/x"), ("$NONE", "/home/ann"), ("~//a", "/home/ann/a"),
    ])
    func expandsTheDirectory(_ directory: String, _ expanded: String) throws {
        #expect(try receive { $0.directory = directory }.manifest.directory == expanded)
    }

    @Test func givesTheEnvironmentItsLayer() throws {
        let (manifest, secrets) = try receive()
        let (variables, warnings) = secrets.variables()
        #expect(warnings.isEmpty)
        let builder = EnvironmentBuilder(
            base: [:], agent: AgentLayer(url: "u", token: { nil }, executable: "/x"))
        builder.update(manifest.environment(secrets: variables))
        let built = builder.build()
        #expect(built["API_KEY"] == "hush-secret")
        #expect(built["CODER_WORKSPACE_ID"] == "11121314-1516-1718-191a-1b1c1d1e1f20")
    }

    @Test func secretsThatNoVariableCanHoldAreNamed() {
        let secrets = [
            WorkspaceSecretValue(envName: "BINARY", filePath: "", value: Secret([0xff])),
            WorkspaceSecretValue(envName: "NUL", filePath: "", value: Secret([0x68, 0])),
            WorkspaceSecretValue(envName: "A=B", filePath: "", value: Secret([0x68])),
            WorkspaceSecretValue(envName: "", filePath: "/x", value: Secret([0x68])),
            WorkspaceSecretValue(envName: "EMPTY", filePath: "", value: Secret([])),
        ]
        let (variables, warnings) = secrets.variables()
        #expect(variables.map(\.name) == ["EMPTY"])
        #expect(warnings.count == 3)
    }
}

@Suite struct SecretFilesTests {
    private let directory: TemporaryDirectory
    private var home: String { directory.path }

    init() throws { directory = try TemporaryDirectory() }

    private func write(_ path: String, _ value: String = "hush") -> [String] {
        SecretFiles(home: home).write([
            WorkspaceSecretValue(envName: "", filePath: path, value: Secret(Array(value.utf8)))
        ])
    }

    private func mode(_ path: String) -> mode_t? {
        var info = stat()
        return lstat(path, &info) == 0 ? info.st_mode & 0o7777 : nil
    }

    @Test func writesUnderHomeWithPrivateModes() {
        #expect(write("~/a/b/key") == [])
        #expect(readTextFile("\(home)/a/b/key") == "hush")
        #expect(mode("\(home)/a/b/key") == 0o600)
        #expect(mode("\(home)/a") == 0o700)
        #expect(mode("\(home)/a/b") == 0o700)
        #expect(write("relative") == [])
        #expect(readTextFile("\(home)/relative") == "hush")
        #expect(write("\(home)/absolute", "") == [])
        #expect(readTextFile("\(home)/absolute") == "")
    }

    @Test func anExistingFileKeepsItsMode() {
        #expect(write("~/key", "old and longer") == [])
        chmod("\(home)/key", 0o640)
        #expect(write("~/key", "new") == [])
        #expect(readTextFile("\(home)/key") == "new")
        #expect(mode("\(home)/key") == 0o640)
        #expect(directoryEntries(home) == ["key"])
    }

    @Test func aLinkIsReplacedNotFollowed() {
        #expect(write("~/target", "untouched") == [])
        chmod("\(home)/target", 0o644)
        symlink("\(home)/target", "\(home)/link")
        #expect(write("~/link", "secret") == [])
        #expect(readTextFile("\(home)/target") == "untouched")
        #expect(readTextFile("\(home)/link") == "secret")
        #expect(mode("\(home)/link") == 0o600)
    }

    @Test func failuresNameThePathAndNotTheValue() {
        mkdir("\(home)/directory", 0o700)
        _ = write("~/file", "x")
        for path in ["~/directory", "~/file/below", "~/nul\0", "~/directory/", "/proc/no/file"] {
            let warnings = write(path)
            #expect(warnings.count == 1, "\(path)")
            #expect(!"\(warnings)".contains("hush"))
        }
        #expect(directoryEntries(home).sorted() == ["directory", "file"])
        #expect(directoryEntries("\(home)/directory").isEmpty)
    }

    /// A path is no place for variables: a name with `$` is that name.
    @Test func aDollarInAPathIsADollar() {
        for path in ["~/a$HOME/${HOME}/key", "$HOME/key", "~/$"] { #expect(write(path, "hush").isEmpty) }
        #expect(readTextFile("\(home)/a$HOME/${HOME}/key") == "hush")
        #expect(readTextFile("\(home)/$HOME/key") == "hush")
        #expect(readTextFile("\(home)/$") == "hush")
        #expect(directoryEntries(home).sorted() == ["$", "$HOME", "a$HOME"])
    }

    @Test func oneFailureDoesNotKeepTheOthers() {
        let warnings = SecretFiles(home: home).write([
            WorkspaceSecretValue(envName: "", filePath: "/proc/no", value: Secret([0x68])),
            WorkspaceSecretValue(envName: "ONLY_ENV", filePath: "", value: Secret([0x68])),
            WorkspaceSecretValue(envName: "", filePath: "~/ok", value: Secret([0x68])),
        ])
        #expect(warnings.count == 1)
        #expect(readTextFile("\(home)/ok") == "h")
    }
}
