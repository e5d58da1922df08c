import AgentProc
import ArgumentParser
import Glibc
import LocalAgent

/// `workspace-agent proc run -- CMD…`.
struct ProcRunCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run", abstract: "Run a command as the agent's child, with its output, input and exit code here.",
        discussion: """
            The command runs without a shell, in this working directory, with the agent's environment and not with \
            the one here. Its standard output and standard error come in one stream, on standard output. It gets \
            standard input unless that is a terminal; with --pty it has a terminal of its own and gets every key. \
            Ctrl-C interrupts it, a second one kills it. The exit code is its own, or 128 and the number of the \
            signal that ended it.

            Example:
              workspace-agent proc run --timeout 10m -- make test
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Flag(name: .shortAndLong, help: "Print the process ID and leave it running. [WORKSPACE_AGENT_PROC_DETACH]")
    var detach = false

    @Option(
        help: "End the process after this long, such as 90s or 1h30m; at most a week. [WORKSPACE_AGENT_PROC_TIMEOUT]")
    var timeout: SyncDuration?

    @Flag(help: "Run it on a terminal, as interactive programs need. [WORKSPACE_AGENT_PROC_PTY]")
    var pty = false

    @Argument(parsing: .postTerminator, help: "Program and arguments.", completion: .file())
    var command: [String]

    func validate() throws {
        guard let timeout else { return }
        guard (1...ProcLimits.runMilliseconds).contains(Int(timeout.milliseconds)) else {
            throw ValidationError("--timeout: must be from 1ms to 168h")
        }
    }

    func run() throws {
        keepStandardDescriptors()
        let signals = try ProcSession.catchSignals()
        let client = ProcClient(http: agent.client)
        let takesInput = !detach && (pty || isatty(STDIN_FILENO) == 0)
        var body = ProcessStart(argv: command, workdir: try WorkingDirectory.path())
        body.timeout_ms = timeout?.milliseconds
        if pty {
            let size = Terminal.size(STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO) ?? .init(rows: 24, cols: 80)
            body.pty = .init(rows: size.rows, cols: size.cols, term: ProcessEnvironment.current["TERM"])
        } else if takesInput {
            body.stdin = true
        }
        let started = try client.start(body)
        if detach { return try StandardOutput.write("\(started.id)\n") }
        let session = ProcSession(
            client, id: started.id, instance: started.instance, role: .run, offset: 0, takesInput: takesInput,
            signals: signals)
        try session.run().end(timeout: timeout)
    }
}

/// `workspace-agent proc attach ID`.
struct ProcAttachCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "attach", abstract: "Attach to a running process, as proc run does.",
        discussion: """
            Shows the last of its output and all that follows, gives it standard input where it takes any, and ends \
            with its exit code. Ctrl-C goes to the process; ended by another signal, this command leaves the process \
            running. In a process with a terminal, Ctrl-P Ctrl-Q leaves it.

            Example:
              workspace-agent proc attach 1f3b
            """)

    @OptionGroup var agent: HTTPAgentOptions

    @Flag(help: "Do not forward standard input. [WORKSPACE_AGENT_PROC_NO_STDIN]")
    var noStdin = false

    @Argument(help: "The process ID.", completion: .custom(ProcCompletion.running))
    var id: String

    func run() throws {
        keepStandardDescriptors()
        let signals = try ProcSession.catchSignals()
        let client = ProcClient(http: agent.client)
        let session = ProcSession(
            client, id: try client.resolve(id), instance: nil, role: .attach, offset: nil, takesInput: !noStdin,
            signals: signals)
        try session.run().end(timeout: nil)
    }
}

extension SyncDuration {
    var milliseconds: Int64 {
        let (seconds, attoseconds) = value.components
        return seconds * 1000 + attoseconds / 1_000_000_000_000_000
    }
}

extension ProcessState {
    /// Ends the command as the process ended.
    /// - Parameter timeout: what it was given.
    /// - Throws: its exit code.
    fileprivate func end(timeout: SyncDuration?) throws {
        switch reason {
        case "timeout":
            let time = timeout.map { " after \($0.text) (--timeout)" } ?? ": its time was over"
            note("the process was ended\(time)")
        case "oom": note("the process was killed for want of memory")
        case "agent_shutdown": note("the agent shut down and ended the process")
        default: break
        }
        throw ExitCode(shellCode)
    }
}

/// Has 0, 1 and 2 open: a connection that took one of them would be read and written as input or output.
private func keepStandardDescriptors() {
    for descriptor in CInt(0)...2 where fcntl(descriptor, F_GETFD) < 0 { _ = open("/dev/null", O_RDWR) }
}
