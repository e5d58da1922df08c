import AgentCore
import ArgumentParser
import ControlPlane
import Glibc
import LocalAgent

/// `external-auth`: tokens of the services that the workspace's owner has logged in to.
struct ExternalAuthCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "external-auth", abstract: "Get the owner's tokens for other services.",
        discussion: """
            Example:
              workspace-agent external-auth access-token github
            """,
        subcommands: [AccessTokenCommand.self])
}

struct AccessTokenCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "access-token", abstract: "Print the owner's access token for a service.",
        discussion: """
            Where the owner has yet to log in, it prints the address for that instead and ends with code 1. No line end
            follows what it prints.

            Example:
              workspace-agent external-auth access-token github
              workspace-agent external-auth access-token slack --extra authed_user.id
            """)

    @Argument(help: "The service's id at the control plane.")
    var id: String

    @Option(
        help: """
            Print this field of what came with the token, fields inside of it after a dot. \
            [WORKSPACE_AGENT_EXTERNAL_AUTH_EXTRA]
            """)
    var extra: String?

    @Option(name: .shortAndLong, help: "text or json, the whole answer. [WORKSPACE_AGENT_EXTERNAL_AUTH_OUTPUT]")
    var output: StatFormat = .text

    @OptionGroup(title: "Control plane")
    var link: LinkOptions

    func run() async throws {
        var request = ControlPlaneREST.ExternalAuthRequest()
        request.id = id
        let auth: ControlPlaneREST.ExternalAuth
        do {
            auth = try await GitLink.use(link) { [request] in try await $0.externalAuth(request) }
        } catch let error as ControlPlaneError {
            throw CommandFailure(message: "\(error)".harmless)
        }
        let isMissing = !auth.url.isEmpty
        try StandardOutput.write(text(auth, isMissing))
        if isMissing { throw ExitCode(1) }
    }

    private func text(_ auth: ControlPlaneREST.ExternalAuth, _ isMissing: Bool) throws -> String {
        if output == .json { return IndentedJSON.text(auth.answer.reveal()) }
        if isMissing { return auth.url }
        guard let extra, !extra.isEmpty else { return auth.accessToken.reveal() }
        guard auth.tokenExtra != nil else {
            SyncOutput.failure("no extra properties found for token")
            throw ExitCode(1)
        }
        guard let field = auth.extra(extra) else {
            throw CommandFailure(message: "the token's extra properties have no field \(goQuoted(extra))")
        }
        return field.reveal()
    }
}

/// JSON for people.
enum IndentedJSON {
    /// The text with each field and element on a line of its own, indented by two more than what it is in; everything
    /// else as it came, the order of fields too.
    /// - Parameter text: valid JSON.
    static func text(_ text: String) -> String {
        var (out, depth, isString, isEscaped): ([UInt8], Int, Bool, Bool) = ([], 0, false, false)
        func newLine() { out += [UInt8(ascii: "\n")] + [UInt8](repeating: UInt8(ascii: " "), count: 2 * max(0, depth)) }
        for byte in text.utf8 {
            if isString {
                out.append(byte)
                if isEscaped {
                    isEscaped = false
                } else if byte == UInt8(ascii: "\\") {
                    isEscaped = true
                } else if byte == UInt8(ascii: "\"") {
                    isString = false
                }
                continue
            }
            switch byte {
            case UInt8(ascii: " "), UInt8(ascii: "\t"), UInt8(ascii: "\r"), UInt8(ascii: "\n"): continue
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                if let last = out.last, "[{".utf8.contains(last) { newLine() }
                out.append(byte)
                depth += 1
            case UInt8(ascii: "}"), UInt8(ascii: "]"):
                depth -= 1
                if let last = out.last, !"[{".utf8.contains(last) { newLine() }
                out.append(byte)
            case UInt8(ascii: ","):
                out.append(byte)
                newLine()
            case UInt8(ascii: ":"): out += [byte, UInt8(ascii: " ")]
            default:
                if let last = out.last, "[{".utf8.contains(last) { newLine() }
                isString = byte == UInt8(ascii: "\"")
                out.append(byte)
            }
        }
        return String(decoding: out, as: UTF8.self)
    }
}
