import ArgumentParser
import LocalAgent

/// `workspace-agent file read PATH`.
struct FileReadCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "read", abstract: "Print a file, or a part of it.",
        discussion: """
            Byte for byte, or with --lines as numbered lines of text.

            Example:
              workspace-agent file read main.go --lines --from 100 --count 20
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Option(help: "Start at this byte, counted from 0. [WORKSPACE_AGENT_FILE_READ_OFFSET]")
    var offset: Int?

    @Option(help: "Print at most this many bytes; 0 prints all. [WORKSPACE_AGENT_FILE_READ_LIMIT]")
    var limit: Int?

    @Flag(help: "Print numbered lines instead of bytes. [WORKSPACE_AGENT_FILE_READ_LINES]")
    var lines = false

    @Option(help: "Start at this line, counted from 1; needs --lines. [WORKSPACE_AGENT_FILE_READ_FROM]")
    var from: Int?

    @Option(help: "Print at most this many lines; needs --lines. [WORKSPACE_AGENT_FILE_READ_COUNT]")
    var count: Int?

    @Argument(help: "The file.", completion: .file())
    var path: String

    func validate() throws {
        let numbers = [("offset", offset, 0), ("limit", limit, 0), ("from", from, 1), ("count", count, 1)]
        for (name, value, least) in numbers where value ?? least < least {
            throw ValidationError("--\(name): must be at least \(least)")
        }
        if lines, offset ?? limit != nil { throw ValidationError("--lines goes with --from and --count") }
        if !lines, from ?? count != nil { throw ValidationError("--from and --count go with --lines") }
    }

    /// What to ask the agent for.
    func request() throws -> (name: String, query: [(String, String)]) {
        let numbers = lines ? [("offset", from), ("limit", count)] : [("offset", offset), ("limit", limit)]
        let query = numbers.compactMap { name, value in value.map { (name, String($0)) } }
        return (lines ? "read-file-lines" : "read-file", [("path", try WorkingDirectory.absolute(path))] + query)
    }

    func run() throws {
        SyncInterrupt.exitWith130()
        let client = FileClient(http: agent.client)
        let (name, query) = try request()
        let response = try client.open(name, query)
        var output = StandardOutput()
        if lines {
            let answer = LocalClient.Answer(status: response.status, body: try response.rest())
            try output.write(all: try Self.text(client.decode(Lines.self, answer)))
        } else {
            while let bytes = try response.next() { try output.write(all: bytes) }
        }
    }

    struct Lines: Decodable {
        var success: Bool
        var content: String?
        var error: String?
    }

    static func text(_ lines: Lines) throws -> [UInt8] {
        guard lines.success else { throw CommandFailure(message: lines.error ?? "the agent gave no reason") }
        guard let content = lines.content, !content.isEmpty else { return [] }
        return Array("\(content)\n".utf8)
    }
}
