import Glibc

/// What ssh was asked for on its command line: the part of OpenSSH's that git uses. Of an option that is given twice
/// the first counts, as there.
struct SSHArguments: Equatable {
    enum Purpose { case connect, printConfiguration, printVersion }

    /// Keywords of -o, in lower case.
    private static let options: Set = [
        "batchmode", "connecttimeout", "globalknownhostsfile", "hostkeyalias", "hostname", "identitiesonly",
        "identityagent", "identityfile", "port", "sendenv", "setenv", "stricthostkeychecking", "user",
        "userknownhostsfile",
    ]

    /// Keywords that are taken and change nothing: scripts give them to every ssh. Nothing is compressed, no connection
    /// is shared, and a dead server is noticed anyway.
    private static let ignored: Set = [
        "compression", "controlmaster", "controlpath", "controlpersist", "loglevel", "serveralivecountmax",
        "serveraliveinterval", "tcpkeepalive",
    ]

    /// What is done with a host key that no file knows.
    enum UnknownHosts { case refuse, accept }

    var purpose = Purpose.connect
    /// As given, without user, port and brackets.
    var host = ""
    var port: UInt16?
    var user: String?
    /// `AF_UNSPEC`, `AF_INET` or `AF_INET6`.
    var family = AF_UNSPEC
    /// nil asks for a shell.
    var command: String?
    var isVerbose = false
    var readsInput = true
    /// The real name of the host, where it isn't ``host``.
    var hostName: String?
    var hostKeyAlias: String?
    var unknownHosts: UnknownHosts?
    var userKnownHosts: [String]?
    var globalKnownHosts: [String]?
    var identityFiles: [String] = []
    var usesIdentitiesOnly: Bool?
    /// A path; `none` and `SSH_AUTH_SOCK` as OpenSSH has them.
    var identityAgent: String?
    /// Seconds.
    var connectTimeout: Int?
    /// Patterns of variables' names.
    var sendEnv: [String] = []
    var setEnv: [Variable] = []

    struct Variable: Equatable { var name, value: String }

    /// - Throws: ``BuiltInSSHFailure`` that names the option or value.
    init(_ arguments: [String]) throws(BuiltInSSHFailure) {
        var words = arguments[...]
        let areOptionsOver = try readOptions(&words)
        guard purpose != .printVersion else { return }
        guard let destination = words.popFirst() else {
            throw BuiltInSSHFailure("no host was given; the arguments are [-p PORT] [USER@]HOST [COMMAND]")
        }
        try setDestination(destination)
        if !areOptionsOver { _ = try readOptions(&words) }
        if !words.isEmpty { command = words.joined(separator: " ") }
    }

    /// Takes the options that are next.
    /// - Returns: whether `--` ended them.
    private mutating func readOptions(_ words: inout ArraySlice<String>) throws(BuiltInSSHFailure) -> Bool {
        while let word = words.first, word.hasPrefix("-"), word != "-" {
            words.removeFirst()
            if word == "--" { return true }
            var letters = word.dropFirst()
            while let letter = letters.popFirst() {
                guard "pioFl".contains(letter) else {
                    try setFlag(letter)
                    continue
                }
                let rest = String(letters)
                guard let value = rest.isEmpty ? words.popFirst() : rest else {
                    throw BuiltInSSHFailure("the option -\(letter) has no value behind it")
                }
                try set(letter, value)
                letters = ""
            }
        }
        return false
    }

    private mutating func setFlag(_ letter: Character) throws(BuiltInSSHFailure) {
        switch letter {
        case "4": family = AF_INET
        case "6": family = AF_INET6
        case "n": readsInput = false
        case "v": isVerbose = true
        case "G": purpose = .printConfiguration
        case "V": purpose = .printVersion
        // No terminal, no forwarding: there is none anyway. Nothing is compressed.
        case "T", "x", "q", "a", "C": break
        default: throw .unknownOption("-\(letter)")
        }
    }

    private mutating func set(_ letter: Character, _ value: String) throws(BuiltInSSHFailure) {
        switch letter {
        case "p": try setOption("port", value, as: "-p")
        case "l": try setOption("user", value, as: "-l")
        case "i": identityFiles.append(value)
        case "F":
            // No file is read, which these ask for.
            guard ["none", "/dev/null"].contains(value) else { throw .unknownOption("-F \(value)") }
        default:
            // "Key=Value", "Key Value", "Key = Value".
            let key = value.prefix { $0 != "=" && $0 != " " && $0 != "\t" }
            var rest = value[key.endIndex...].drop { $0 == " " || $0 == "\t" }
            if rest.first == "=" { rest = rest.dropFirst().drop { $0 == " " || $0 == "\t" } }
            try setOption(key.lowercased(), String(rest), as: "-o \(key)")
        }
    }

    private mutating func setOption(
        _ key: String, _ value: String, as name: String
    ) throws(BuiltInSSHFailure) {
        guard !Self.ignored.contains(key) else { return }
        guard Self.options.contains(key) else { throw .unknownOption(name) }
        let words = try Self.words(value, of: name)
        guard let first = words.first, !first.isEmpty else { throw BuiltInSSHFailure("\(name) has no value") }
        switch key {
        case "sendenv": setPatterns(words)
        case "setenv": try setVariables(words)
        case "userknownhostsfile": userKnownHosts = userKnownHosts ?? words
        case "globalknownhostsfile": globalKnownHosts = globalKnownHosts ?? words
        default:
            guard words.count == 1 else {
                throw BuiltInSSHFailure("\(name) takes one value, not \"\(value)\"")
            }
            try setSingle(key, first, as: name)
        }
    }

