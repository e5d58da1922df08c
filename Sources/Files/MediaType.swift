/// Content types by the extension of a name.
enum MediaType {
    private static let text = [
        "html": "html", "htm": "html", "css": "css", "js": "javascript", "mjs": "javascript", "xml": "xml",
        "txt": "plain", "text": "plain", "log": "plain", "md": "markdown", "csv": "csv", "ics": "calendar",
    ]
    private static let other = [
        "json": "application/json", "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif",
        "svg": "image/svg+xml", "webp": "image/webp", "avif": "image/avif", "bmp": "image/bmp",
        "ico": "image/vnd.microsoft.icon", "tif": "image/tiff", "tiff": "image/tiff", "pdf": "application/pdf",
        "wasm": "application/wasm", "zip": "application/zip", "gz": "application/gzip", "tar": "application/x-tar",
        "mp3": "audio/mpeg", "wav": "audio/wav", "ogg": "audio/ogg", "mp4": "video/mp4", "webm": "video/webm",
        "woff": "font/woff", "woff2": "font/woff2", "ttf": "font/ttf", "otf": "font/otf",
    ]
    static let unknown = "application/octet-stream"

    /// - Parameter path: of any kind; what it names is not looked at.
    static func of(_ path: String) -> String {
        let name = LexicalPath.name(path)
        guard let dot = name.utf8.lastIndex(of: UInt8(ascii: ".")) else { return unknown }
        let ending = name[name.utf8.index(after: dot)...].lowercased()
        if let subtype = text[ending] { return "text/\(subtype); charset=utf-8" }
        return other[ending] ?? unknown
    }
}
