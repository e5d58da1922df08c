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
        let entry = database()
        var home = entry?.home ?? "/"
        if let given = environment["HOME"], given.hasPrefix("/") { home = given }
        return LoginUser(home: home, shell: usable(entry?.shell ?? ""))
    }

    /// The login shell as the passwd database has it, whether it can be used or not; nil without an entry. Blocks.
    package static func namedShell() -> String? { database()?.shell }

    private static func database() -> (home: String, shell: String)? {
        var entry = passwd()
        var found: UnsafeMutablePointer<passwd>?
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16 << 10) { area in
            guard let buffer = area.baseAddress, getpwuid_r(geteuid(), &entry, buffer, area.count, &found) == 0,
                found != nil
            else { return nil }
            return (
                entry.pw_dir.map { String(cString: $0) } ?? "/", entry.pw_shell.map { String(cString: $0) } ?? ""
            )
        }
    }

    /// The shell when it can run commands, else /bin/sh.
    static func usable(_ shell: String) -> String {
        guard shell.hasPrefix("/"), let name = shell.split(separator: "/").last, !refusing.contains(String(name)),
            access(shell, X_OK) == 0
        else { return fallbackShell }
        return shell
    }
}
