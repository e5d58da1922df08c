/// One of the two questions that git asks a GIT_ASKPASS program.
///
/// Git builds them as `WHAT for 'PROTOCOL://[USER@]HOST[:PORT][/PATH]': ` (git's credential_describe), never translated;
/// the path stands there only with credential.useHttpPath, the user name percent-encoded, or raw in older versions.
package struct GitPrompt: Sendable, Equatable {
    package enum Field: Sendable { case username, password }

    package var field: Field
    /// `https://host:8443/path`, without a user.
    package var url: String
    /// The user that the login is for; nil where the question names none.
    package var user: String?

    /// Why a text is not answered.
    package struct Refusal: Error, Sendable, Equatable {
        package var message: String
    }

    private static let questions: [(start: String, field: Field)] = [
        ("Username for '", .username), ("Password for '", .password),
    ]

    /// Whether a text has the form of a question of git's, so that the program is meant as GIT_ASKPASS.
    package static func isPrompt(_ text: String) -> Bool {
        questions.contains { text.utf8.starts(with: $0.start.utf8) } || bare(text) != nil
    }

    /// Git asks so when it knows nothing of what it wants to reach.
    private static func bare(_ text: String) -> Field? {
        switch text {
        case "Username: ": .username
        case "Password: ": .password
        default: nil
        }
    }

    package init(field: Field, url: String, user: String?) {
        self.field = field
        self.url = url
        self.user = user
    }

    /// - Throws: ``Refusal`` for a text that is no such question, and for one whose host cannot be told for sure: a
    ///   URL can carry a user name such as `github.com/x`, and a login for github.com must not reach another host.
    package init(_ text: String) throws(Refusal) {
        guard Self.bare(text) == nil else {
            throw Refusal(message: "git does not say which host it wants to reach")
        }
        guard let (start, field) = Self.questions.first(where: { text.utf8.starts(with: $0.start.utf8) }),
            let end = text.utf8.lastIndex(of: UInt8(ascii: "'")), end > text.utf8.startIndex
        else { throw Refusal(message: "\"\(text)\" is no question of git's for a user name or password") }
        let begin = text.utf8.index(text.utf8.startIndex, offsetBy: start.utf8.count)
        guard begin <= end, let rest = String(text.utf8[begin..<end]), let separator = rest.firstRange(of: "://")
        else {
            throw Refusal(message: "\"\(text)\" names no URL")
        }
        let scheme = rest[..<separator.lowerBound]
        guard scheme.utf8.elementsEqual("https".utf8) || scheme.utf8.elementsEqual("http".utf8) else {
            throw Refusal(message: "the control plane has logins for http and https, not for \(scheme)")
        }
        let address = rest[separator.upperBound...].utf8
        let slash = address.firstIndex(of: UInt8(ascii: "/")) ?? address.endIndex
        var host = address[..<slash]
        let path = address[slash...]
        guard !path.contains(UInt8(ascii: "@")) else {
            throw Refusal(
                message: "cannot tell the host in \"\(rest)\": an @ stands behind a /; "
                    + "turn credential.useHttpPath off, or give the user name without a /")
        }
        user = nil
        if let at = host.lastIndex(of: UInt8(ascii: "@")) {
            // The first question is asked only while no user is known.
            guard field == .password else { throw Refusal(message: "cannot tell the host in \"\(rest)\"") }
            user = Self.unescaped(host[..<at])
            host = host[host.index(after: at)...]
        }
        guard !host.isEmpty, host.allSatisfy(Self.isHostByte) else {
            throw Refusal(message: "\"\(rest)\" names no host")
        }
        self.field = field
        url = "\(scheme)://\(Substring(host))\(Substring(path))"
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

    /// Of a name, an address or a port. Anything else (`?`, `#`, `\`) is read in other ways by other programs.
    private static func isHostByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"),
            UInt8(ascii: ":"), UInt8(ascii: "["), UInt8(ascii: "]"), 0x80...:
            true
        default: false
        }
    }
}
