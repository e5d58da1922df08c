import CPlatform
import Glibc
import Logging
import Synchronization

/// Builds the environment of every program that the daemon starts. There is one builder, so that a
/// variable means the same in a process, a script and a metadata command
/// (docs/contracts/control-plane.md#environment-of-every-command).
///
/// Without an ``AgentLayer`` (standalone) it gives the daemon's own environment, completed by the ``LocalLayer``. With one
/// it needs the manifest, which ``update(_:)`` brings; until then children get the daemon's own environment, and one
/// warning says so.
public final class EnvironmentBuilder: Sendable {
    /// systemd's descriptors and watchdog, which name our pid and mean nothing, or harm, in a child.
    public static let daemonOnly: Set<String> = [
        "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID",
        "INVOCATION_ID", "JOURNAL_STREAM",
    ]
    /// What the names of the variables begin with that steer how the daemon starts children
    /// (docs/contracts/process-api.md#priority). Children get none, unless a request sets it.
    public static let settingPrefix = "CODER_PROC_"
    /// Names the chat of the request that started a process.
    public static let chatVariable = "CODER_CHAT_ID"
    /// What a PATH is put in front of when there is none.
    public static let defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    /// Bytes of a variable's name and value together. A longer one is left out with a warning: Linux
    /// starts no program with it (MAX_ARG_STRLEN, 128 KiB with `=` and the end).
    public static let maximumVariable = 131_070

    private struct State {
        var manifest: ManifestLayer?
        var warned = false
    }

    private let base: [String: String]
    private let lastOnPath: String?
    private let agent: AgentLayer?
    private let logger: Logger
    private let state = Mutex(State())

    /// - Parameters:
    ///   - base: the daemon's own environment; ``daemonOnly`` names and its settings are left out.
    ///   - local: what this machine and the daemon's flags add to it.
    ///   - agent: nil without a control plane.
    ///   - logger: gets the warnings; never a value.
    public init(
        base: [String: String], local: LocalLayer = LocalLayer(), agent: AgentLayer? = nil, logger: Logger? = nil
    ) {
        let own = base.filter { !Self.daemonOnly.contains($0.key) && !Self.isSetting($0.key) }
        self.base = local.completing(own)
        lastOnPath = local.lastOnPath
        self.agent = agent
        self.logger = logger ?? Logger(label: "environment") { _ in SwiftLogNoOpLogHandler() }
    }

    /// A manifest came; it holds for every program that starts from now on. Entries that no
    /// environment can hold are left out with a warning that names them.
    public func update(_ manifest: ManifestLayer) {
        var manifest = manifest
        let variables = manifest.variables.reveal().filter { name, value in
            accept(name, value, "the manifest's environment_variables")
        }
        manifest.variables = Secret(variables)
        manifest.secrets = manifest.secrets.filter { accept($0.name, $0.value.reveal(), "a secret's env_name") }
        state.withLock { $0.manifest = manifest }
    }

    /// The environment, lowest to highest: the agent's own variables, the daemon's for other names, the
    /// manifest's, secrets, GIT_ASKPASS and its like, our directories in PATH, the request's, `CODER_CHAT_ID`.
    public func build(request: [String: String] = [:], chat: ChatIdentity? = nil) -> [String: String] {
        var result = workspace()
        if let lastOnPath {
            let path = result["PATH"] ?? Self.defaultPath
            result["PATH"] = path.isEmpty ? lastOnPath : "\(path):\(lastOnPath)"
        }
        result.merge(request) { _, new in new }
        // Of our own command; git finds out itself what another one is.
        if let agent, result["GIT_SSH_COMMAND"] != agent.gitSSHCommand, request["GIT_SSH_VARIANT"] == nil,
            base["GIT_SSH_VARIANT"] == nil, result["GIT_SSH_VARIANT"] == "ssh"
        {
            result["GIT_SSH_VARIANT"] = nil
        }
        if let chat { result[Self.chatVariable] = chat.id.lowercased }
        return result
    }

