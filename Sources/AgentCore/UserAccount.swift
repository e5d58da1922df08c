import Glibc

/// A user of this machine, as the user database has it (passwd(5), or whatever the name service asks besides).
public struct UserAccount: Sendable, Equatable {
    public var name: String
    /// Absolute; `/` where the database names none.
    public var home: String
    /// As the database has it: empty, or a program that cannot be run, are possible.
    public var shell: String

    public init(name: String, home: String, shell: String) {
        self.name = name
        self.home = home
        self.shell = shell
    }

    /// Bytes of one entry; an entry that needs more is treated as missing.
    static let longestEntry = 1 << 20

    /// The account of a user id. Blocks: the database may be on a network.
    /// - Returns: nil for an id without an entry, as in a container that runs as an arbitrary user, and where the database
    ///   cannot be read.
    public static func find(_ id: uid_t = geteuid()) -> UserAccount? {
        find { entry, buffer, size, found in getpwuid_r(id, entry, buffer, size, found) }
    }

    /// As ``find(_:)`` with a look-up like `getpwuid_r`. It answers "no such user" with 0 and no entry, or with one of
    /// several error numbers (ENOENT and ESRCH among them), and ERANGE when the entry does not fit.
    static func find(
        _ look: (
            UnsafeMutablePointer<passwd>, UnsafeMutablePointer<CChar>, Int,
            UnsafeMutablePointer<UnsafeMutablePointer<passwd>?>
        ) -> CInt
    ) -> UserAccount? {
        var size = 4 << 10
        while size <= longestEntry {
            let (account, code) = withUnsafeTemporaryAllocation(of: CChar.self, capacity: size) {
                area -> (UserAccount?, CInt) in
                guard let buffer = area.baseAddress else { return (nil, ENOMEM) }
                var (entry, found) = (passwd(), UnsafeMutablePointer<passwd>?.none)
                let code = look(&entry, buffer, size, &found)
                // The strings lie in the buffer.
                return (code == 0 ? found.map { UserAccount($0.pointee) } : nil, code)
            }
            switch code {
            case ERANGE: size *= 4
            case EINTR: continue
            default: return account
            }
        }
        return nil
    }

    private init(_ entry: passwd) {
        func text(_ pointer: UnsafeMutablePointer<CChar>?) -> String { pointer.map { String(cString: $0) } ?? "" }
        let home = text(entry.pw_dir)
        self.init(name: text(entry.pw_name), home: home.hasPrefix("/") ? home : "/", shell: text(entry.pw_shell))
    }

    static let variableNames = ["USER", "LOGNAME", "HOME", "SHELL"]

    /// The variables that every login sets: USER, LOGNAME, HOME and SHELL. What the account leaves empty is missing.
    public var variables: [String: String] {
        Dictionary(uniqueKeysWithValues: zip(Self.variableNames, [name, name, home, shell]))
            .filter { !$0.value.isEmpty }
    }
}
