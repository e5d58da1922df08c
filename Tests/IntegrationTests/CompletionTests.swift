import AgentTestSupport
import Foundation
import Testing

/// Completion in the shells themselves.
@Suite(.sharedDaemon, .timeLimit(.minutes(5))) struct CompletionTests {
    /// What a bash offers for the last word of a line.
    private func bash(_ line: String, _ environment: [String: String] = [:]) throws -> [String] {
        let script = """
            PATH=\(URL(fileURLWithPath: DaemonProcess.binary).deletingLastPathComponent().path):$PATH
            source <(workspace-agent completion bash)
            compopt() { :; }
            COMP_LINE=$1; COMP_POINT=${#1}; read -ra COMP_WORDS <<< "$1"
            case $1 in *' ') COMP_WORDS+=('');; esac
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _workspace-agent_without_space workspace-agent "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\\n' "${COMPREPLY[@]}"
            """
        let result = try CommandResult.of(
            ["bash", "-c", script, "bash", line],
            environment: ["WORKSPACE_AGENT_HTTP_SOCKET": shared().daemon.socket].merging(environment) { $1 })
        #expect(result.errors == "", "\(line)")
        return result.output.split(separator: "\n").map(String.init)
    }

    @Test func bashKnowsTheWholeCommandLine() throws {
        let (_, connection) = try shared()
        let running = try connection.start("sleep 1000; echo 'a:b\\c'")
        let ended = try connection.start("true")
        _ = try connection.finish(ended)
        #expect(try bash("workspace-agent pro") == ["proc"])
        #expect(
            Set(try bash("workspace-agent proc ")).isSuperset(of: ["run", "ls", "output", "attach", "wait", "signal"]))
        #expect(try bash("workspace-agent proc output --fol") == ["--follow"])
        #expect(try bash("workspace-agent proc ls --output ") == ["table", "json"])
        #expect(try bash("workspace-agent proc signal x SIGU") == ["SIGUSR1", "SIGUSR2"])
        #expect(try bash("workspace-agent proc wait --for ") == ["exit", "output:", "port:", "file:"])
        #expect(try bash("workspace-agent completion z") == ["zsh"])
        #expect(try bash("workspace-agent proc run -- /usr/bin/en").contains("/usr/bin/env"))
        #expect(try bash("workspace-agent fil") == ["file"])
        #expect(try bash("workspace-agent file g") == ["grep", "glob"])
        #expect(try bash("workspace-agent file edit --dry") == ["--dry-run"])
        #expect(try bash("workspace-agent file read /usr/bin/en").contains("/usr/bin/env"))
        for command in ["output", "wait"] {
            let ids = try bash("workspace-agent proc \(command) ")
            #expect(ids.contains(running) && ids.contains(ended), "\(command)")
        }
        for command in ["attach", "signal"] {
            let ids = try bash("workspace-agent proc \(command) ")
            #expect(ids.contains(running) && !ids.contains(ended), "\(command)")
        }
        #expect(try bash("workspace-agent proc output \(running.prefix(20))") == [running])
        let elsewhere = ["WORKSPACE_AGENT_HTTP_SOCKET": "/nonexistent/socket"]
        #expect(try bash("workspace-agent proc output ", elsewhere) == [])
        let named = "workspace-agent proc output --http-socket \(try shared().daemon.socket) "
        #expect(try bash(named, elsewhere).contains(running))
        _ = try connection.signal(running, "kill")
    }

    /// By typing, as only an interactive shell of these completes.
    @Test(arguments: ["bash", "zsh", "fish"]) func shellsCompleteWhatIsTyped(shell: String) async throws {
        let (daemon, connection) = try shared()
        let id = try connection.start("sleep 1000; echo 'a:b\\c'")
        let home = try TemporaryDirectory()
        func write(_ text: String, _ name: String) throws {
            try text.write(toFile: "\(home.path)/\(name)", atomically: true, encoding: .utf8)
        }
        let script = try CommandResult.ofAgent("completion", shell)
        #expect(script.code == 0)
        switch shell {
        case "bash":
            try write(script.output, "completions")
            try write("source ~/completions; PS1='$ '", ".bashrc")
        case "zsh":
            try write(script.output, "_workspace-agent")
            try write("fpath=(~ $fpath); autoload -Uz compinit; compinit -u; PS1='$ '", ".zshrc")
        default:
            try FileManager.default.createDirectory(
                atPath: "\(home.path)/.config/fish/completions", withIntermediateDirectories: true)
            try write(script.output, ".config/fish/completions/workspace-agent.fish")
            try write("function fish_prompt; echo '$ '; end; set -g fish_greeting", ".config/fish/config.fish")
        }
        let screen = try Screen(
            [shell], environment: ["HOME": home.path, "WORKSPACE_AGENT_HTTP_SOCKET": daemon.socket], columns: 120)
        try await screen.shows("$")
        try screen.type("workspace-agent proc sig", "Tab")
        try await screen.shows("proc signal")
        try screen.type("\(id.prefix(13))", "Tab")
        try await screen.shows(id)
        try screen.type("SIGCO", "Tab")
        try await screen.shows("SIGCONT")
        try screen.type("", "Enter")
        try await screen.shows("Signal \"SIGCONT\" sent to process \"\(id)\"")
        if shell != "bash" {
            // With what it runs beside it.
            let other = try connection.start("sleep 1000; echo 'a:b\\c'")
            try screen.type("workspace-agent proc attach ", "Tab")
            try await screen.shows("running: sleep 1000; echo 'a:b\\c'")
            _ = try connection.signal(other, "kill")
        }
        _ = try connection.signal(id, "kill")
    }
}
