import AgentCore
import FoundationEssentials
import Glibc

/// The address of an HTTP server: an `http` or `https` URL without query and fragment.
///
/// Its description leaves the user info out, so it may stand in logs and errors.
package struct ServerAddress: Sendable, Equatable, CustomStringConvertible {
    package var isSecure: Bool
    /// A name, or an IP address without brackets.
    package var host: String
    package var port: Int
    /// Begins with a slash or is empty; never ends with one.
    package var path: String
    /// `user:password`, percent-decoded.
    package var userInfo: Secret<String>?

    /// - Parameters:
    ///   - what: names the flag or variable in the error.
    ///   - defaultScheme: for a text without one; nil makes that an error.
    /// - Throws: ``ControlPlaneError`` `.configuration`.
    package init(_ text: String, what: String, defaultScheme: String? = nil) throws(ControlPlaneError) {
        // The text itself is not quoted: what is not a URL may hold a password anywhere.
        func problem(_ message: String) -> ControlPlaneError {
            ControlPlaneError(.configuration, "\(what): \(message)")
        }
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
            throw problem("the URL has a space, a control character or one beyond ASCII")
        }
        var rest = Substring(text)
        var scheme = defaultScheme
        if let colon = rest.firstIndex(of: ":"), rest[colon...].hasPrefix("://") {
            scheme = rest[..<colon].lowercased()
            rest = rest[colon...].dropFirst(3)
        }
        switch scheme {
        case "http": isSecure = false
        case "https": isSecure = true
        default: throw problem("the URL must begin with https:// or http://")
        }
        guard !rest.contains(where: { "?#".contains($0) }) else { throw problem("the URL must have no query") }
        let authority = rest.prefix { $0 != "/" }
        var path = String(rest.dropFirst(authority.count))
        while path.hasSuffix("/") { path.removeLast() }
        self.path = path

        var hostPort = authority
        if let at = authority.lastIndex(of: "@") {
            guard let decoded = Self.unescape(authority[..<at]) else {
                throw problem("the URL's user info is malformed")
            }
            userInfo = Secret(decoded)
            hostPort = authority[authority.index(after: at)...]
        }
        var portText: Substring?
        if hostPort.hasPrefix("[") {
            guard let end = hostPort.firstIndex(of: "]") else { throw problem("the URL's host lacks a \"]\"") }
            host = String(hostPort[hostPort.index(after: hostPort.startIndex)..<end])
            let tail = hostPort[hostPort.index(after: end)...]
            guard tail.isEmpty || tail.hasPrefix(":") else { throw problem("the URL's port is malformed") }
            if !tail.isEmpty { portText = tail.dropFirst() }
            guard IPPrefix(host) != nil else { throw problem("the URL's host is no IPv6 address") }
        } else if let colon = hostPort.firstIndex(of: ":") {
            host = String(hostPort[..<colon])
            portText = hostPort[hostPort.index(after: colon)...]
        } else {
            host = String(hostPort)
        }
        guard !host.isEmpty else { throw problem("the URL has no host") }
        port = isSecure ? 443 : 80
        if let portText, !portText.isEmpty {
            guard let number = UInt16(portText), number > 0 else { throw problem("the URL's port is not 1…65535") }
            port = Int(number)
        }
    }

    /// - Parameters:
    ///   - host: a name, or an IP address without brackets.
    ///   - path: begins with a slash or is empty; never ends with one.
    init(isSecure: Bool, host: String, port: Int, path: String) {
        (self.isSecure, self.host, self.port, self.path) = (isSecure, host, port, path)
    }

    /// `host` or `host:port`, as `Host` and messages say it.
    package var authority: String {
        let name = host.contains(":") ? "[\(host)]" : host
        return port == (isSecure ? 443 : 80) ? name : "\(name):\(port)"
    }

    /// `host:port`, as CONNECT says it.
    var hostPort: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }

    package var description: String { "\(isSecure ? "https" : "http")://\(authority)\(path)" }

    /// The value of a Basic authorization, where there is user info.
    var basicAuthorization: Secret<String>? {
        userInfo.map { Secret("Basic " + Data($0.reveal().utf8).base64EncodedString()) }
    }

    private static func unescape(_ text: Substring) -> String? {
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard rest.count >= 2, let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16) else {
                return nil
            }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return String(validating: bytes, as: UTF8.self)
    }

    package static func == (a: ServerAddress, b: ServerAddress) -> Bool {
        a.description == b.description && a.userInfo?.reveal() == b.userInfo?.reveal()
    }
}

/// An IP address, or a block of them in CIDR form.
struct IPPrefix: Equatable {
    private var bytes: [UInt8]
    private var bits: Int

    init?(_ text: some StringProtocol) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let address = parts.first.map({ String($0) }) else { return nil }
        var area = [UInt8](repeating: 0, count: 16)
        if inet_pton(AF_INET, address, &area) == 1 {
            bytes = Array(area.prefix(4))
        } else if inet_pton(AF_INET6, address, &area) == 1 {
            bytes = area
        } else {
            return nil
        }
        bits = bytes.count * 8
        if parts.count == 2 {
            guard let given = Int(parts[1]), (0...bits).contains(given) else { return nil }
            bits = given
        }
    }

    var isLoopback: Bool {
        bytes.count == 4 ? bytes[0] == 127 : bytes == [UInt8](repeating: 0, count: 15) + [1]
    }

    func contains(_ other: IPPrefix) -> Bool {
        guard bytes.count == other.bytes.count, other.bits >= bits else { return false }
        let whole = bits / 8
        guard bytes.prefix(whole) == other.bytes.prefix(whole) else { return false }
        let rest = bits % 8
        guard rest > 0, whole < bytes.count else { return true }
        let differing = bytes[whole] ^ other.bytes[whole]
        return differing >> (8 - rest) == 0
    }
}
