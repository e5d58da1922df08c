import AgentCore
import ArgumentParser
import CPlatform
import FoundationEssentials
import Glibc
import LocalAgent

/// `workspace-agent file edit PATH`.
struct FileEditCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "edit", abstract: "Replace text in a file or insert lines, and print what has changed.",
        discussion: """
            The text has to be in the file exactly once, or anywhere with --all. If it isn't, whole lines are looked \
            for without regard to blanks at their ends, then without regard to indentation. --edits takes a list of \
            edits, each made on the result of the one before; if one of them fails, the file stays as it is.

            Example:
              workspace-agent file edit main.go --search "x := 1" --replace "x := 2"
              echo '[{"search": "a", "replace": "b"}, {"insert_line": 0, "text": "c"}]' |
                workspace-agent file edit main.go --edits - --dry-run
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Option(parsing: .unconditional, help: "The text to replace. [WORKSPACE_AGENT_FILE_SEARCH]")
    var search: String?

    @Option(parsing: .unconditional, help: "Replacement text; may be empty. [WORKSPACE_AGENT_FILE_REPLACE]")
    var replace: String?

    @Flag(help: "Replace every occurrence. [WORKSPACE_AGENT_FILE_ALL]")
    var all = false

    @Option(help: "Insert --text after this line; 0 is the start of the file. [WORKSPACE_AGENT_FILE_INSERT_LINE]")
    var insertLine: Int?

    @Option(parsing: .unconditional, help: "The lines to insert. [WORKSPACE_AGENT_FILE_TEXT]")
    var text: String?

    @Option(
        help: "A file with a JSON list of edits; - is standard input. [WORKSPACE_AGENT_FILE_EDITS]",
        completion: .file(extensions: ["json"]))
    var edits: String?

    @Flag(help: "Make no changes; only print the diff. [WORKSPACE_AGENT_FILE_DRY_RUN]")
    var dryRun = false

    @Flag(help: "Do not print the diff. [WORKSPACE_AGENT_FILE_NO_DIFF]")
    var noDiff = false

    @Argument(help: "The file.", completion: .file())
    var path: String

    func validate() throws {
        let kinds = [search ?? replace, insertLine.map(String.init) ?? text, edits].compactMap(\.self)
        guard kinds.count == 1 else {
            throw ValidationError("give one of --search with --replace, --insert-line with --text, and --edits")
        }
        guard (search == nil) == (replace == nil) else {
            throw ValidationError("--search and --replace go together; --replace '' takes the text away")
        }
        guard (insertLine == nil) == (text == nil) else {
            throw ValidationError("--insert-line and --text go together")
        }
        if all, search == nil { throw ValidationError("--all goes with --search") }
        guard insertLine ?? 0 >= 0 else { throw ValidationError("--insert-line: must be at least 0") }
    }

    struct Body: Encodable {
        struct File: Encodable {
            var path: String
            var edits: [Edit]
        }

        var files: [File]
        var include_diff: Bool
        var dry_run: Bool?
    }

    /// An edit as the API has it.
    struct Edit: Codable, Equatable {
        var search: String?
        var replace: String?
        var replace_all: Bool?
        var insert_line: Int?
        var text: String?

        private static let names = ["search", "replace", "replace_all", "insert_line", "text"]

        /// - Parameter json: a list of edits.
        /// - Throws: ``CommandFailure`` that says which edit is wrong.
        static func list(_ json: [UInt8], from name: String) throws -> [Edit] {
            let decoder = JSONDecoder()
            guard let keys = try? decoder.decode([Keys].self, from: Data(json)),
                let edits = try? decoder.decode([Edit].self, from: Data(json)), !edits.isEmpty
            else {
                throw CommandFailure(
                    message: #"\#(name) has no JSON list of edits, such as [{"search": "a", "replace": "b"}]"#)
            }
            for (index, edit) in keys.enumerated() {
                // The agent would ignore it.
                if let key = edit.names.sorted().first(where: { !names.contains($0) }) {
                    throw CommandFailure(
                        message: "edit \(index + 1) in \(name) has the unknown field \"\(key)\"; there are "
                            + names.joined(separator: ", "))
                }
            }
            return edits
        }

        private struct Keys: Decodable {
            struct Name: CodingKey {
                var stringValue: String
                var intValue: Int? { nil }
                init(stringValue: String) { self.stringValue = stringValue }
                init?(intValue: Int) { nil }
            }

            let names: [String]

            init(from decoder: any Decoder) throws {
                names = try decoder.container(keyedBy: Name.self).allKeys.map(\.stringValue)
            }
        }
    }

    /// - Parameter list: the edits of --edits.
    func body(_ list: [Edit]) throws -> Body {
        var list = list
        if let search { list = [Edit(search: search, replace: replace, replace_all: all ? true : nil)] }
        if let insertLine { list = [Edit(insert_line: insertLine, text: text)] }
        return Body(
            files: [.init(path: try WorkingDirectory.absolute(path), edits: list)], include_diff: !noDiff,
            dry_run: dryRun ? true : nil)
    }

    private struct Answer: Decodable {
        struct File: Decodable { var diff: String? }
        var files: [File]?
    }

    func run() throws {
        SyncInterrupt.exitWith130()
        let client = FileClient(http: agent.client)
        let list = try edits.map { try Edit.list(Self.content($0), from: $0 == "-" ? "standard input" : $0) } ?? []
        let answer = try client.decode(Answer.self, client.post("edit-files", try body(list)))
        for file in answer.files ?? [] { try StandardOutput.write(file.diff ?? "") }
    }

    /// What a file has, or standard input for "-"; at most 64 MiB, which is what the agent takes.
    private static func content(_ name: String) throws -> [UInt8] {
        let limit = 64 << 20
        let descriptor = name == "-" ? 0 : wa_open(name, O_RDONLY, 0)
        guard descriptor >= 0 else { throw CommandFailure(message: "cannot read \(name): \(errnoText(-descriptor))") }
        defer { if descriptor > 0 { close(descriptor) } }
        var bytes: [UInt8] = []
        var area = [UInt8](repeating: 0, count: 64 << 10)
        while bytes.count <= limit {
            let count = read(descriptor, &area, area.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw CommandFailure(message: "cannot read \(name): \(errnoText(errno))") }
            if count == 0 { return bytes }
            bytes += area.prefix(count)
        }
        throw CommandFailure(message: "\(name) has more than \(limit) bytes of edits")
    }
}
