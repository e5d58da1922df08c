import ArgumentParser
import LocalAgent

/// `workspace-agent file grep PATTERN`.
struct FileGrepCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "grep", abstract: "Search the contents of files.",
        discussion: """
            Looks at all text files below a directory but those that git ignores. Prints PATH:LINE:TEXT, and lines of \
            context as PATH-LINE-TEXT. Exits with 1 if there is no such line and with 2 if something is wrong.

            Example:
              workspace-agent file grep "func \\w+Test" src --glob '*.go' --context 2
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Flag(help: "Treat the pattern as text, not as a regular expression. [WORKSPACE_AGENT_FILE_FIXED]")
    var fixed = false

    @Flag(help: "Ignore case. [WORKSPACE_AGENT_FILE_IGNORE_CASE]")
    var ignoreCase = false

    @Option(help: "Search only files that match, such as *.go or src/**. [WORKSPACE_AGENT_FILE_GLOB]")
    var glob: String?

    @Option(help: "Print this many lines before and after each match. [WORKSPACE_AGENT_FILE_CONTEXT]")
    var context: Int?

    @Option(help: "Print at most this many lines; default 200. [WORKSPACE_AGENT_FILE_GREP_LIMIT]")
    var limit: Int?

    @Flag(help: "Print the answer of the file API. [WORKSPACE_AGENT_FILE_JSON]")
    var json = false

    @Argument(help: "A regular expression of RE2's syntax.")
    var pattern: String

    @Argument(help: "A directory, or a file; default: this directory.", completion: .file())
    var root: String = "."

    struct Body: Encodable {
        var root: String
        var pattern: String
        var fixed: Bool?
        var ignore_case: Bool?
        var glob: String?
        var context: Int?
        var limit: Int?
    }

    func body() throws -> Body {
        Body(
            root: try WorkingDirectory.absolute(root), pattern: pattern, fixed: fixed ? true : nil,
            ignore_case: ignoreCase ? true : nil, glob: glob, context: context, limit: limit)
    }

    struct Answer: Decodable {
        struct Match: Decodable {
            var path: String
            var line: Int
            var text: String
            var before: [String]?
            var after: [String]?
        }

        var matches: [Match]
        var truncated: Bool?
    }

    func run() throws {
        SyncInterrupt.exitWith130()
        do {
            let client = FileClient(http: agent.client)
            let answer = try client.post("grep", try body())
            let found = try client.decode(Answer.self, answer)
            if json {
                try StandardOutput.write(String(decoding: answer.body, as: UTF8.self) + "\n")
            } else {
                try Self.text(found.matches).print()
                if found.truncated == true { note("not everything was looked at; --limit or --glob can help") }
            }
            if found.matches.isEmpty { throw ExitCode(1) }
        } catch var failure as CommandFailure {
            failure.code = 2
            throw failure
        }
    }

    /// As grep prints it: a line that belongs to two matches once, and `--` where lines are left out.
    static func text(_ matches: [Answer.Match]) -> FoundPaths {
        var out = FoundPaths()
        var last: (path: String, line: Int)?
        let hasContext = matches.contains { $0.before?.isEmpty == false || $0.after?.isEmpty == false }
        for (index, match) in matches.enumerated() {
            func isSame(_ path: String) -> Bool { path.utf8.elementsEqual(match.path.utf8) }
            let known = last.flatMap { isSame($0.path) ? $0.line : nil }
            guard match.line > known ?? 0 else { continue }
            let before = match.before ?? []
            let start = match.line - before.count
            if hasContext, last != nil, known.map({ start > $0 + 1 }) ?? true { out.add(line: "--") }
            for (line, text) in zip(start..., before) where line > known ?? 0 {
                out.add(match.path, "-\(line)-\(text)")
            }
            out.add(match.path, ":\(match.line):\(match.text)")
            // What the next match shows itself comes with it.
            let next = matches.dropFirst(index + 1).first.flatMap { isSame($0.path) ? $0.line : nil } ?? .max
            let after = zip((match.line + 1)..., match.after ?? []).prefix { $0.0 < next }
            for (line, text) in after { out.add(match.path, "-\(line)-\(text)") }
            last = (match.path, match.line + after.count)
        }
        return out
    }
}
