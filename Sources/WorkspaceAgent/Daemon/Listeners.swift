import AgentCore
import AgentHTTP
import CPlatform
import Glibc
import LocalAgent
import Logging

/// The HTTP API's listeners, opened as configured.
struct Listeners {
    var descriptions: [String] = []
    var token: HTTPToken?
    /// What browsers may open with the token in the address.
    var page: BrowserPage?
    private var socket: String?
    private(set) var tcp: (host: String, port: Int)?
    private let sessions: PageSessions?

    init(page: BrowserPage?, sessions: PageSessions?) { (self.page, self.sessions) = (page, sessions) }

    /// Opens them all, or throws at the first that cannot be.
    mutating func open(_ context: DaemonContext, _ server: HTTPServer, _ systemd: Systemd) async throws {
        let (configuration, health, logger) = (context.configuration, context.health, context.logger)
        let unixPolicy = AccessPolicy(tokenRule: .none, ownUID: geteuid())
        let families = systemd.activated.map { ($0, wa_socket_family($0)) }
        let activatesUnix = families.contains { $0.1 == AF_UNIX }

        if let path = configuration.httpSocket, !activatesUnix {
            if configuration.httpSocketIsDefault {
                try createDirectories(parentDirectory(of: path), mode: 0o700)
                try requirePrivateDirectory(parentDirectory(of: path))
            }
            try await server.serve(try UnixListener.bind(path: path), policy: unixPolicy)
            socket = path
            let directory = parentDirectory(of: path)
            if let problem = sharingProblem(ofDirectory: directory) {
                let text =
                    "\(directory) \(problem), who may replace the HTTP socket with one of theirs; "
                    + "use a directory of your own with mode 0700"
                logger.warning("\(text)")
                health.set("http socket", .init("http socket: \(text)", degrades: false))
            }
            descriptions.append("unix:\(path)")
        }
        let wantsTCP = !configuration.httpAddresses.isEmpty || families.contains { $0.1 != AF_UNIX }
        if wantsTCP, configuration.httpAuth == .token { token = try Self.makeToken(configuration, logger) }
        let tcpPolicy = AccessPolicy(
            tokenRule: token.map { .required($0.token) } ?? .none,
            allowedHosts: configuration.allowedHosts, ownUID: geteuid(), page: page, sessions: sessions)
        if wantsTCP, configuration.httpAuth == .none {
            logger.warning("the HTTP API asks for no token on TCP: every host that reaches it can run commands")
        }
        for address in configuration.httpAddresses {
            let port = try await server.serve(host: address.host, port: address.port, policy: tcpPolicy)
            var bound = address
            bound.port = port
            if tcp == nil { tcp = (address.host, port) }
            descriptions.append("http://\(bound)")
        }
        for (descriptor, family) in families {
            if configuration.httpAuth == .none, !configuration.understandsOpenAccess, wa_socket_is_wildcard(descriptor)
            {
                throw CommandFailure(
                    message: "--http-auth none on an activated socket that listens on every address; "
                        + "bind it to one, or add --http-auth-none-i-understand", code: 2)
            }
            try await server.serve(descriptor: descriptor, policy: family == AF_UNIX ? unixPolicy : tcpPolicy)
            descriptions.append("systemd:\(family == AF_UNIX ? "unix" : "tcp") fd \(descriptor)")
        }
        if let token { descriptions.append("token in \(token.path)") }
    }

    private static func makeToken(_ configuration: AgentConfiguration, _ logger: Logger) throws -> HTTPToken {
        if let path = configuration.httpTokenFile {
            let (token, isOpenToOthers) = try HTTPToken.read(path)
            if isOpenToOthers {
                logger.warning(
                    "Others may read or change the token file; make it mode 0600.", metadata: ["path": "\(path)"])
            }
            return token
        }
        guard let socket = configuration.httpSocket else {
            return try HTTPToken.make("\(configuration.stateDirectory)/http.token")
        }
        // Named after the socket, since another daemon may have one in the same directory.
        let name = socket.hasSuffix(".sock") ? String(socket.dropLast(".sock".count)) : socket
        return try HTTPToken.make("\(name).token")
    }

    /// What a newcomer can paste.
    func printExamples() {
        if let socket { print("socket      \(socket)") }
        if let token { print("token file  \(token.path)") }
        print("\nTry:")
        if let socket {
            let curl = "curl -s --unix-socket \(socket)"
            print("  \(curl) http://localhost/healthz")
            print(
                "  \(curl) -H 'Content-Type: application/json' -d '{\"command\":\"uname -a; sleep 1; date\"}' "
                    + "http://localhost/api/v0/processes/start")
        }
        if let token, let tcp {
            let name = ["0.0.0.0", "::"].contains(tcp.host) ? "127.0.0.1" : tcp.host
            let host = name.contains(":") ? "[\(name)]" : name
            print(
                "  curl -s -H \"Authorization: Bearer $(cat \(token.path))\" "
                    + "http://\(host):\(tcp.port)/api/v0/processes/list")
        }
        fflush(wa_stdout())
    }
}
