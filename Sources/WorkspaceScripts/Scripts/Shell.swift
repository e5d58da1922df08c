import AgentCore
import Glibc

/// The user whose workspace this is, from the user database.
package struct LoginUser: Sendable, Equatable {
    package var home: String
    /// Absolute path of the login shell.
    package var shell: String

    package init(home: String, shell: String) {
        self.home = home
        self.shell = shell
    }

    private static let fallbackShell = "/bin/sh"
    /// Shells that refuse to run anything.
    private static let refusing: Set<String> = ["nologin", "false"]

    /// The user that this process runs as.
    /// - Parameters:
    ///   - account: in the user database; nil for a user that has none, whose SHELL counts.
    ///   - environment: whose HOME beats the database's, as everywhere else.
    package init(_ account: UserAccount?, environment: [String: String]) {
        home = account?.home ?? "/"
        if let given = environment["HOME"], given.hasPrefix("/") { home = given }
        shell = Self.usable(account?.shell ?? environment["SHELL"] ?? "")
    }

    /// The shell when it can run commands, else /bin/sh.
    static func usable(_ shell: String) -> String {
        guard shell.hasPrefix("/"), let name = shell.split(separator: "/").last, !refusing.contains(String(name)),
            access(shell, X_OK) == 0
        else { return fallbackShell }
        return shell
    }
}
