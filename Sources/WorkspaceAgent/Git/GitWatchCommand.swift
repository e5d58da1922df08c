import AgentCore
import ArgumentParser
import CPlatform
import FoundationEssentials
import Glibc
import LocalAgent

struct GitCommands: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "git", abstract: "Watch git work trees as the agent does.",
        discussion: """
            Example:
              workspace-agent git watch
            """,
        subcommands: [GitWatchCommand.self])
}

/// `workspace-agent git watch`.
struct GitWatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch", abstract: "Print the changes of git repositories as they happen.",
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
        let client = LocalClient(socket: LocalSocket.http(httpSocket, environment))
        let id = (chat ?? UUID().uuidString).lowercased()
        var paths = path
        if paths.isEmpty, chat == nil { paths = ["."] }
        for path in paths {
            guard let real = realpath(path, nil) else { throw CommandFailure(message: "\(path): \(errnoText(errno))") }
            defer { free(real) }
            try touch(String(cString: real), chat: id, client)
        }
        let colours = isatty(1) != 0 && environment["NO_COLOR"] == nil
        let watch: LocalWebSocket
        do {
            watch = try LocalWebSocket(client, "/api/v0/git/watch?chat_id=\(id)")
        } catch let refusal as LocalWebSocket.Refusal {
            throw client.refusal(refusal.answer)
        }
        while let message = try watch.next() {
            switch message {
            case .text(let text): try show(text, colours)
            case .binary: break
            case .close: throw CommandFailure(message: "the agent at \(client.socket) has closed the connection")
            }
        }
    }

    /// A path becomes the chat's by a tool call that touches it: a process that does nothing there.
    private func touch(_ path: String, chat: String, _ client: LocalClient) throws {
        struct Body: Encodable {
            var command = "true"
            var workdir: String
        }
        var info = stat()
        let isDirectory = stat(path, &info) == 0 && info.st_mode & S_IFMT == S_IFDIR
        let parent = path.lastIndex(of: "/").map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "/"
        let body = try JSONEncoder().encode(Body(workdir: isDirectory ? path : parent))
        let answer = try client.request(
            "POST", "/api/v0/processes/start", String(decoding: body, as: UTF8.self),
            headers: ["Coder-Chat-Id": chat], allowing: Set(400...599))
        guard answer.status == 200 else {
            throw CommandFailure(
                message: "the agent at \(client.socket) refused \(path): \(client.problem(answer))")
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
            throw CommandFailure(message: "the agent sent something that is not a message of the git watcher")
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
