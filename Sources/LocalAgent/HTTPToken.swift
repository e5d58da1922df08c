import AgentCore
import Glibc

/// The bearer token of the TCP listeners.
package struct HTTPToken {
    package var token: Secret<String>
    /// Where it can be read.
    package var path: String
    /// We made it, so we take it away at the end.
    package var isOurs: Bool

    /// Bytes of a file that is read.
    private static let fileBytes = 8 << 10

    /// Reads the token of a file that was named to us.
    /// - Returns: the token, and whether other users may read or change the file.
    package static func read(_ path: String) throws -> (token: HTTPToken, isOpenToOthers: Bool) {
        let file: (bytes: [UInt8], isOpenToOthers: Bool)
        do {
            file = try OwnFile.readNamed(path, limit: fileBytes)
        } catch {
            throw CommandFailure(message: "--http-token-file: \(error)")
        }
        let text = String(decoding: file.bytes, as: UTF8.self)
        let token = String(text.split(whereSeparator: \.isWhitespace).joined())
        guard token.utf8.count >= 16 else {
            throw CommandFailure(message: "the token in \(path) is too short; use at least 16 characters")
        }
        return (HTTPToken(token: Secret(token), path: path, isOurs: false), file.isOpenToOthers)
    }

    /// Makes a token of 32 random bytes in base64url and leaves it in a file for this user alone.
    package static func make(_ path: String) throws -> HTTPToken {
        let text = randomToken()
        try createDirectories(parentDirectory(of: path), mode: 0o700)
        try OwnFile.replace(path, with: Array((text + "\n").utf8))
        return HTTPToken(token: Secret(text), path: path, isOurs: true)
    }

    /// Removes the file, unless it holds another token by now.
    package func remove() {
        guard isOurs, let bytes = try? OwnFile.read(path, limit: Self.fileBytes) else { return }
        if bytes == Array((token.reveal() + "\n").utf8) { unlink(path) }
    }
}
