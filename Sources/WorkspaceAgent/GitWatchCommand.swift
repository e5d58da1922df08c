import AgentCore
import ArgumentParser
import CPlatform
import FoundationEssentials
import Glibc

struct GitCommands: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "git", abstract: "Look at git work trees as the agent sees them.",
        discussion: """
            Example:
              workspace-agent git watch
            """,
        subcommands: [GitWatchCommand.self])
}

/// `workspace-agent git watch`.
struct GitWatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch", abstract: "Print the changes of git repositories as they come.",
        discussion: """
            Shows what has changed since the last commit, untracked files included, and again whenever that changes:
            of the repositories that a chat's tool calls touched, or of those that hold the given paths.

            Example:
              workspace-agent git watch ~/project
            """)

    @Option(help: "The chat whose repositories to watch, a UUID. [WORKSPACE_AGENT_CHAT]")
    var chat: String?

    @Option(help: "Unix socket of the HTTP API. [WORKSPACE_AGENT_HTTP_SOCKET]")
    var httpSocket: String?

    @Argument(help: "Paths to watch; they become part of the chat. Without a chat: the working directory.")
    var path: [String] = []

    func validate() throws {
        if let chat, UUID(uuidString: chat) == nil { throw ValidationError("--chat: \"\(chat)\" is not a UUID") }
    }

    func run() throws {
        SyncInterrupt.exitWith130()
        let environment = ProcessEnvironment.current
        let socket = LocalSocket.http(httpSocket, environment)
        let id = (chat ?? UUID().uuidString).lowercased()
        var paths = path
        if paths.isEmpty, chat == nil { paths = ["."] }
        for path in paths {
            guard let real = realpath(path, nil) else { throw CommandFailure(message: "\(path): \(errnoText(errno))") }
            defer { free(real) }
            try touch(String(cString: real), chat: id, socket)
        }
        let client = try WatchClient(socket)
        try client.upgrade("/api/v0/git/watch?chat_id=\(id)")
        let colours = isatty(1) != 0 && environment["NO_COLOR"] == nil
        while let text = try client.message() { try show(text, colours) }
        throw CommandFailure(message: "the agent at \(socket) has closed the connection")
    }

    /// A path becomes the chat's by a tool call that touches it: a process that does nothing there.
    private func touch(_ path: String, chat: String, _ socket: String) throws {
        struct Body: Encodable {
            var command = "true"
            var workdir: String
        }
        var info = stat()
        let isDirectory = stat(path, &info) == 0 && info.st_mode & S_IFMT == S_IFDIR
        let parent = path.lastIndex(of: "/").map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "/"
        let body = try JSONEncoder().encode(Body(workdir: isDirectory ? path : parent))
        let status = try WatchClient(socket).post("/api/v0/processes/start", body, chat: chat)
        guard status == 200 else {
            throw CommandFailure(message: "the agent at \(socket) refused \(path): status \(status)")
        }
    }

    private struct Message: Decodable {
        struct Repository: Decodable {
            var repo_root: String
            var branch: String
            var remote_origin: String?
            var unified_diff: String?
            var removed: Bool?
        }
        var type: String
        var scanned_at: String?
        var message: String?
        var repositories: [Repository]?
    }

    private func show(_ text: String, _ colours: Bool) throws {
        guard let message = try? JSONDecoder().decode(Message.self, from: Data(text.utf8)) else {
            throw CommandFailure(message: "the agent sent something that is no message of the git watcher")
        }
        if message.type == "error" { fputs("workspace-agent: \(message.message ?? "")\n", wa_stderr()) }
        func paint(_ code: String, _ line: some StringProtocol) -> String {
            colours && !line.isEmpty ? "\u{1B}[\(code)m\(line)\u{1B}[0m" : String(line)
        }
        var out = ""
        for repository in message.repositories ?? [] {
            let state =
                repository.removed == true
                ? "removed" : repository.branch.isEmpty ? "detached" : "on \(repository.branch)"
            let origin = repository.remote_origin.map { ", origin \($0)" } ?? ""
            out += paint("1", "== \(repository.repo_root) \(state)\(origin) (\(message.scanned_at ?? ""))") + "\n"
            for line in (repository.unified_diff ?? "").split(separator: "\n", omittingEmptySubsequences: false) {
                switch line.first {
                case "+": out += paint("32", line)
                case "-": out += paint("31", line)
                case "@": out += paint("36", line)
                case "d", "i", "n", "o": out += paint("1", line)
                default: out += line
                }
                out += "\n"
            }
        }
        // Control characters of file contents must not steer a terminal.
        if colours { out = String(String.UnicodeScalarView(out.unicodeScalars.map { Self.harmless($0) })) }
        fputs(out, wa_stdout())
        fflush(wa_stdout())
    }

    private static func harmless(_ scalar: Unicode.Scalar) -> Unicode.Scalar {
        // Escape is what we paint with; one in a file loses its effect with the next of ours.
        scalar.value < 0x20 && ![9, 10, 0x1B].contains(scalar.value) || scalar.value == 0x7F ? "\u{FFFD}" : scalar
    }
}

