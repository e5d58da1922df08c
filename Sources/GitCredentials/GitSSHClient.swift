/// The ssh client that git has in the workspace, the first that is there.
package enum GitSSHClient: Sendable, Equatable {
    /// OpenSSH's.
    case openSSH(path: String)
    /// The built-in one.
    case libssh2(version: String)
    /// git has no ssh.
    case none(reason: String)

    /// Looks for it, and loads libssh2 for the life of the process where there is no `ssh`.
    /// - Parameter environment: whose PATH is searched.
    package static func find(environment: [String: String]) -> GitSSHClient {
        if let client = OpenSSH(environment: environment) { return .openSSH(path: client.program) }
        do {
            return .libssh2(version: try BuiltInSSHLibrary().version)
        } catch {
            return .none(reason: error.lines.joined(separator: "; "))
        }
    }
}
