import AgentCore

/// Which proxy leads to which host: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, in upper or lower
/// case.
package struct ProxySettings: Sendable {
    private var secure: ServerAddress?
    private var plain: ServerAddress?
    private var exceptions: [Exception] = []

    private enum Exception {
        case all
        case block(IPPrefix, port: Int?)
        /// The name itself (unless `subdomainsOnly`) and all below it.
        case name(String, subdomainsOnly: Bool, port: Int?)
    }

    /// No proxy at all.
    package init() {}

    /// - Throws: ``ControlPlaneError`` `.configuration` for a proxy that is no `http` URL.
    package init(environment: [String: String]) throws(ControlPlaneError) {
        func variable(_ name: String) -> (name: String, value: String)? {
            for name in [name, name.lowercased()] {
                if let value = environment[name], !value.isEmpty { return (name, value) }
            }
            return nil
        }
        func proxy(_ name: String) throws(ControlPlaneError) -> ServerAddress? {
            guard let (name, value) = variable(name) else { return nil }
            let address = try ServerAddress(value, what: name, defaultScheme: "http")
            guard !address.isSecure else {
                throw ControlPlaneError(
                    .configuration,
                    "\(name): \(address): proxies are reached over http:// only (TLS to the control "
                        + "plane goes through them)")
            }
            return address
        }
        secure = try proxy("HTTPS_PROXY")
        plain = try proxy("HTTP_PROXY")
        exceptions = (variable("NO_PROXY")?.value ?? "").split { $0 == "," || $0 == " " }.compactMap(Self.exception)
    }

    private static func exception(_ text: Substring) -> Exception? {
        if text == "*" { return .all }
        if let block = IPPrefix(text) { return .block(block, port: nil) }
        var name = text.lowercased()[...]
        var port: Int?
        if let colon = name.lastIndex(of: ":"), let number = UInt16(name[name.index(after: colon)...]) {
            port = Int(number)
            name = name[..<colon]
        }
        if name.hasPrefix("["), name.hasSuffix("]") { name = name.dropFirst().dropLast() }
        if let block = IPPrefix(name) { return .block(block, port: port) }
        if name.hasPrefix("*.") { name = name.dropFirst() }
        let subdomainsOnly = name.hasPrefix(".")
        if subdomainsOnly { name = name.dropFirst() }
        return name.isEmpty ? nil : .name(String(name), subdomainsOnly: subdomainsOnly, port: port)
    }

    /// The proxy for a server; nil means to connect directly, as it always does for this machine.
    package func proxy(for server: ServerAddress) -> ServerAddress? {
        guard let proxy = server.isSecure ? secure : plain else { return nil }
        var host = server.host.lowercased()
        if host.hasSuffix(".") { host.removeLast() }
        let address = IPPrefix(host)
        if host == "localhost" || address?.isLoopback == true { return nil }
        for exception in exceptions {
            switch exception {
            case .all: return nil
            case .block(let block, let port):
                if let address, block.contains(address), port == nil || port == server.port { return nil }
            case .name(let name, let subdomainsOnly, let port):
                let fits = !subdomainsOnly && host == name || host.hasSuffix("." + name)
                if fits, port == nil || port == server.port { return nil }
            }
        }
        return proxy
    }
}
