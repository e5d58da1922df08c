/// What a person is told when a server refuses the control plane's key.
enum KeyAdvice {
    /// Where accounts of well-known hosts take keys.
    private static let pages = [
        "github.com": "https://github.com/settings/keys",
        "ssh.github.com": "https://github.com/settings/keys",
        "gitlab.com": "https://gitlab.com/-/user_settings/ssh_keys",
        "altssh.gitlab.com": "https://gitlab.com/-/user_settings/ssh_keys",
        "bitbucket.org": "https://bitbucket.org/account/settings/ssh-keys/",
        "altssh.bitbucket.org": "https://bitbucket.org/account/settings/ssh-keys/",
        "codeberg.org": "https://codeberg.org/user/settings/keys",
        "ssh.dev.azure.com": "https://dev.azure.com/_usersSettings/keys",
    ]

    /// The public key and where to add it, a line each.
    /// - Parameters:
    ///   - user: whom git logs in as; nil when that is not known.
    ///   - host: the server's name; nil when that is not known.
    static func lines(publicKey: String, user: String?, host: String?) -> [String] {
        let key = publicKey.split(whereSeparator: \.isNewline).first.map(String.init) ?? ""
        let server = host ?? "the server"
        guard !key.isEmpty else { return ["\(server) does not know the key of the control plane"] }
        let place: String
        if let page = host.flatMap({ pages[$0.lowercased()] }) {
            place = page
        } else {
            place = "your account's SSH keys at \(server), or ~/.ssh/authorized_keys of \(user ?? "the user") there"
        }
        return ["\(server) does not know the key of the control plane; add it to \(place):", key]
    }
}
