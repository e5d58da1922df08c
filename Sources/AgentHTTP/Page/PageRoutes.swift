import AgentCore
import FoundationEssentials
import HTTPTypes
import Hummingbird
import NIOCore

/// `GET /ui`, the page for people, and its sessions.
public struct PageRoutes: Sendable {
    /// What the page shows of the daemon itself.
    public struct Identity: Sendable {
        public var version: String
        public var hostname: String
        /// Where commands start.
        public var directory: @Sendable () -> String
        /// As in `Workspace-Agent-Instance`.
        public var instance: UUID

        public init(
            version: String, hostname: String, instance: UUID, directory: @escaping @Sendable () -> String
        ) {
            (self.version, self.hostname, self.instance) = (version, hostname, instance)
            self.directory = directory
        }
    }

    private let sessions: PageSessions
    private let html: @Sendable () -> [UInt8]
    private let isOpen: Bool
    private let identity: Identity
    private let address: @Sendable () async throws -> String

    /// - Parameters:
    ///   - page: gives its HTML, with ``noncePlace`` where each response's nonce goes. Asked each time: it is in the
    ///     program, and takes no memory until it is read.
    ///   - isOpen: TCP listeners ask for no token (`--http-auth none`).
    ///   - address: `host:port` where a browser on this machine finds the page.
    public init(
        sessions: PageSessions, page: @escaping @Sendable () -> [UInt8], isOpen: Bool, identity: Identity,
        address: @escaping @Sendable () async throws -> String
    ) {
        (self.sessions, self.isOpen, self.identity, self.address) = (sessions, isOpen, identity, address)
        html = page
    }

    public static let noncePlace = "@NONCE@"

    public func add(to routes: AgentRoutes) {
        routes.get(PageSessions.path, page)
        routes.post("/api/v0/ui/sessions", makeCode)
        routes.get("/api/v0/ui/session", session)
        routes.on(.delete, "/api/v0/ui/session", changes: false, end)
    }

    private func page(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        let query = try Query(request, allowed: ["code"])
        if let code = query["code"] {
            guard let cookie = sessions.open(with: code) else {
                return Self.notice(
                    .forbidden, "This address was used already, or is older than \(PageSessions.codeSeconds) seconds.")
            }
            // Relative, for a proxy that adds a path prefix.
            return Response(
                status: .seeOther, headers: [.location: "ui", .setCookie: cookie, .cacheControl: "no-store"])
        }
        let mayEnter =
            switch context.connection.transport {
            case .unix, .tunnel: true
            // A wrong token was refused before.
            case .tcp: isOpen || request.headers[.authorization] != nil || sessions.mode(of: request.head) != nil
            }
        guard mayEnter else { return Self.notice(.unauthorized, "This page opens with an address of its own.") }
        let nonce = randomToken()
        var body = ByteBuffer()
        for (index, part) in Self.split(html(), at: Array(Self.noncePlace.utf8)).enumerated() {
            if index > 0 { body.writeString(nonce) }
            body.writeBytes(part)
        }
        let policy =
            "default-src 'none'; script-src 'nonce-\(nonce)'; style-src 'nonce-\(nonce)'; img-src 'self' data: blob:; "
            + "connect-src 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        return Response(status: .ok, headers: Self.headers(policy), body: ResponseBody(byteBuffer: body))
    }

    /// A browser that came from another site's link sends no strict cookie, until the page itself asks again.
    private static func notice(_ status: HTTPResponse.Status, _ text: String) -> Response {
        let nonce = randomToken()
        let again = """
            if(!sessionStorage.asked){sessionStorage.asked=1;location.replace(location.pathname)}else{sessionStorage.removeItem('asked')}
            """
        let html = """
            <!doctype html><html lang="en"><meta charset="utf-8"><title>workspace-agent</title>
            <meta name="viewport" content="width=device-width"><style nonce="\(nonce)">:root{color-scheme:light dark}\
            body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem}</style>
            <main><h1>workspace-agent</h1><p>\(text)</p>
            <p>Run <code>workspace-agent ui</code> in the workspace to get a new one.</p></main>
            \(status == .unauthorized ? "<script nonce=\"\(nonce)\">\(again)</script>" : "")</html>

            """
        let policy =
            "default-src 'none'; script-src 'nonce-\(nonce)'; style-src 'nonce-\(nonce)'; frame-ancestors 'none'; "
            + "base-uri 'none'; form-action 'none'"
        return Response(
            status: status, headers: headers(policy), body: ResponseBody(byteBuffer: ByteBuffer(string: html)))
    }

    private static func headers(_ policy: String) -> HTTPFields {
        [
            .contentType: "text/html; charset=utf-8", .cacheControl: "no-store", .xContentTypeOptions: "nosniff",
            .referrerPolicy: "no-referrer", .contentSecurityPolicy: policy,
        ]
    }

    private struct CodeRequest: Decodable { var mode: String? }
    private struct CodeAnswer: Encodable {
        var url: String
        var expires_in_seconds = PageSessions.codeSeconds
        var mode: PageSessions.Mode
    }

    private func makeCode(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        _ = try Query(request, allowed: [])
        guard sessions.mode(of: request.head) == nil else {
            throw HTTPProblem(
                .forbidden, "A page session cannot create another one.",
                detail: "Run workspace-agent ui in the workspace.")
        }
        let wanted = try await request.decodeJSON(CodeRequest.self).mode.map { text in
            guard let mode = PageSessions.Mode(rawValue: text) else {
                throw HTTPProblem.invalid("mode", "must be \"on\" or \"read-only\", not \"\(text)\"")
            }
            return mode
        }
        let place = try await address()
        let (code, mode) = try sessions.makeCode(wanted)
        return .json(CodeAnswer(url: "http://\(place)\(PageSessions.path)?code=\(code)", mode: mode))
    }

    private struct SessionAnswer: Encodable {
        var mode: PageSessions.Mode
        var version: String
        var instance: String
        var hostname: String
        var directory: String
    }

    private func session(_ request: Request, _ context: AgentRequestContext) throws -> Response {
        _ = try Query(request, allowed: [])
        return .json(
            SessionAnswer(
                mode: sessions.mode(of: request.head) ?? .on, version: identity.version,
                instance: identity.instance.lowercased,
                hostname: identity.hostname, directory: identity.directory()))
    }

    private func end(_ request: Request, _ context: AgentRequestContext) throws -> Response {
        _ = try Query(request, allowed: [])
        guard sessions.end(request.head) else {
            throw HTTPProblem(.notFound, "The request has no session of the page.")
        }
        return Response(status: .noContent)
    }

    private static func split(_ bytes: [UInt8], at place: [UInt8]) -> [ArraySlice<UInt8>] {
        var parts: [ArraySlice<UInt8>] = []
        var rest = bytes[...]
        while let range = rest.firstRange(of: place) {
            parts.append(rest[..<range.lowerBound])
            rest = rest[range.upperBound...]
        }
        return parts + [rest]
    }
}

extension HTTPField.Name {
    /// Not among those that the library names.
    public static var referrerPolicy: Self { Self("Referrer-Policy") ?? .xContentTypeOptions }
}
