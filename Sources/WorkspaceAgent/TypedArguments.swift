/// What was typed, made ready for the parser, which knows no variables and takes `--flag=` for a flag without a value.
enum TypedArguments {
    /// A flag that has its value from a variable when it is not typed. The daemon's flags are not among them:
    /// ``AgentConfiguration`` looks at their variables.
    private struct Variable {
        var command: String
        var flag: String
        var name: String
        var isSwitch = false

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
        Variable(command: "git watch", flag: "--chat", name: "WORKSPACE_AGENT_CHAT"),
        Variable(command: "desktop screenshot", flag: "--width", name: "WORKSPACE_AGENT_SCREENSHOT_WIDTH"),
        Variable(command: "desktop screenshot", flag: "--height", name: "WORKSPACE_AGENT_SCREENSHOT_HEIGHT"),
        Variable(command: "desktop view", flag: "--no-open", name: "WORKSPACE_AGENT_NO_OPEN", isSwitch: true),
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
        for variable in variables {
            let command = variable.command.split(separator: " ").map(String.init)
            guard words.starts(with: command), let value = environment[variable.name], !value.isEmpty,
                !result.contains(where: { variable.isTyped($0) })
            else { continue }
            let place = words.startIndex + command.count
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
