import AgentCore
import AgentHTTP
import CPlatform
import Glibc
import HTTPTypes
import Hummingbird
import NIOCore

/// `GET /viewer`: a page with noVNC, and noVNC's own files below it.
package struct ViewerFiles: Sendable {
    package static let path = "\(DesktopRoutes.base)/viewer"
    /// Where Debian's package novnc installs it.
    package static let defaultDirectory = "/usr/share/novnc"

    /// For the listeners' access policy: a browser can open it with the token in the query.
    package let page = BrowserPage(path: ViewerFiles.path, cookie: "workspace_agent_viewer")
    private let directory: String
    private let pool: BlockingPool

    /// - Parameters:
    ///   - directory: noVNC's, with `core/rfb.js` in it.
    ///   - pool: where files are read.
    package init(directory: String = ViewerFiles.defaultDirectory, pool: BlockingPool) {
        self.directory = directory
        self.pool = pool
    }

    func add(to routes: AgentRoutes) {
        routes.get(Self.path, viewer)
        // The router has no parameter for a path of any depth.
        var path = Self.path
        for level in 1...SessionLimits.viewerDepth {
            path += "/{p\(level)}"
            routes.get(path) { request, context in try await file(request, context, depth: level) }
        }
    }

    private func viewer(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        _ = try Query(request, allowed: ["token", "view_only"])
        let module = "\(directory)/core/rfb.js"
        guard try await pool.run({ access(module, R_OK) == 0 }) else { throw notInstalled }
        let nonce = (0..<2).map { _ in String(UInt64.random(in: 0 ... .max), radix: 36) }.joined()
        return Response(
            status: .ok,
            headers: Self.headers("text/html; charset=utf-8", caching: "no-store").merging([
                .setCookie: page.setCookie,
                .contentSecurityPolicy: "default-src 'none'; script-src 'self' 'nonce-\(nonce)'; "
                    + "style-src 'nonce-\(nonce)'; img-src 'self' data: blob:; connect-src 'self' ws: wss:; "
                    + "base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
            ]), body: ResponseBody(byteBuffer: ByteBuffer(string: ViewerPage.html(nonce: nonce))))
    }

    private var notInstalled: HTTPProblem {
        HTTPProblem(
            .notFound, "noVNC is not installed.",
            detail: "Install Debian's package novnc, or name the directory that holds core/rfb.js with --novnc-dir.")
    }

    private func file(_ request: Request, _ context: AgentRequestContext, depth: Int) async throws -> Response {
        _ = try Query(request, allowed: [])
        let parts = try (1...depth).map { try context.pathParameter("p\($0)") }
        guard parts.allSatisfy(Self.isPlain), let type = Self.type(of: parts.last ?? "") else { throw Self.noFile }
        let path = "\(directory)/\(parts.joined(separator: "/"))"
        guard let bytes = try await pool.run({ Self.read(path) }) else { throw Self.noFile }
        return Response(
            status: .ok, headers: Self.headers(type, caching: "private, max-age=3600"),
            body: ResponseBody(byteBuffer: bytes))
    }

    private static let noFile = HTTPProblem(.notFound, "The viewer has no such file.")

    /// Whether a name stays within its directory.
    static func isPlain(_ name: String) -> Bool {
        !name.isEmpty && !name.hasPrefix(".") && !name.utf8.contains(0) && !name.contains("/") && !name.contains("\\")
    }

    private static let types = [
        "js": "text/javascript; charset=utf-8", "mjs": "text/javascript; charset=utf-8",
        "html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "json": "application/json",
        "svg": "image/svg+xml", "png": "image/png", "ico": "image/x-icon", "mp3": "audio/mpeg", "oga": "audio/ogg",
        "ttf": "font/ttf", "woff": "font/woff", "woff2": "font/woff2", "wasm": "application/wasm",
        "map": "application/json",
    ]

    private static func type(of name: String) -> String? {
        name.lastIndex(of: ".").flatMap { types[name[name.index(after: $0)...].lowercased()] }
    }

    private static func headers(_ type: String, caching: String) -> HTTPFields {
        [
            .contentType: type, .cacheControl: caching, .xContentTypeOptions: "nosniff",
            .referrerPolicy: "no-referrer",
        ]
    }

    /// nil when it is no regular file, or too large.
    private static func read(_ path: String) -> ByteBuffer? {
        let descriptor = wa_open(path, O_RDONLY | O_NONBLOCK, 0)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var info = stat()
        guard fstat(descriptor, &info) == 0, info.st_mode & S_IFMT == S_IFREG,
            info.st_size <= SessionLimits.viewerFileBytes
        else { return nil }
        let size = Int(info.st_size)
        var buffer = ByteBufferAllocator().buffer(capacity: size)
        while buffer.readableBytes < size {
            let missing = size - buffer.readableBytes
            let count = buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: missing) { area in
                max(0, wa_read(descriptor, area.baseAddress, missing))
            }
            if count <= 0 { return nil }
        }
        return buffer
    }
}

extension HTTPFields {
    fileprivate func merging(_ other: HTTPFields) -> HTTPFields {
        var result = self
        for field in other { result.append(field) }
        return result
    }
}
