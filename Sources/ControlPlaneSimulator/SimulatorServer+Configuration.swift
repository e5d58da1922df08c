import AgentCore
import ControlPlaneAPI
import FoundationEssentials
import WebSockets

extension SimulatorServer {
    /// What `gitsshkey` answers.
    package struct GitSSHKey: Sendable, Encodable {
        package var publicKey: String
        package var privateKey: String

        package init(publicKey: String, privateKey: String) {
            self.publicKey = publicKey
            self.privateKey = privateKey
        }

        enum CodingKeys: String, CodingKey {
            case publicKey = "public_key"
            case privateKey = "private_key"
        }
    }

    /// What `external-auth` answers.
    package struct ExternalAuth: Sendable, Encodable {
        package var accessToken: String
        /// Where the user is to log in; a request that listens then waits for ``SimulatorServer/logIn(_:)``.
        package var url: String
        package var type: String
        package var username: String
        package var password: String
        /// What the URLs begin with that it is for; empty for all. Others are 404.
        package var serves: [String]
        /// Its id, for requests that ask by that; another one is 404. Empty for all.
        package var id = ""
        /// Further fields of the token, a JSON object; nil for none.
        package var tokenExtra: String?

        package init(
            accessToken: String, url: String = "", type: String = "", username: String = "", password: String = "",
            serves: [String] = []
        ) {
            self.serves = serves
            self.accessToken = accessToken
            self.url = url
            self.type = type
            self.username = username
            self.password = password
        }

        enum CodingKeys: String, CodingKey {
            case accessToken = "access_token"
            case tokenExtra = "token_extra"
            case url, type, username, password
        }

        package func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(accessToken, forKey: .accessToken)
            let extra = tokenExtra.flatMap { try? JSONDecoder().decode(JSONValue.self, from: Data($0.utf8)) }
            try container.encodeIfPresent(extra, forKey: .tokenExtra)
            try container.encode(url, forKey: .url)
            try container.encode(type, forKey: .type)
            try container.encode(username, forKey: .username)
            try container.encode(password, forKey: .password)
        }
    }

    package enum Address: Sendable {
        /// An address of this machine; port 0 takes a free one.
        case tcp(host: String = "127.0.0.1", port: Int = 0)
        case unix(path: String)
    }

    package struct Configuration: Sendable {
        package var address = Address.tcp()
        /// The token that agents must send.
        package var token: Secret<String>
        /// PEM files of the certificate (with those that vouch for it) and its key; nil serves http.
        package var tls: (certificate: String, key: String)?
        /// A higher minor version, or another major one, is answered 400.
        package var maximumVersion = APIVersion(2, 10)
        package var gitSSHKey: GitSSHKey?
        package var externalAuth: ExternalAuth?
        /// Whether `reinit` waits for a claim; it is 409 otherwise.
        package var isPrebuild = false
        /// Pings, and how long their answers may take.
        package var webSocketTimes = WebSocketTimes.server
        package var relay = SimulatorRelay.Configuration()
        /// UDP port of the STUN server, on the listener's host; 0 takes a free one, nil for no server.
        package var stunPort: Int?

        package init(token: Secret<String>) { self.token = token }
    }
}

extension SimulatorServer.Address {
    var text: String {
        switch self {
        case .tcp(let host, let port): "\(host):\(port)"
        case .unix(let path): path
        }
    }

    /// Of the sockets beside the listener.
    var host: String {
        switch self {
        case .tcp(let host, _): host
        case .unix: "127.0.0.1"
        }
    }
}
