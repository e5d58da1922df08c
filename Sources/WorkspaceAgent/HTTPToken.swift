import AgentCore
import CPlatform
import FoundationEssentials
import Glibc

/// The bearer token of the TCP listeners.
struct HTTPToken {
    var token: Secret<String>
    /// Where it can be read.
    var path: String
    /// We made it, so we take it away at the end.
    var isOurs: Bool

    /// Reads the token of a file that somebody keeps for us.
    static func read(_ path: String) throws -> HTTPToken {
        guard let text = readTextFile(path) else {
            throw CommandFailure(
                message: "cannot read the token file \(path): \(errnoText(errno)); check --http-token-file")
        }
        let token = String(text.split(whereSeparator: \.isWhitespace).joined())
        guard token.utf8.count >= 16 else {
            throw CommandFailure(message: "the token in \(path) is too short; use at least 16 characters")
        }
        return HTTPToken(token: Secret(token), path: path, isOurs: false)
    }

    /// Makes a token of 32 random bytes in base64url and leaves it in a file for this user alone.
    static func make(_ path: String) throws -> HTTPToken {
        var generator = SystemRandomNumberGenerator()
        let bytes = (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
        let token = Data(bytes).base64EncodedString().map { character -> Character in
            switch character {
            case "+": "-"
            case "/": "_"
            default: character
            }
        }
        let text = String(token.filter { $0 != "=" })
        try createDirectories(parentDirectory(of: path), mode: 0o700)
        // A file of its own and then a rename: nobody ever reads half a token, or one with the
        // mode of an older file.
        let temporary = "\(path).\(getpid())"
        unlink(temporary)
        let descriptor = wa_open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw CoreError.system(descriptor, "cannot write the token file \(path)") }
        defer { close(descriptor) }
        let line = Array((text + "\n").utf8)
        guard write(descriptor, line, line.count) == line.count, rename(temporary, path) == 0 else {
            let number = errno
            unlink(temporary)
            throw CoreError.system(number, "cannot write the token file \(path)")
        }
        return HTTPToken(token: Secret(text), path: path, isOurs: true)
    }

    /// Takes the file away, unless somebody has put another token there.
    func remove() {
        guard isOurs, let text = readTextFile(path), text == token.reveal() + "\n" else { return }
        unlink(path)
    }
}
