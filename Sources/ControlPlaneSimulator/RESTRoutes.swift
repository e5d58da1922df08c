import AgentCore
import ControlPlaneAPI
import FoundationEssentials
import NIOHTTP1

/// What the control plane does with one HTTP request.
enum HTTPAnswer: Equatable {
    /// Answers with JSON.
    case json(Int, Data)
    /// Answers with plain text.
    case text(Int, String)
    /// Upgrades to the RPC.
    case rpc(version: APIVersion, role: String)
    /// Upgrades to DERP with this head.
    case derp(HTTPResponseHead, isWebSocket: Bool)
    /// Streams events about a new owner.
    case reinit
    /// Waits until the user has logged in to the git host.
    case login
}

/// The paths below `/api/v2/workspaceagents` (docs/contracts/control-plane.md#rest,
/// docs/contracts/control-plane.md#reinit, docs/contracts/control-plane.md#instance-identity).
struct RESTRoutes: Sendable {
    /// The token that requests must carry.
    var token: Secret<String>
    /// A higher minor version, or another major one, is refused.
    var maximumVersion: APIVersion
    var gitSSHKey: SimulatorServer.GitSSHKey?
    /// What `external-auth` answers now.
    var externalAuth: SimulatorServer.ExternalAuth?
    /// Whether this agent can be claimed; `reinit` is 409 for others.
    var isPrebuild: Bool

    private static let base = "/api/v2/workspaceagents/"

    func answer(_ head: HTTPRequestHead, _ body: Data) -> HTTPAnswer {
        let target = head.uri.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        let path = target.first.map(String.init) ?? ""
        let query = Self.query(target.count > 1 ? target[1] : "")
        guard path.hasPrefix(Self.base) else { return Self.problem(404, "there is nothing at \(path)") }
        let name = String(path.dropFirst(Self.base.count))

        if name.hasSuffix("-instance-identity") {
            guard head.method == .POST else { return Self.problem(405, "use POST") }
            return identity(name, body)
        }
        guard ["me/rpc", "me/gitsshkey", "me/external-auth", "me/reinit"].contains(name) else {
            return Self.problem(404, "there is nothing at \(path)")
        }
        guard head.method == .GET else { return Self.problem(405, "use GET") }
        let tokens = head.headers["Coder-Session-Token"]
        guard tokens.count == 1, let given = tokens.first, token.matches(given.utf8) else {
            return Self.problem(401, tokens.isEmpty ? "Coder-Session-Token is missing" : "the session token is wrong")
        }
        switch name {
        case "me/rpc": return rpc(query)
        case "me/gitsshkey":
            return gitSSHKey.map(Self.json) ?? Self.problem(404, "this workspace's owner has no key")
        case "me/external-auth":
            let (match, id) = (query["match"] ?? "", query["id"] ?? "")
            guard let auth = externalAuth,
                id.isEmpty
                    ? auth.serves.isEmpty || auth.serves.contains(where: match.hasPrefix)
                    : auth.id.isEmpty || auth.id == id
            else {
                return Self.problem(404, id.isEmpty ? "no provider matches \(match)" : "there is no provider \(id)")
            }
            return !auth.url.isEmpty && query["listen"] == "true" ? .login : Self.json(auth)
        default:
            return isPrebuild ? .reinit : Self.problem(409, "this agent belongs to no prebuilt workspace")
        }
    }

    private func rpc(_ query: [String: String]) -> HTTPAnswer {
        let text = query["version"] ?? ""
        let parts = text.split(separator: ".", omittingEmptySubsequences: false).map { Int($0) }
        guard parts.count == 2, let major = parts[0], let minor = parts[1], major >= 0, minor >= 0 else {
            return unsupported("\"\(text)\" is not MAJOR.MINOR")
        }
        let version = APIVersion(major, minor)
        guard major == maximumVersion.major, version <= maximumVersion else {
            return unsupported("\(version) is asked for; at most \(maximumVersion) is spoken here")
        }
        return .rpc(version: version, role: query["role"] ?? "")
    }

    private func unsupported(_ detail: String) -> HTTPAnswer {
        Self.problem(
            400, "Unknown or unsupported API version", validations: [.init(field: "version", detail: detail)])
    }

    private func identity(_ name: String, _ body: Data) -> HTTPAnswer {
        let needed: [String]
        switch name {
        case "aws-instance-identity": needed = ["signature", "document"]
        case "azure-instance-identity": needed = ["signature", "encoding"]
        case "google-instance-identity": needed = ["json_web_token"]
        default: return Self.problem(404, "there is no \(name)")
        }
        guard case .object(let fields)? = try? JSONDecoder().decode(JSONValue.self, from: body) else {
            return Self.problem(400, "the body is no JSON object")
        }
        for field in needed {
            guard case .string(let value)? = fields[field], !value.isEmpty else {
                return Self.problem(
                    400, "the request is incomplete", validations: [.init(field: field, detail: "is missing")])
            }
        }
        return Self.json(["session_token": token.reveal()])
    }

    // MARK: Bodies

    /// An error body as the control plane sends it.
    private struct Problem: Encodable {
        struct Validation: Encodable {
            var field: String
            var detail: String
        }
        var message: String
        var validations: [Validation]?
    }

    static func problem(_ status: Int, _ message: String) -> HTTPAnswer { problem(status, message, validations: nil) }

    private static func problem(_ status: Int, _ message: String, validations: [Problem.Validation]?) -> HTTPAnswer {
        json(Problem(message: message, validations: validations), status: status)
    }

    static func json(_ value: some Encodable) -> HTTPAnswer { json(value, status: 200) }

    private static func json(_ value: some Encodable, status: Int) -> HTTPAnswer {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return .json(status, (try? encoder.encode(value)) ?? Data("{}".utf8))
    }

    private static func query(_ text: Substring) -> [String: String] {
        var fields: [String: String] = [:]
        for pair in text.split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard let name = parts.first else { continue }
            fields[String(name)] = parts.count > 1 ? unescaped(parts[1]) : ""
        }
        return fields
    }

    private static func unescaped(_ text: Substring) -> String {
        var bytes: [UInt8] = []
        var rest = text.utf8
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "%"), rest.count >= 2,
                let value = UInt8(String(Substring(rest.prefix(2))), radix: 16)
            {
                bytes.append(value)
                rest = rest.dropFirst(2)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
