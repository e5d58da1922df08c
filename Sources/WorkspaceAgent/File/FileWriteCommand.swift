import ArgumentParser
import LocalAgent

/// `workspace-agent file write PATH`.
struct FileWriteCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "write", abstract: "Write standard input to a file, and print its new entity tag.",
        discussion: """
            The file is replaced as a whole, so that readers see the old one or the new one, and stays as it was when \
            standard input breaks off. Directories that it needs are made. --if-match takes the entity tag of the file \
            as it was last seen, and fails if somebody has changed it since.

            Example:
              workspace-agent file write --new sorted   # what it writes comes from standard input
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Option(help: "Set the file's octal mode, such as 0755. [WORKSPACE_AGENT_FILE_MODE]")
    var mode: String?

    @Flag(help: "Append to the file. [WORKSPACE_AGENT_FILE_APPEND]")
    var append = false

    @Option(help: "Write only if this is still the file's entity tag; * matches any. [WORKSPACE_AGENT_FILE_IF_MATCH]")
    var ifMatch: String?

    @Flag(help: "Write only if the file does not exist. [WORKSPACE_AGENT_FILE_NEW]")
    var new = false

    @Argument(help: "The file.", completion: .file())
    var path: String

    func validate() throws {
        if let mode, Int(mode, radix: 8).map({ (0...0o7777).contains($0) }) != true {
            throw ValidationError("--mode: \"\(mode)\" is not an octal mode such as 0755")
        }
        if new, ifMatch != nil { throw ValidationError("--new and --if-match exclude each other") }
        guard ifMatch?.isEmpty != true, ifMatch?.utf8.contains(where: { $0 < 0x20 || $0 > 0x7E }) != true else {
            throw ValidationError("--if-match: takes an entity tag, which has printable characters alone")
        }
    }

    var headers: [String: String] {
        var headers = ["Content-Type": "application/octet-stream"]
        if new { headers["If-None-Match"] = "*" }
        if let tag = ifMatch {
            // A shell takes the quotes away, which are part of it.
            headers["If-Match"] = tag == "*" || tag.hasSuffix("\"") ? tag : "\"\(tag)\""
        }
        return headers
    }

    func query() throws -> [(String, String)] {
        var query = [("path", try WorkingDirectory.absolute(path))]
        if let mode { query.append(("mode", mode)) }
        if append { query.append(("append", "true")) }
        return query
    }

    private struct Written: Decodable { var etag: String? }

    func run() throws {
        SyncInterrupt.exitWith130()
        let client = FileClient(http: agent.client)
        let answer = try client.upload("write-file", try query(), headers: headers)
        if let tag = try client.decode(Written.self, answer).etag { try StandardOutput.write("\(tag)\n") }
    }
}
