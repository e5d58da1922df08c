import AgentCore

/// The user on whose behalf it runs, and the files at home.
struct BuiltInSSHUser {
    /// The user's name on this machine; empty when there is none.
    let name: String
    /// Empty when there is none.
    let home: String

    init(environment: [String: String]) {
        let account = UserAccount.find()
        name = account?.name ?? environment["USER"] ?? ""
        let home = environment["HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil }
        self.home = home ?? account?.home ?? ""
    }

    func file(_ name: String) -> String { "\(home)/.ssh/\(name)" }

    /// A path with its `~/`. Other abbreviations of OpenSSH are not known.
    func path(_ text: String) throws(BuiltInSSHFailure) -> String {
        guard !text.contains("%"), !text.contains("${") else {
            throw BuiltInSSHFailure(
                "the file name \"\(text)\" has % or ${, which the built-in ssh client does not replace")
        }
        if text.hasPrefix("~/") { return home + text.dropFirst() }
        guard !text.hasPrefix("~") else {
            throw BuiltInSSHFailure("the file name \"\(text)\" begins with ~ and a user; write the path instead")
        }
        return text
    }
}
