import AgentCore
import NIOHTTP1

/// Where the control plane is and how we show who we are (docs/contracts/control-plane.md#configuration).
package struct LinkConfiguration: Sendable {
    /// Where the session token comes from.
    package enum Authentication: Sendable {
        case token(Secret<String>)
        /// Read again at each connect.
        case tokenFile(String)
        case aws, azure, google
    }

    /// What was given, flags first and then the environment, as text.
    package struct Input: Sendable {
        package var url = ""
        package var token: Secret<String>?
        package var tokenFile: String?
        package var auth: String?
        /// `k=v`.
        package var headers: [String] = []
        package var headerCommand: String?
        package var caFile: String?
        /// Which of a template's agents on this machine we are (AWS).
        package var agentName: String?
        package var environment: [String: String] = [:]

        package init() {}
    }

    package var url: ServerAddress
    package var authentication: Authentication
    package var agentName: String?
    package var headers: HTTPHeaders
    package var headerCommand: String?
    /// A PEM file whose certificates are trusted beside the system's.
    package var caFile: String?
    package var proxies: ProxySettings
    package var metadata = MetadataAddresses()
    package var times = DialTimes()

    package init(url: ServerAddress, authentication: Authentication) {
        self.url = url
        self.authentication = authentication
        headers = [:]
        proxies = ProxySettings()
    }

    /// - Throws: ``ControlPlaneError`` `.configuration` that names the flag.
    package init(_ input: Input) throws(ControlPlaneError) {
        func given(_ text: String?) -> String? { text.flatMap { $0.isEmpty ? nil : $0 } }
        func problem(_ message: String) -> ControlPlaneError { ControlPlaneError(.configuration, message) }
        url = try ServerAddress(input.url, what: "--agent-url")
        let file = given(input.tokenFile)
        let token = input.token.flatMap { $0.reveal().isEmpty ? nil : $0 }
        switch given(input.auth) ?? "token" {
        case "token":
            if let file {
                authentication = .tokenFile(file)
            } else if let token {
                authentication = .token(try TokenText.checked(token.reveal(), from: "--agent-token"))
            } else {
                throw problem("--agent-url needs --agent-token-file, --agent-token or another --auth")
            }
        case "aws-instance-identity": authentication = .aws
        case "azure-instance-identity": authentication = .azure
        case "google-instance-identity": authentication = .google
        case let other:
            throw problem(
                "--auth: \"\(other)\" is none of token, aws-instance-identity, azure-instance-identity, "
                    + "google-instance-identity")
        }
        agentName = given(input.agentName)
        headers = [:]
        for text in input.headers {
            let field = try ExtraHeader.parse(text, what: "--agent-header")
            headers.add(name: field.name, value: field.value)
        }
        guard headers.count <= DialLimits.extraHeaders else {
            throw problem("--agent-header: more than \(DialLimits.extraHeaders) headers")
        }
        headerCommand = given(input.headerCommand)
        caFile = given(input.caFile)
        proxies = try ProxySettings(environment: input.environment)
        // NIOSSL would check the certificate against the address that we are connected to: the proxy's.
        if url.isSecure, IPPrefix(url.host) != nil, proxies.proxy(for: url) != nil {
            throw problem(
                "--agent-url: an https address that is an IP cannot be verified through a proxy; "
                    + "use a host name, or add the address to NO_PROXY")
        }
    }
}

extension LinkConfiguration {
    /// Reads the CA file once, so that a wrong one is found before anything waits for a connection. Blocks.
    /// - Throws: ``ControlPlaneError`` `.configuration` that names the file.
    package func checkFiles() throws(ControlPlaneError) {
        if caFile != nil { _ = try Trust.configuration(caFile: caFile) }
    }
}

/// Where the clouds' metadata services are; elsewhere only in tests.
package struct MetadataAddresses: Sendable {
    package var aws = "http://169.254.169.254"
    package var azure = "http://169.254.169.254"
    package var google = "http://metadata.google.internal"

    package init() {}
}

/// What a token may look like: it goes into a header as it is.
enum TokenText {
    static func checked(_ text: String, from source: String) throws(ControlPlaneError) -> Secret<String> {
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
            throw ControlPlaneError(.token, "\(source): the token has spaces or characters that no header may hold")
        }
        return Secret(text)
    }
}

/// One `k=v` of a flag or of the header command.
enum ExtraHeader {
    /// Fields that are ours, or that would change what the request is.
    private static let reserved: Set<String> = [
        "host", "connection", "upgrade", "content-length", "transfer-encoding", "coder-session-token",
    ]

    /// The value is left out of errors: it may be a secret.
    static func parse(
        _ text: some StringProtocol, what: String
    ) throws(ControlPlaneError) -> (name: String, value: String) {
        func problem(_ message: String) -> ControlPlaneError {
            ControlPlaneError(.configuration, "\(what): \(message)")
        }
        guard let equals = text.firstIndex(of: "=") else { throw problem("a header must be name=value") }
        let name = text[..<equals]
        let value = text[text.index(after: equals)...]
        guard !name.isEmpty, name.utf8.allSatisfy(isTokenByte) else {
            throw problem("a header's name must be of letters, digits and !#$%&'*+-.^_`|~")
        }
        guard value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F || $0 == 9 }) else {
            throw problem("the value of \(name) has a line break or another control character")
        }
        let lower = name.lowercased()
        guard !reserved.contains(lower), !lower.hasPrefix("sec-websocket-") else {
            throw problem("\(name) cannot be set this way")
        }
        return (String(name), String(value))
    }

    private static func isTokenByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
    }
}
