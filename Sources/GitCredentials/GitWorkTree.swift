import AgentCore

/// The work tree that git runs in, as the control plane wants to know it.
package struct GitWorkTree: Sendable {
    /// nil on no branch.
    package var branch: String?
    /// The URL of the remote `origin`, without a login; nil when it has none.
    package var remoteOrigin: String?

    /// Asks git, which is told by this process's environment where it works.
    /// - Parameter environment: its PATH is searched.
    /// - Returns: nil when there is no git on PATH.
    package init?(environment: [String: String]) {
        let path = environment["PATH"] ?? EnvironmentBuilder.defaultPath
        guard let git = findExecutable("git", in: path.split(separator: ":").map(String.init)) else { return nil }
        func ask(_ arguments: String...) -> String? {
            let text = CapturedProgram.output(of: git, arguments)
            return text?.split(separator: "\n").first.map(String.init)
        }
        branch = ask("rev-parse", "--abbrev-ref", "HEAD").flatMap { $0 == "HEAD" ? nil : $0 }
        remoteOrigin = ask("config", "--get", "remote.origin.url").map(Self.withoutLogin)
    }

    /// `https://user:password@host/path` without user and password, either of which may be a token.
    static func withoutLogin(_ url: String) -> String {
        guard let scheme = url.firstRange(of: "://") else { return url }
        let rest = url[scheme.upperBound...]
        guard let at = rest.prefix(while: { $0 != "/" }).lastIndex(of: "@") else { return url }
        return "\(url[..<scheme.upperBound])\(rest[rest.index(after: at)...])"
    }
}
