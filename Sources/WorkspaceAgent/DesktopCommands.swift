import AgentCore
import ArgumentParser
import CPlatform
import Desktop
import FoundationEssentials
import Glibc
import LocalAgent

struct DesktopCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "desktop", abstract: "Use the workspace's virtual desktop.",
        discussion: """
            Example:
              workspace-agent desktop screenshot desktop.png
            """,
        subcommands: [DesktopStartCommand.self, DesktopScreenshotCommand.self, DesktopViewCommand.self])
}

/// `workspace-agent desktop start`.
struct DesktopStartCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "start", abstract: "Start the desktop if it is not running, and print its size and port.",
        discussion: """
            Example:
              workspace-agent desktop start
            """)

    @OptionGroup var agent: HTTPAgentOptions

    private struct Status: Decodable {
        var width: Int?
        var height: Int?
        var vnc_port: Int?
        var viewers: Int
        var recordings: Int
    }

    func run() throws {
        SyncInterrupt.exitWith130()
        let client = agent.client
        // Whatever looks at the desktop starts it; this is the least.
        _ = try client.request("POST", "/api/v0/desktop/action", #"{"action":"cursor_position"}"#)
        let answer = try client.request("GET", "/api/v0/desktop/status")
        guard let status = try? JSONDecoder().decode(Status.self, from: Data(answer.body)),
            let width = status.width, let height = status.height, let port = status.vnc_port
        else { throw CommandFailure(message: "the agent at \(client.socket) has lost the desktop again; see its log") }
        print(
            "desktop \(width)x\(height), VNC on 127.0.0.1:\(port), \(status.viewers) viewers, \(status.recordings) recordings"
        )
    }
}

/// `workspace-agent desktop screenshot FILE`.
struct DesktopScreenshotCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "screenshot", abstract: "Take a screenshot of the desktop, starting it if it is not running.",
        discussion: """
            Example:
              workspace-agent desktop screenshot desktop.png
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Option(help: "Scale the picture to this width; needs --height. [WORKSPACE_AGENT_SCREENSHOT_WIDTH]")
    var width: Int?

    @Option(help: "Scale the picture to this height; needs --width. [WORKSPACE_AGENT_SCREENSHOT_HEIGHT]")
    var height: Int?

    @Argument(help: "A PNG file, which is replaced; - is standard output.", completion: .file(extensions: ["png"]))
    var file: String

    func validate() throws {
        guard (width == nil) == (height == nil) else { throw ValidationError("--width and --height go together") }
    }

    private struct Action: Encodable {
        var action = "screenshot"
        var scaled_width: Int?
        var scaled_height: Int?
    }

    private struct Answer: Decodable { var screenshot_data: String }

    func run() throws {
        SyncInterrupt.exitWith130()
        let body = try JSONEncoder().encode(Action(scaled_width: width, scaled_height: height))
        let client = agent.client
        let answer = try client.request("POST", "/api/v0/desktop/action", String(decoding: body, as: UTF8.self))
        guard let decoded = try? JSONDecoder().decode(Answer.self, from: Data(answer.body)),
            let picture = Data(base64Encoded: decoded.screenshot_data)
        else { throw CommandFailure(message: "the agent at \(client.socket) sent no picture") }
        try write(Array(picture))
    }

    private func write(_ bytes: [UInt8]) throws {
        let descriptor = file == "-" ? 1 : wa_open(file, O_WRONLY | O_CREAT | O_TRUNC, 0o666)
        guard descriptor >= 0 else { throw CommandFailure(message: "cannot write \(file): \(errnoText(-descriptor))") }
        defer { if descriptor != 1 { close(descriptor) } }
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            guard count > 0 else { throw CommandFailure(message: "cannot write \(file): \(errnoText(errno))") }
            rest = rest.dropFirst(count)
        }
    }
}

/// `workspace-agent desktop view`.
struct DesktopViewCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "view",
        abstract: "Print the address of the desktop's viewer, and open it where there is a browser.",
        discussion: """
            The address holds the agent's token, with which one can run commands in the workspace.

            Example:
              workspace-agent desktop view
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Option(
        help:
            "TCP address host:port of the HTTP API; default: what the agent listens on. [WORKSPACE_AGENT_HTTP_ADDRESS]")
    var httpAddress: String?

    @Option(help: "File that holds the agent's token; default: beside its socket. [WORKSPACE_AGENT_HTTP_TOKEN_FILE]")
    var httpTokenFile: String?

    @Flag(help: "Print the address without opening it. [WORKSPACE_AGENT_NO_OPEN]")
    var noOpen = false

    func run() throws {
        SyncInterrupt.exitWith130()
        let client = agent.client
        let viewer = try client.request("GET", ViewerFiles.path, allowing: [404])
        if viewer.status == 404 { throw CommandFailure(message: client.problem(viewer)) }
        let environment = ProcessEnvironment.current
        func given(_ flag: String?, _ name: String) -> String? {
            (flag ?? environment[name]).flatMap { $0.isEmpty ? nil : $0 }
        }
        let named = given(httpAddress, "WORKSPACE_AGENT_HTTP_ADDRESS")?.split(separator: ",").first.map(String.init)
        guard let address = try named ?? client.tcpAddress() else {
            throw CommandFailure(
                message: "the agent at \(client.socket) listens on no TCP address that a browser could open; "
                    + "start it with --http-address 127.0.0.1:7717")
        }
        let tokenFile = given(httpTokenFile, "WORKSPACE_AGENT_HTTP_TOKEN_FILE") ?? client.tokenFile
        let token = (try? HTTPToken.read(tokenFile))?.token.token.reveal()
        let url = "http://\(address)\(ViewerFiles.path)\(token.map { "?token=\(LocalClient.escaped($0))" } ?? "")"
        print(url)
        fflush(wa_stdout())
        if !noOpen { Browser.open(url) }
    }
}
