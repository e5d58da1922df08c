import ArgumentParser
import FoundationEssentials
import Glibc
import LocalAgent

/// What `proc wait --for` names.
enum ProcWaitFor: ExpressibleByArgument {
    case exit
    case output(String)
    case port(Int)
    case file(String)

    init?(argument: String) {
        if argument == "exit" {
            self = .exit
            return
        }
        guard let colon = argument.firstIndex(of: ":") else { return nil }
        let value = String(argument[argument.index(after: colon)...])
        switch argument[..<colon] {
        case "output" where !value.isEmpty: self = .output(value)
        case "file" where !value.isEmpty: self = .file(value)
        case "port":
            guard let port = Int(value), (1...65535).contains(port) else { return nil }
            self = .port(port)
        default: return nil
        }
    }

    /// As a query.
    var query: String {
        switch self {
        case .exit: return "for=exit"
        case .output(let pattern): return "for=output&pattern=\(LocalClient.escaped(pattern))"
        case .port(let port): return "for=port&port=\(port)"
        case .file(let path):
            return "for=file&path=\(LocalClient.escaped((try? WorkingDirectory.absolute(path)) ?? path))"
        }
    }

    /// What had not come, in a sentence.
    var missing: String {
        switch self {
        case .exit: "it ended"
        case .output(let pattern): "its output matched \"\(pattern)\""
        case .port(let port): "port \(port) was open"
        case .file(let path): "\(path) existed"
        }
    }

    var defaultValueDescription: String { "exit" }
}

/// `workspace-agent proc wait ID`.
struct ProcWaitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "wait", abstract: "Wait for a condition of a process.",
        discussion: """
            Until it ends, until a line of its output matches a regular expression, until it or what it started \
            listens on a TCP port, or until a file exists. Exits with 0 then, and with 1 when the process ends \
            before or the time is over. Prints the line that matches, or how the process ended. --output json \
            prints the answer of the process API.

            Example:
              workspace-agent proc wait 1f3b --for output:listening --timeout 30s
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Option(
        name: .customLong("for"),
        help: "exit, output:REGEX, port:N or file:PATH. [WORKSPACE_AGENT_PROC_FOR]",
        completion: .custom(ProcCompletion.waitFor))
    var what: ProcWaitFor = .exit

    @Option(help: "Wait at most this long, such as 30s; default is without limit. [WORKSPACE_AGENT_PROC_WAIT_TIMEOUT]")
    var timeout: SyncDuration?

    @Option(name: .shortAndLong, help: "table or json. [WORKSPACE_AGENT_PROC_OUTPUT]")
    var output: ProcFormat = .table

    @Argument(help: "The process ID.", completion: .custom(ProcCompletion.all))
    var id: String

    private struct Answer: Decodable {
        var met: Bool
        var timed_out: Bool?
        var line: String?
    }

    func run() throws {
        SyncInterrupt.exitWith130()
        let client = ProcClient(http: agent.client)
        let id = try client.resolve(id)
        let response = try ask(client, id)
        let answer = try client.decode(Answer.self, response)
        if output == .json {
            try StandardOutput.write(String(decoding: response.body, as: UTF8.self) + "\n")
            if !answer.met { throw ExitCode.failure }
            return
        }
        let state = try client.decode(ProcessState.self, response)
        guard answer.met else {
            throw CommandFailure(
                message: answer.timed_out == true
                    ? "process \(id) is still running, and \(timeout?.text ?? "the time") was over before \(what.missing)"
                    : "process \(id) ended (\(state.status)) before \(what.missing)")
        }
        if case .exit = what {
            try StandardOutput.write(state.status + "\n")
        } else if let line = answer.line {
            try StandardOutput.write(line + "\n")
        }
    }

    /// Asks as often as it takes: the agent answers after five minutes at the latest.
    private func ask(_ client: ProcClient, _ id: String) throws -> LocalClient.Answer {
        let end = timeout.map { ContinuousClock.now + $0.value }
        var reconnection = Reconnection(client, id: id)
        // The first look does not wait: it learns which start of the daemon has the process.
        var most: Int64 = 0
        return try reconnection.attempt { reconnection in
            while true {
                let left = end.map { max(0, SyncDuration(ContinuousClock.now.duration(to: $0)).milliseconds) }
                let path = "\(ProcClient.route)/\(id)/wait?\(what.query)&timeout_ms=\(min(most, left ?? most))"
                let answer = try client.http.request("GET", path, allowing: Set(400...599))
                try reconnection.reached(answer.status, answer.instance)
                most = 300_000
                if answer.status == 400 {
                    throw CommandFailure(message: "--for: \(client.http.problem(answer))", code: 2)
                }
                guard answer.status == 200 else { throw client.http.refusal(answer) }
                let decoded = try client.decode(Answer.self, answer)
                if decoded.met || decoded.timed_out != true || end.map({ $0 <= .now }) == true { return answer }
            }
        }
    }
}
