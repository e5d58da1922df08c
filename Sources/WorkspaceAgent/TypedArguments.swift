/// What was typed, made ready for the parser, which knows no variables and takes `--flag=` for a flag without a value.
enum TypedArguments {
    /// A flag that has its value from a variable when it is not typed. The daemon's flags are not among them:
    /// ``AgentConfiguration`` looks at their variables.
    private struct Variable {
        var command: String
        var flag: String
        var name: String
        var isSwitch = false

        var words: [String] { command.split(separator: " ").map(String.init) }

        func isTyped(_ argument: String) -> Bool {
            argument == flag || argument.hasPrefix("\(flag)=") || flag == "--output" && argument.hasPrefix("-o")
        }
    }

    private static let variables = [
        Variable(command: "dev", flag: "--manifest", name: "WORKSPACE_AGENT_DEV_MANIFEST"),
        Variable(command: "dev", flag: "--output", name: "WORKSPACE_AGENT_DEV_OUTPUT"),
        Variable(command: "sync start", flag: "--timeout", name: "WORKSPACE_AGENT_SYNC_TIMEOUT"),
        Variable(command: "sync status", flag: "--output", name: "WORKSPACE_AGENT_SYNC_OUTPUT"),
        Variable(command: "sync list", flag: "--output", name: "WORKSPACE_AGENT_SYNC_OUTPUT"),
        Variable(command: "sync timeline", flag: "--output", name: "WORKSPACE_AGENT_SYNC_OUTPUT"),
        Variable(command: "sync timeline", flag: "--follow", name: "WORKSPACE_AGENT_SYNC_FOLLOW", isSwitch: true),
        Variable(command: "proc run", flag: "--detach", name: "WORKSPACE_AGENT_PROC_DETACH", isSwitch: true),
        Variable(command: "proc run", flag: "--timeout", name: "WORKSPACE_AGENT_PROC_TIMEOUT"),
        Variable(command: "proc run", flag: "--pty", name: "WORKSPACE_AGENT_PROC_PTY", isSwitch: true),
        Variable(command: "proc attach", flag: "--no-stdin", name: "WORKSPACE_AGENT_PROC_NO_STDIN", isSwitch: true),
        Variable(command: "proc ls", flag: "--all", name: "WORKSPACE_AGENT_PROC_ALL", isSwitch: true),
        Variable(command: "proc ls", flag: "--limit", name: "WORKSPACE_AGENT_PROC_LIMIT"),
        Variable(command: "proc ls", flag: "--output", name: "WORKSPACE_AGENT_PROC_OUTPUT"),
        Variable(command: "proc output", flag: "--follow", name: "WORKSPACE_AGENT_PROC_FOLLOW", isSwitch: true),
        Variable(command: "proc output", flag: "--raw", name: "WORKSPACE_AGENT_PROC_RAW", isSwitch: true),
        Variable(command: "proc output", flag: "--output", name: "WORKSPACE_AGENT_PROC_OUTPUT"),
        Variable(command: "proc wait", flag: "--for", name: "WORKSPACE_AGENT_PROC_FOR"),
        Variable(command: "proc wait", flag: "--timeout", name: "WORKSPACE_AGENT_PROC_WAIT_TIMEOUT"),
        Variable(command: "proc wait", flag: "--output", name: "WORKSPACE_AGENT_PROC_OUTPUT"),
        Variable(command: "proc signal", flag: "--output", name: "WORKSPACE_AGENT_PROC_OUTPUT"),
        Variable(command: "file read", flag: "--offset", name: "WORKSPACE_AGENT_FILE_READ_OFFSET"),
        Variable(command: "file read", flag: "--limit", name: "WORKSPACE_AGENT_FILE_READ_LIMIT"),
        Variable(command: "file read", flag: "--lines", name: "WORKSPACE_AGENT_FILE_READ_LINES", isSwitch: true),
        Variable(command: "file read", flag: "--from", name: "WORKSPACE_AGENT_FILE_READ_FROM"),
        Variable(command: "file read", flag: "--count", name: "WORKSPACE_AGENT_FILE_READ_COUNT"),
        Variable(command: "file write", flag: "--mode", name: "WORKSPACE_AGENT_FILE_MODE"),
        Variable(command: "file write", flag: "--append", name: "WORKSPACE_AGENT_FILE_APPEND", isSwitch: true),
        Variable(command: "file write", flag: "--if-match", name: "WORKSPACE_AGENT_FILE_IF_MATCH"),
        Variable(command: "file write", flag: "--new", name: "WORKSPACE_AGENT_FILE_NEW", isSwitch: true),
        Variable(command: "file edit", flag: "--search", name: "WORKSPACE_AGENT_FILE_SEARCH"),
        Variable(command: "file edit", flag: "--replace", name: "WORKSPACE_AGENT_FILE_REPLACE"),
        Variable(command: "file edit", flag: "--all", name: "WORKSPACE_AGENT_FILE_ALL", isSwitch: true),
        Variable(command: "file edit", flag: "--insert-line", name: "WORKSPACE_AGENT_FILE_INSERT_LINE"),
        Variable(command: "file edit", flag: "--text", name: "WORKSPACE_AGENT_FILE_TEXT"),
        Variable(command: "file edit", flag: "--edits", name: "WORKSPACE_AGENT_FILE_EDITS"),
        Variable(command: "file edit", flag: "--dry-run", name: "WORKSPACE_AGENT_FILE_DRY_RUN", isSwitch: true),
        Variable(command: "file edit", flag: "--no-diff", name: "WORKSPACE_AGENT_FILE_NO_DIFF", isSwitch: true),
        Variable(command: "file grep", flag: "--fixed", name: "WORKSPACE_AGENT_FILE_FIXED", isSwitch: true),
        Variable(command: "file grep", flag: "--ignore-case", name: "WORKSPACE_AGENT_FILE_IGNORE_CASE", isSwitch: true),
        Variable(command: "file grep", flag: "--glob", name: "WORKSPACE_AGENT_FILE_GLOB"),
        Variable(command: "file grep", flag: "--context", name: "WORKSPACE_AGENT_FILE_CONTEXT"),
        Variable(command: "file grep", flag: "--limit", name: "WORKSPACE_AGENT_FILE_GREP_LIMIT"),
        Variable(command: "file grep", flag: "--json", name: "WORKSPACE_AGENT_FILE_JSON", isSwitch: true),
        Variable(command: "file glob", flag: "--limit", name: "WORKSPACE_AGENT_FILE_GLOB_LIMIT"),
        Variable(
            command: "file glob", flag: "--no-gitignore", name: "WORKSPACE_AGENT_FILE_NO_GITIGNORE", isSwitch: true),
        Variable(command: "file glob", flag: "--json", name: "WORKSPACE_AGENT_FILE_JSON", isSwitch: true),
        Variable(command: "git watch", flag: "--chat", name: "WORKSPACE_AGENT_CHAT"),
        Variable(command: "desktop screenshot", flag: "--width", name: "WORKSPACE_AGENT_SCREENSHOT_WIDTH"),
        Variable(command: "desktop screenshot", flag: "--height", name: "WORKSPACE_AGENT_SCREENSHOT_HEIGHT"),
        Variable(command: "desktop view", flag: "--no-open", name: "WORKSPACE_AGENT_NO_OPEN", isSwitch: true),
        Variable(command: "ui", flag: "--read-only", name: "WORKSPACE_AGENT_UI_READ_ONLY", isSwitch: true),
        Variable(command: "ui", flag: "--no-open", name: "WORKSPACE_AGENT_NO_OPEN", isSwitch: true),
        Variable(command: "stat", flag: "--output", name: "WORKSPACE_AGENT_STAT_TABLE_OUTPUT"),
        Variable(command: "stat all", flag: "--output", name: "WORKSPACE_AGENT_STAT_TABLE_OUTPUT"),
        Variable(command: "stat cpu", flag: "--output", name: "WORKSPACE_AGENT_STAT_OUTPUT"),
        Variable(command: "stat cpu", flag: "--host", name: "WORKSPACE_AGENT_STAT_HOST", isSwitch: true),
        Variable(command: "stat mem", flag: "--output", name: "WORKSPACE_AGENT_STAT_OUTPUT"),
        Variable(command: "stat mem", flag: "--host", name: "WORKSPACE_AGENT_STAT_HOST", isSwitch: true),
        Variable(command: "stat mem", flag: "--prefix", name: "WORKSPACE_AGENT_STAT_PREFIX"),
        Variable(command: "stat disk", flag: "--output", name: "WORKSPACE_AGENT_STAT_OUTPUT"),
        Variable(command: "stat disk", flag: "--path", name: "WORKSPACE_AGENT_STAT_PATH"),
        Variable(command: "stat disk", flag: "--prefix", name: "WORKSPACE_AGENT_STAT_PREFIX"),
        Variable(
            command: "external-auth access-token", flag: "--extra", name: "WORKSPACE_AGENT_EXTERNAL_AUTH_EXTRA"),
        Variable(
            command: "external-auth access-token", flag: "--output", name: "WORKSPACE_AGENT_EXTERNAL_AUTH_OUTPUT"),
        Variable(command: "doctor", flag: "--output", name: "WORKSPACE_AGENT_DOCTOR_OUTPUT"),
    ]

