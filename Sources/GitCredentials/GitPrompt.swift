import AgentCore

/// One of the two questions that git asks a GIT_ASKPASS program.
///
/// Git builds them as `WHAT for 'PROTOCOL://[USER@]HOST[:PORT][/PATH]': ` (git's credential_describe), never translated;
/// the path stands there only with credential.useHttpPath, the user name percent-encoded, or raw in older versions.
/// git-lfs asks `WHAT for "URL"`.
package struct GitPrompt: Sendable, Equatable {
    package enum Field: Sendable { case username, password }

    package var field: Field
    /// `https://host:8443/path`, without a user.
    package var url: String
    /// The user that the login is for; nil where the question names none. May be a token.
    package var user: String?

    /// Why a text is not answered. The message quotes no user.
    package struct Refusal: Error, Sendable, Equatable {
        package var message: String
    }

    private static let questions: [(start: String, field: Field)] = [
        ("Username for ", .username), ("Password for ", .password),
    ]

    /// Whether a text has the form of a question of git's, so that the program is meant as GIT_ASKPASS.
    package static func isPrompt(_ text: String) -> Bool {
        questions.contains { text.utf8.starts(with: $0.start.utf8) } || isBare(text)
    }

    /// Git asks so when it knows nothing of what it wants to reach.
    private static func isBare(_ text: String) -> Bool { ["Username: ", "Password: "].contains(text) }

    package init(field: Field, url: String, user: String?) {
        self.field = field
        self.url = url
        self.user = user
    }

    /// - Throws: ``Refusal`` for a text that is no such question, and for one whose host cannot be told for sure: a
    ///   URL can carry a user name such as `github.com/x`, and a login for github.com must not reach another host.
    package init(_ text: String) throws(Refusal) {
        guard !Self.isBare(text) else {
            throw Refusal(message: "git does not say which host it wants to reach")
        }
        guard let (start, field) = Self.questions.first(where: { text.utf8.starts(with: $0.start.utf8) }) else {
            throw Refusal(message: "\"\(text)\" is not git's question for a user name or password")
        }
        guard let address = Self.unquoted(text.utf8.dropFirst(start.utf8.count)),
            let separator = address.firstRange(of: "://")
        else { throw Refusal(message: "git's question has no URL") }
        let scheme = address[..<separator.lowerBound]
        guard scheme.utf8.elementsEqual("https".utf8) || scheme.utf8.elementsEqual("http".utf8) else {
            throw Refusal(message: "the control plane has logins for http and https, not for \(scheme)")
        }
        guard address.unicodeScalars.allSatisfy(\.isHarmless) else {
            throw Refusal(message: "the URL in git's question has control characters")
        }
        let rest = address[separator.upperBound...].utf8
        let slash = rest.firstIndex(of: UInt8(ascii: "/")) ?? rest.endIndex
        var host = rest[..<slash]
        let path = rest[slash...]
        guard !path.contains(UInt8(ascii: "@")) else {
            throw Refusal(
                message: "cannot tell the host in git's question: an @ stands behind a /; turn credential.useHttpPath "
                    + "off, or give the user name without a /")
        }
        if let at = host.lastIndex(of: UInt8(ascii: "@")) {
            // The first question is asked only while no user is known.
            guard field == .password else {
                throw Refusal(message: "cannot tell the host in git's question: it names a user and asks for one")
            }
            user = Self.unescaped(host[..<at])
            host = host[host.index(after: at)...]
        }
        guard !host.isEmpty, Substring(host).unicodeScalars.allSatisfy(Self.isOfHost) else {
            throw Refusal(message: "the URL in git's question has no host, or one with characters that no host has")
        }
        self.field = field
        url = "\(scheme)://\(Substring(host))\(Substring(path))"
    }

    /// The text without `: ` at its end and quotes around it.
    private static func unquoted(_ text: Substring.UTF8View) -> String? {
        var rest = text
        if rest.last == UInt8(ascii: " ") { rest = rest.dropLast() }
        if rest.last == UInt8(ascii: ":") { rest = rest.dropLast() }
        if let quote = rest.first, quote == UInt8(ascii: "'") || quote == UInt8(ascii: "\"") {
            guard rest.count > 1, rest.last == quote else { return nil }
            rest = rest.dropFirst().dropLast()
        }
        return String(rest)
    }

    /// Without percent-encoding; as it stands where a % has not two hexadecimal digits behind it.
    private static func unescaped(_ text: Substring.UTF8View) -> String? {
        var bytes: [UInt8] = []
        var rest = text
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let digits = String(rest.prefix(2)), digits.utf8.count == 2, let value = UInt8(digits, radix: 16),
                !digits.hasPrefix("+")
            else { return String(text) }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Whether it can stand in a name, an address or a port. Anything else (`?`, `#`, `\`) is read in other ways by other
    /// programs.
    private static func isOfHost(_ scalar: Unicode.Scalar) -> Bool {
        if scalar.isASCII {
            return ".-_:[]".unicodeScalars.contains(scalar) || Character(scalar).isLetter || Character(scalar).isNumber
        }
        return scalar.properties.isAlphabetic || scalar.properties.numericType != nil
            || [.nonspacingMark, .spacingMark].contains(scalar.properties.generalCategory)
    }
}
