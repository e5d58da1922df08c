import AgentCore

/// Decides about the key that a server has shown, and remembers it where that is wanted.
struct BuiltInSSHHostKeyCheck {
    let host: String
    /// nil for an alias.
    let port: UInt16?
    let unknownHosts: SSHArguments.UnknownHosts
    let files: KnownHostsFiles
    let known: KnownHosts
    let messages: BuiltInSSHMessages

    /// Types of the host's known keys.
    var knownTypes: [String] { known.types(of: host, port: port) }

    private var name: String { KnownHosts.name(host, port: port) }

    /// Returns when the connection may go on.
    /// - Throws: ``BuiltInSSHFailure`` that says why not, and what to do.
    func run(_ key: KnownHosts.HostKey, _ fingerprint: String) throws(BuiltInSSHFailure) {
        let type = Self.word(key.type)
        switch known.verdict(on: key, of: host, port: port) {
        case .known: return
        case .revoked(let entry):
            throw BuiltInSSHFailure(
                "the host key of \(name) (\(type) \(fingerprint)) is revoked at \(entry.place); not connecting"
            )
        case .changed(let entry): throw changed(entry, key, fingerprint)
        case .unknown:
            let line = "\(name) \(key.type) \(key.base64)"
            guard unknownHosts == .accept else { throw unknown(line, "\(type) \(fingerprint)") }
            remember(line, "\(type) \(fingerprint)")
        }
    }

    private func changed(
        _ entry: KnownHosts.Entry, _ key: KnownHosts.HostKey, _ fingerprint: String
    ) -> BuiltInSSHFailure {
        let old = entry.key.blob.flatMap { BuiltInSSHLibrary.fingerprint($0) }
        var failure = BuiltInSSHFailure(
            "the host key of \(name) has changed; not connecting, since this may be another machine",
            "it is now \(Self.word(key.type)) \(fingerprint)",
            "known is \(Self.word(entry.key.type)) \(old ?? entry.key.base64) at \(entry.place)",
            "if the new key is right, remove that line and connect again")
        if entry.key.type == "ssh-rsa" {
            failure.lines.append("the built-in ssh client cannot check RSA keys; \(BuiltInSSHFailure.remedy)")
        }
        return failure
    }

    private func unknown(_ line: String, _ key: String) -> BuiltInSSHFailure {
        var failure = BuiltInSSHFailure("the host key of \(name) is not known: \(key)")
        if let file = files.user.first {
            failure.lines.append("if that is the right one, add this line to \(file):")
            failure.lines.append(line)
        }
        failure.lines.append(
            "or let git take new hosts: GIT_SSH_COMMAND=\"$GIT_SSH_COMMAND -o StrictHostKeyChecking=accept-new\" git ..."
        )
        return failure
    }

    private func remember(_ line: String, _ key: String) {
        guard let file = files.user.first else {
            return messages.say("Warning: the host key of \(name) (\(key)) is not known, and not remembered")
        }
        do {
            try KnownHostsFiles.append(line, to: file)
            messages.say("Warning: Permanently added '\(name)' (\(key)) to \(file)")
        } catch {
            messages.say("Warning: the host key of \(name) (\(key)) cannot be remembered: \(error)")
        }
    }

    /// OpenSSH's short word for a type.
    private static func word(_ type: String) -> String {
        switch type {
        case "ssh-ed25519": "ED25519"
        case "ssh-rsa": "RSA"
        default: type.hasPrefix("ecdsa-") ? "ECDSA" : type
        }
    }
}
