import Glibc

/// The user whose workspace this is, from the passwd database.
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

    /// The user that this process runs as. Blocks: the database may be on a network.
    /// - Parameter environment: whose HOME beats the database's, as everywhere else.
    package static func current(environment: [String: String]) -> LoginUser {
        var (home, shell) = ("/", "")
        var entry = passwd()
        var found: UnsafeMutablePointer<passwd>?
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16 << 10) { area in
            guard let buffer = area.baseAddress, getpwuid_r(geteuid(), &entry, buffer, area.count, &found) == 0,
                found != nil
            else { return }
            if let text = entry.pw_dir { home = String(cString: text) }
            if let text = entry.pw_shell { shell = String(cString: text) }
        }
        if let given = environment["HOME"], given.hasPrefix("/") { home = given }
        return LoginUser(home: home, shell: usable(shell))
    }

    /// The shell when it can run commands, else /bin/sh.
    static func usable(_ shell: String) -> String {
        guard shell.hasPrefix("/"), let name = shell.split(separator: "/").last, !refusing.contains(String(name)),
            access(shell, X_OK) == 0
        else { return fallbackShell }
        return shell
    }
}