    private mutating func setSingle(
        _ key: String, _ value: String, as name: String
    ) throws(BuiltInSSHFailure) {
        switch key {
        case "port": try Self.keep(&port, Self.port(value, of: name))
        case "user": user = user ?? value
        case "hostname": try Self.keep(&hostName, Self.host(value))
        case "hostkeyalias": try Self.keep(&hostKeyAlias, Self.host(value))
        case "identityfile": identityFiles.append(value)
        case "identitiesonly":
            try Self.keep(&usesIdentitiesOnly, Self.choice(value, of: name, ["yes": true, "no": false]))
        case "identityagent": identityAgent = identityAgent ?? value
        // Nothing is ever asked.
        case "batchmode": _ = try Self.choice(value, of: name, ["yes": true, "no": false])
        case "connecttimeout":
            guard let seconds = Int(value), (1...86_400).contains(seconds) else {
                throw BuiltInSSHFailure("\(name) is \"\(value)\", which is not a number of seconds between 1 and 86400")
            }
            connectTimeout = connectTimeout ?? seconds
        case "stricthostkeychecking":
            let choices: [String: UnknownHosts] = [
                "ask": .refuse, "yes": .refuse, "accept-new": .accept, "no": .accept, "off": .accept,
            ]
            try Self.keep(&unknownHosts, Self.choice(value, of: name, choices))
        default: throw .unknownOption(name)
        }
    }

    /// A pattern behind a hyphen takes back those that it matches.
    private mutating func setPatterns(_ words: [String]) {
        for word in words {
            if word.hasPrefix("-") {
                sendEnv.removeAll { WildcardPattern.matches(String(word.dropFirst()), $0) }
            } else {
                sendEnv.append(word)
            }
        }
    }

    private mutating func setVariables(_ words: [String]) throws(BuiltInSSHFailure) {
        for word in words {
            guard let sign = word.firstIndex(of: "="), sign != word.startIndex else {
                throw BuiltInSSHFailure("-o SetEnv has \"\(word)\", which is not NAME=VALUE")
            }
            setEnv.append(Variable(name: String(word[..<sign]), value: String(word[word.index(after: sign)...])))
        }
    }

    /// `[USER@]HOST` or `ssh://[USER@]HOST[:PORT]`.
    private mutating func setDestination(_ text: String) throws(BuiltInSSHFailure) {
        var rest = text[...]
        let isURL = rest.hasPrefix("ssh://")
        if isURL {
            rest = rest.dropFirst(6)
            if rest.hasSuffix("/") { rest = rest.dropLast() }
        }
        if let at = rest.lastIndex(of: "@") {
            guard at != rest.startIndex else { throw BuiltInSSHFailure("\"\(text)\" has no user in front of the @") }
            user = user ?? String(rest[..<at])
            rest = rest[rest.index(after: at)...]
        }
        if isURL, let colon = rest.lastIndex(of: ":"), !rest[colon...].contains("]"),
            rest.first == "[" || rest.firstIndex(of: ":") == colon
        {
            let number = try Self.port(String(rest[rest.index(after: colon)...]), of: "the port of \(text)")
            port = port ?? number
            rest = rest[..<colon]
        }
        if rest.hasPrefix("["), rest.hasSuffix("]") { rest = rest.dropFirst().dropLast() }
        host = try Self.host(String(rest))
    }
}

extension SSHArguments {
    private static func keep<T>(_ first: inout T?, _ value: T) { first = first ?? value }

    /// Where it connects to.
    var address: String { hostName ?? host }

    private static func port(_ text: String, of name: String) throws(BuiltInSSHFailure) -> UInt16 {
        guard let number = UInt16(text), number > 0 else {
            throw BuiltInSSHFailure("\(name) is \"\(text)\", which is not a port between 1 and 65535")
        }
        return number
    }

    /// Names come to lines of known_hosts, where some characters have a meaning.
    private static func host(_ text: String) throws(BuiltInSSHFailure) -> String {
        let isName = text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || ".-_:%".contains($0)) }
        guard isName, !text.isEmpty, !text.hasPrefix("-") else {
            throw BuiltInSSHFailure("\"\(text)\" is not a host name or address")
        }
        return text
    }

    private static func choice<T>(
        _ text: String, of name: String, _ choices: [String: T]
    ) throws(BuiltInSSHFailure) -> T {
        // "true" and "false" are OpenSSH's other words for them.
        let word = ["true": "yes", "false": "no"][text.lowercased()] ?? text.lowercased()
        guard let choice = choices[word] else {
            throw BuiltInSSHFailure(
                "\(name) is \"\(text)\"; it may be \(choices.keys.sorted().joined(separator: ", "))")
        }
        return choice
    }

    /// Words between blanks, but for those in double quotes.
    private static func words(_ text: String, of name: String) throws(BuiltInSSHFailure) -> [String] {
        var words: [String] = []
        var word: String?
        var isQuoted = false
        for character in text {
            if character == "\"" {
                isQuoted.toggle()
                word = word ?? ""
            } else if !isQuoted, character == " " || character == "\t" {
                if let word { words.append(word) }
                word = nil
            } else {
                word = (word ?? "") + String(character)
            }
        }
        guard !isQuoted else { throw BuiltInSSHFailure("\(name) has a quotation mark without its second one: \(text)") }
        if let word { words.append(word) }
        return words
    }
}