    /// - Parameter typed: without the program's name.
    static func complete(_ typed: [String], _ environment: [String: String]) -> [String] {
        let end = typed.firstIndex(of: "--") ?? typed.endIndex
        var result: [String] = []
        for argument in typed[..<end] {
            if argument.hasPrefix("--"), argument.firstIndex(of: "=") == argument.indices.last {
                result += [String(argument.dropLast()), ""]
            } else {
                result.append(argument)
            }
        }
        var words = result.prefix { !$0.hasPrefix("-") }[...]
        if words.first == "exp" { words = words.dropFirst() }
        if let command = words.first, ["agent", "dev"].contains(command) { result = StockOptions.normalized(result) }
        let matching = variables.filter { words.starts(with: $0.words) }
        // Not those of `stat` for `stat cpu`.
        let longest = matching.map(\.words.count).max()
        for variable in matching where variable.words.count == longest {
            guard let value = environment[variable.name], !value.isEmpty,
                !result.contains(where: { variable.isTyped($0) })
            else { continue }
            let place = words.startIndex + variable.words.count
            if !variable.isSwitch {
                result.insert(contentsOf: [variable.flag, value], at: place)
            } else if isTrue(value) {
                result.insert(variable.flag, at: place)
            }
        }
        return result + typed[end...]
    }

    /// Whether a variable turns a switch on.
    static func isTrue(_ value: String?) -> Bool { ["1", "true", "yes"].contains(value?.lowercased() ?? "") }
}
