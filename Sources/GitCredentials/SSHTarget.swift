import AgentCore
import Glibc

/// What `ssh -G` says of a connection.
struct SSHTarget: Equatable {
    var user: String?
    var host: String?
    var port: String?
    /// Whether ssh reaches the host through another one, and so doesn't know its address.
    var hasProxy = false
    /// The user's identity files, in the order in which ssh tries them. Naming one on the command line drops those that
    /// ssh has by default, so all are to be named.
    var identities: [String] = []

    /// - Parameter home: what `~` stands for; ssh takes the account's directory, not HOME.
    init(_ settings: String, home: String = Self.accountHome(), exists: (String) -> Bool = { access($0, F_OK) == 0 }) {
        for line in settings.split(whereSeparator: \.isNewline) {
            let parts = line.split(separator: " ", maxSplits: 1)
            guard parts.count == 2 else { continue }
            let value = String(parts[1])
            switch parts[0] {
            case "user": user = value
            case "hostname": host = value
            case "port": port = value
            case "proxycommand", "proxyjump": hasProxy = hasProxy || value != "none"
            case "identityfile": if Self.isNamed(value, home, exists) { identities.append(value) }
            default: break
            }
        }
    }

    /// ssh complains of a file that was named and is missing, so the defaults that don't exist are left out. What ssh
    /// replaces (`%h`, `${NAME}`, `~user`) the user has named.
    private static func isNamed(_ file: String, _ home: String, _ exists: (String) -> Bool) -> Bool {
        guard file != "none", !file.contains("\"") else { return false }
        if file.contains("%") || file.contains("${") { return true }
        guard file.hasPrefix("~") else { return exists(file) }
        return file.hasPrefix("~/") ? exists(home + file.dropFirst(1)) : true
    }

    static func accountHome() -> String {
        UserAccount.find(getuid())?.home ?? ""
    }

    // MARK: What ssh says at its end

    // The command on the server may be an ssh, too, so only what this one says of this host counts.

    /// Whether the host has refused every key that it was shown.
    func refusedAllKeys(_ errors: String) -> Bool {
        guard let user, let host, let last = Self.lines(errors).last else { return false }
        return last.hasPrefix("\(user)@\(host): Permission denied (")
    }

    /// Whether the host has ended the connection before all keys were shown (MaxAuthTries); no session has begun then.
    func tookNoMoreKeys(_ errors: String) -> Bool {
        let lines = Self.lines(errors).suffix(2)
        guard lines.count == 2, let last = lines.last, let before = lines.first,
            last.hasPrefix("Disconnected from "), before.hasPrefix("Received disconnect from "),
            before.hasSuffix(":2: Too many authentication failures")
        else { return false }
        let words = before.split(separator: " ")
        guard words.count > 5 else { return false }
        // "Received disconnect from ADDRESS port PORT:2: Too many authentication failures"
        let (address, port) = (String(words[3]), words[5].prefix { $0 != ":" })
        if hasProxy { return address == "UNKNOWN" }
        return port == self.port.map { $0[...] } && Self.addresses(host ?? "").contains(address)
    }

    private static func lines(_ text: String) -> [Substring] { text.split(whereSeparator: \.isNewline) }

    private static func addresses(_ host: String) -> Set<String> {
        var hints = addrinfo()
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(host, nil, &hints, &list) == 0 else { return [] }
        defer { freeaddrinfo(list) }
        var found: Set<String> = []
        for address in sequence(first: list, next: { $0?.pointee.ai_next }) {
            guard let address = address?.pointee else { continue }
            var name = [CChar](repeating: 0, count: Int(NI_MAXHOST))
            let code = getnameinfo(
                address.ai_addr, address.ai_addrlen, &name, socklen_t(name.count), nil, 0, NI_NUMERICHOST)
            if code == 0 {
                found.insert(String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self))
            }
        }
        return found
    }
}
