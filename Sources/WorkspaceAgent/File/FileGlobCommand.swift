import ArgumentParser
import LocalAgent

/// `workspace-agent file glob PATTERN`.
struct FileGlobCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "glob", abstract: "Find files by name, newest first.",
        discussion: """
            Patterns have * ** ? [] and {a,b}. One without a slash is for names at any depth; quote it, or the shell \
            takes it for its own.

            Example:
              workspace-agent file glob '*.{h,c}' src
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Option(help: "Print at most this many; default 1000. [WORKSPACE_AGENT_FILE_GLOB_LIMIT]")
    var limit: Int?

    @Flag(help: "Include files that git ignores. [WORKSPACE_AGENT_FILE_NO_GITIGNORE]")
    var noGitignore = false

    @Flag(help: "Print the answer of the file API. [WORKSPACE_AGENT_FILE_JSON]")
    var json = false

    @Argument(help: "Such as *.go or src/**/test_*.")
    var pattern: String

    @Argument(help: "Where to look; default: this directory.", completion: .directory)
    var root: String = "."

    struct Body: Encodable {
        var root: String
        var pattern: String
        var limit: Int?
        var gitignore: Bool?
    }

    func body() throws -> Body {
        Body(
            root: try WorkingDirectory.absolute(root), pattern: pattern, limit: limit,
            gitignore: noGitignore ? false : nil)
    }

    private struct Answer: Decodable {
        var paths: [String]
        var truncated: Bool?
    }

    func run() throws {
        SyncInterrupt.exitWith130()
        let client = FileClient(http: agent.client)
        let answer = try client.post("glob", try body())
        if json { return try StandardOutput.write(String(decoding: answer.body, as: UTF8.self) + "\n") }
        let found = try client.decode(Answer.self, answer)
        var out = FoundPaths()
        for path in found.paths { out.add(path) }
        try out.print()
        if found.truncated == true { note("not everything was looked at; --limit can help") }
    }
}
