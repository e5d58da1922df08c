import AgentTestSupport
import Foundation
import Testing

/// A terminal that tmux draws, with a program in it: what a person would see and type.
final class Screen {
    private let directory: TemporaryDirectory
    private let tmux: [String]

    /// - Parameter arguments: the program.
    init(_ arguments: [String], environment: [String: String] = [:], columns: Int = 80, rows: Int = 24) throws {
        directory = try TemporaryDirectory()
        tmux = ["tmux", "-u", "-f", "/dev/null", "-S", "\(directory.path)/tmux"]
        let path = "\(URL(fileURLWithPath: DaemonProcess.binary).deletingLastPathComponent().path):/usr/bin:/bin"
        let variables = ["PATH": path, "LC_ALL": "C.UTF-8", "PS1": "$ ", "HOME": directory.path].merging(environment) {
            $1
        }
        let set = ["/usr/bin/env", "-i", "TERM=tmux-256color"] + variables.map { "\($0)=\($1)" }
        // A command of one argument would go through a shell, whose name tmux takes from the user.
        try run(["new-session", "-d", "-x", "\(columns)", "-y", "\(rows)", "--"] + set + arguments)
    }

    deinit { _ = try? CommandResult.of(tmux + ["kill-server"]) }

    /// A shell whose `workspace-agent` finds this daemon.
    static func shell(
        _ daemon: DaemonProcess, _ program: [String] = ["bash", "--norc", "--noprofile"], columns: Int = 80,
        rows: Int = 24
    ) async throws -> Screen {
        let screen = try Screen(
            program, environment: ["WORKSPACE_AGENT_HTTP_SOCKET": daemon.socket],
            columns: columns, rows: rows)
        try await screen.showsPrompt()
        return screen
    }

    /// Types text, then presses keys by tmux's names.
    func type(_ text: String, _ keys: String...) throws {
        if !text.isEmpty { try run(["send-keys", "-l", "--", text]) }
        for key in keys { try run(["send-keys", key]) }
    }

    /// A command line for the shell.
    func enter(_ text: String) throws { try type(text, "Enter") }

    func resize(columns: Int, rows: Int) throws {
        try run(["resize-window", "-x", "\(columns)", "-y", "\(rows)"])
    }

    /// The lines that are shown, a line feed before each; without what is empty below.
    var text: String {
        get throws { "\n" + (try run(["capture-pane", "-p"]).output).trimmingCharacters(in: .newlines) }
    }

    /// The lines with their colours, and where the cursor is.
    var picture: String {
        get throws {
            try run(["capture-pane", "-p", "-e"]).output
                + run(["display-message", "-p", "#{cursor_x},#{cursor_y} #{cursor_flag} #{alternate_on}"]).output
        }
    }

    /// Waits until the screen shows a text.
    func shows(_ text: String, _ location: SourceLocation = #_sourceLocation) async throws {
        try await shows(where: text, location) { $0.contains(text) }
    }

    /// Waits for the shell's prompt. What is typed before the end of a program would be for that.
    func showsPrompt(_ location: SourceLocation = #_sourceLocation) async throws {
        try await shows(where: "prompt", location) { $0.hasSuffix("\n$") }
    }

    func shows(
        where what: String, _ location: SourceLocation = #_sourceLocation, _ condition: (String) -> Bool
    ) async throws {
        do {
            try await eventually(what, within: .seconds(30)) { condition(try self.text) }
        } catch {
            Issue.record("no \(what) on the screen:\n\((try? text) ?? "")", sourceLocation: location)
            throw error
        }
    }

    @discardableResult
    private func run(_ arguments: [String]) throws -> CommandResult {
        let result = try CommandResult.of(tmux + arguments)
        guard result.code == 0 else {
            throw DeadlineExceeded(what: "tmux \(arguments): \(result.code) \(result.errors)")
        }
        return result
    }
}
