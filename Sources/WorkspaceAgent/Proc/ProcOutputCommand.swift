import ArgumentParser
import FoundationEssentials
import Glibc
import LocalAgent

/// `workspace-agent proc output ID`.
struct ProcOutputCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "output", abstract: "Print the output of a process.",
        discussion: """
            Its first and last 16 KiB with long lines cut, --raw all of it, --follow all of it and what comes, until \
            it ends. --output json prints the answer of the process API; it changes nothing about --raw and --follow.

            Example:
              workspace-agent proc output 1f3b --follow
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Flag(name: .shortAndLong, help: "Print all output and keep following it. [WORKSPACE_AGENT_PROC_FOLLOW]")
    var follow = false

    @Flag(help: "Print all output, byte for byte. [WORKSPACE_AGENT_PROC_RAW]")
    var raw = false

    @Option(name: .shortAndLong, help: "table or json. [WORKSPACE_AGENT_PROC_OUTPUT]")
    var output: ProcFormat = .table

    @Argument(help: "The process ID.", completion: .custom(ProcCompletion.all))
    var id: String

    func validate() throws {
        guard !(follow && raw) else { throw ValidationError("--follow and --raw exclude each other") }
    }

    func run() throws {
        SyncInterrupt.exitWith130()
        let client = ProcClient(http: agent.client)
        let id = try client.resolve(id)
        if follow { return try Self.follow(client, id) }
        if raw { return try Self.raw(client, id) }
        let answer = try client.http.request("GET", "\(ProcClient.route)/\(id)/output", limit: ProcClient.limit)
        if output == .json { return try StandardOutput.write(String(decoding: answer.body, as: UTF8.self) + "\n") }
        struct Answer: Decodable {
            var output: String
            var cut_lines: Int?
        }
        let decoded = try client.decode(Answer.self, answer)
        try StandardOutput.write(decoded.output)
        if let cut = decoded.cut_lines { note("\(cut) long lines are cut; --raw has them whole") }
    }

    private static func raw(_ client: ProcClient, _ id: String) throws {
        let response = try client.http.open("GET", "\(ProcClient.route)/\(id)/output/raw")
        guard response.status == 200 else {
            throw client.http.refusal(.init(status: response.status, body: try response.rest()))
        }
        var output = StandardOutput()
        while let bytes = try response.next() { try output.write(all: bytes) }
    }

    private struct Chunk: Decodable {
        var offset: Int
        var text: String?
        var base64: String?
        var bytes: Int?

        var content: [UInt8] {
            if let text { return Array(text.utf8) }
            return base64.flatMap { Data(base64Encoded: $0) }.map { Array($0) } ?? []
        }
    }

    private static func follow(_ client: ProcClient, _ id: String) throws {
        var reconnection = Reconnection(client, id: id)
        var output = StandardOutput()
        var missing = MissingOutput()
        var offset = 0
        try reconnection.attempt { reconnection in
            let response = try client.http.open(
                "GET", "\(ProcClient.route)/\(id)/output/stream?offset=\(offset)", limit: .seconds(60))
            try reconnection.reached(response.status, response.headers["workspace-agent-instance"])
            guard response.status == 200 else {
                throw client.http.refusal(.init(status: response.status, body: try response.rest()))
            }
            var events = LocalEvents(response)
            while let event = try events.next() {
                if event.name == "exit" { return missing.sayTotal() }
                guard let chunk = try? JSONDecoder().decode(Chunk.self, from: Data(event.data.utf8)) else { continue }
                if event.name == "gone", let count = chunk.bytes {
                    missing.add(count, at: chunk.offset)
                    offset = chunk.offset + count
                } else if event.name == "output" {
                    let bytes = chunk.content
                    try output.write(all: bytes)
                    offset = chunk.offset + bytes.count
                }
            }
            throw CommandFailure(message: "the agent at \(client.http.socket) ended the stream", isLost: true)
        }
    }
}