/// A blocking client of one request or WebSocket over a unix socket.
final class WatchClient {
    private let descriptor: CInt
    private let path: String
    private var buffer: [UInt8] = []

    init(_ path: String) throws {
        self.path = path
        descriptor = try LocalSocket.connect(path)
    }

    deinit { close(descriptor) }

    /// - Returns: the status.
    func post(_ route: String, _ body: Data, chat: String) throws -> Int {
        try send(
            Array(
                """
                POST \(route) HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r
                Coder-Chat-Id: \(chat)\r\nContent-Length: \(body.count)\r\nConnection: close\r\n\r\n
                """.utf8) + body)
        return try head()
    }

    func upgrade(_ route: String) throws {
        let key = Data((0..<16).map { _ in UInt8.random(in: 0...255) }).base64EncodedString()
        try send(
            Array(
                """
                GET \(route) HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \(key)\r\n\r\n
                """.utf8))
        let status = try head()
        guard status == 101 else {
            throw CommandFailure(message: "the agent at \(path) refused to watch: status \(status)")
        }
    }

    /// The next text message; nil when the agent closed. The server never cuts a message in pieces.
    func message() throws -> String? {
        while true {
            guard let start = try take(2) else { return nil }
            var count = Int(start[1] & 0x7F)
            if count >= 126 {
                guard let long = try take(count == 126 ? 2 : 8) else { return nil }
                count = long.reduce(0) { ($0 & 0xFF_FFFF_FFFF) << 8 | Int($1) }
            }
            guard count <= 64 << 20, let payload = try take(count) else { return nil }
            switch start[0] & 0x0F {
            case 1: return String(decoding: payload, as: UTF8.self)
            case 8: return nil
            case 9: try send([0x8A, 0x80 | UInt8(truncatingIfNeeded: payload.count), 0, 0, 0, 0] + payload)
            default: break
            }
        }
    }

    private func head() throws -> Int {
        var head: [UInt8] = []
        while !head.suffix(4).elementsEqual([13, 10, 13, 10]) {
            guard head.count < 65536, let byte = try take(1) else {
                throw CommandFailure(message: "the agent at \(path) gave no answer")
            }
            head += byte
        }
        let words = String(decoding: head, as: UTF8.self).split(separator: " ")
        return words.count > 1 ? Int(words[1]) ?? 0 : 0
    }

    private func take(_ count: Int) throws -> [UInt8]? {
        var area = [UInt8](repeating: 0, count: 64 << 10)
        while buffer.count < count {
            let got = read(descriptor, &area, area.count)
            if got < 0 && errno == EINTR { continue }
            guard got > 0 else { return nil }
            buffer += area.prefix(got)
        }
        defer { buffer.removeFirst(count) }
        return Array(buffer.prefix(count))
    }

    private func send(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count > 0 else {
                throw CommandFailure(message: "cannot write to the agent at \(path): \(errnoText(errno))")
            }
            rest = rest.dropFirst(count)
        }
    }
}