    private func workspace() -> [String: String] {
        guard let agent else { return base }
        let (manifest, warn) = state.withLock { state in
            defer { if state.manifest == nil { state.warned = true } }
            return (state.manifest, state.manifest == nil && !state.warned)
        }
        guard let manifest else {
            if warn {
                logger.warning(
                    "no manifest yet: programs get the daemon's plain environment, without the workspace's variables")
            }
            return base
        }
        var result = agent.variables(manifest)
        // The names above are the control plane's to set, whatever the daemon was started with.
        result.merge(base) { agents, _ in agents }
        let below = result
        for (name, value) in manifest.variables.reveal() where !Self.isSetting(name) {
            let expanded = Self.expand(value) { below[$0] }
            if accept(name, expanded, "the manifest's environment_variables, expanded") { result[name] = expanded }
        }
        for secret in manifest.secrets where !Self.isSetting(secret.name) {
            result[secret.name] = secret.value.reveal()
        }
        result.merge(agent.fixedVariables) { _, fixed in fixed }
        if let directory = agent.scriptBinDirectory {
            let path = result["PATH"] ?? Self.defaultPath
            result["PATH"] = path.isEmpty ? directory : "\(directory):\(path)"
        }
        return result
    }

    private static func isSetting(_ name: String) -> Bool { name.hasPrefix(settingPrefix) }

    private func accept(_ name: String, _ value: String, _ origin: String) -> Bool {
        guard name.utf8.count + value.utf8.count <= Self.maximumVariable else {
            logger.warning(
                "a variable is too long and is left out: the kernel takes 128 KiB, name included",
                metadata: ["variable": "\(name.prefix(100))", "from": "\(origin)"])
            return false
        }
        guard Self.isValid(name: name), !value.utf8.contains(0) else {
            logger.warning(
                "a variable cannot be set: names hold neither '=' nor NUL and aren't empty, values hold no NUL",
                metadata: ["variable": "\(name)", "from": "\(origin)"])
            return false
        }
        return true
    }

    /// Whether an environment can hold the name.
    public static func isValid(name: String) -> Bool {
        !name.isEmpty && !name.utf8.contains { $0 == 0 || $0 == UInt8(ascii: "=") }
    }

    /// Replaces `$NAME` and `${NAME}`; an unknown name becomes nothing. Any other `$` stays as it is.
    public static func expand(_ text: String, _ value: (String) -> String?) -> String {
        guard text.utf8.contains(UInt8(ascii: "$")) else { return text }
        let bytes = Array(text.utf8)
        var result: [UInt8] = []
        var index = 0
        while index < bytes.count {
            guard bytes[index] == UInt8(ascii: "$"), let (name, end) = reference(bytes, index + 1) else {
                result.append(bytes[index])
                index += 1
                continue
            }
            result += Array((value(name) ?? "").utf8)
            index = end
        }
        return String(decoding: result, as: UTF8.self)
    }

    /// The name that begins behind a `$`, and where the text goes on.
    private static func reference(_ bytes: [UInt8], _ start: Int) -> (name: String, end: Int)? {
        let isBraced = start < bytes.count && bytes[start] == UInt8(ascii: "{")
        let first = isBraced ? start + 1 : start
        var end = first
        while end < bytes.count, isNameByte(bytes[end], isFirst: end == first) { end += 1 }
        guard end > first else { return nil }
        if isBraced, end >= bytes.count || bytes[end] != UInt8(ascii: "}") { return nil }
        return (String(decoding: bytes[first..<end], as: UTF8.self), isBraced ? end + 1 : end)
    }

    private static func isNameByte(_ byte: UInt8, isFirst: Bool) -> Bool {
        switch byte {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "_"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"): !isFirst
        default: false
        }
    }

    /// This process's environment. Entries that are not UTF-8 or have no `=` are left out.
    public static func current() -> [String: String] {
        var result: [String: String] = [:]
        guard var entry = wa_environ() else { return result }
        while let text = entry.pointee {
            if let pair = String(validatingCString: text), let equals = pair.firstIndex(of: "=") {
                result[String(pair[..<equals])] = String(pair[pair.index(after: equals)...])
            }
            entry += 1
        }
        return result
    }
}
