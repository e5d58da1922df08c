import ArgumentParser
import Files
import FoundationEssentials
import LocalAgent

/// `workspace-agent file …`: files through the agent's file API.
struct FileCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "file", abstract: "Read, write, edit and search the workspace's files.",
        discussion: """
            A path that doesn't begin with / is in this working directory.

            Example:
              workspace-agent file edit main.go --search "x := 1" --replace "x := 2"
            """,
        subcommands: [
            FileReadCommand.self, FileWriteCommand.self, FileEditCommand.self, FileGrepCommand.self,
            FileGlobCommand.self,
        ])
}

/// The file API as the commands use it.
struct FileClient {
    private static let route = "/api/v0"

    let http: LocalClient

    /// - Throws: ``CommandFailure`` with what the agent said.
    func post(_ name: String, _ body: some Encodable) throws -> LocalClient.Answer {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .withoutEscapingSlashes
        let json = String(decoding: try encoder.encode(body), as: UTF8.self)
        return try http.request("POST", "\(Self.route)/\(name)", json, allowing: Set(400...599)).success(http)
    }

    /// The answer, whose body is still to be read.
    /// - Throws: ``CommandFailure`` with what the agent said.
    func open(_ name: String, _ query: [(String, String)]) throws -> LocalResponse {
        let response = try http.open("GET", Self.target(name, query))
        guard response.status == 200 else {
            throw CommandFailure(message: http.problem(.init(status: response.status, body: try response.rest())))
        }
        return response
    }

    /// Sends all of standard input.
    /// - Throws: ``CommandFailure`` with what the agent said.
    func upload(
        _ name: String, _ query: [(String, String)], headers: [String: String]
    ) throws -> LocalClient.Answer {
        try http.upload(Self.target(name, query), headers: headers, from: 0).success(http)
    }

    func decode<T: Decodable>(_ type: T.Type, _ answer: LocalClient.Answer) throws -> T {
        try http.decode(type, answer)
    }

    static func target(_ name: String, _ query: [(String, String)]) -> String {
        let query = query.map { "\($0)=\(LocalClient.escaped($1))" }.joined(separator: "&")
        return "\(route)/\(name)?\(query)"
    }
}

extension LocalClient.Answer {
    /// - Throws: ``CommandFailure`` with the agent's own text, which names the path, unless the status is 200.
    func success(_ client: LocalClient) throws -> LocalClient.Answer {
        guard status == 200 else { throw CommandFailure(message: client.problem(self)) }
        return self
    }
}

/// Prints what the agent found.
struct FoundPaths {
    private(set) var bytes: [UInt8] = []

    /// - Parameter path: as the API writes it; printed as it is on disk.
    mutating func add(_ path: String, _ rest: String = "") {
        bytes += PathText.bytes(path)
        bytes += rest.utf8
        bytes.append(UInt8(ascii: "\n"))
    }

    mutating func add(line: String) { bytes += "\(line)\n".utf8 }

    func print() throws {
        var output = StandardOutput()
        try output.write(all: bytes)
    }
}
