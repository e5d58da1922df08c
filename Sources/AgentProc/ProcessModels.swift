import AgentCore
import FoundationEssentials

// The JSON of the process API. Property names are the wire's.

struct StartAnswer: Encodable {
    var id: String
    var started: Bool
    var attached: Bool?
}

/// The answer to a start that waited.
struct RunAnswer: Encodable {
    let start: StartAnswer
    let output: OutputAnswer

    func encode(to encoder: any Encoder) throws {
        try start.encode(to: encoder)
        try output.encode(to: encoder)
    }
}

struct TokenAnswer: Encodable {
    var found: Bool
    var process_id: String?
}

struct MessageAnswer: Encodable {
    var message: String
}

/// What is known of how a process ended and what it used.
struct ExitFields: Encodable {
    var exit_code: Int?
    var signal: String?
    var reason: Reason?
    var user_cpu_ms: Int64?
    var system_cpu_ms: Int64?
    var max_rss_bytes: Int64?

    init(_ exit: ProcessExit?) {
        guard let exit else { return }
        exit_code = exit.code
        signal = exit.signal.map(SignalName.name)
        reason = exit.reason
        user_cpu_ms = exit.userMilliseconds
        system_cpu_ms = exit.systemMilliseconds
        max_rss_bytes = exit.maxRSSBytes
    }
}

struct ProcessInfo: Encodable {
    private enum Keys: String, CodingKey {
        case id, command, command_truncated, workdir, background, running, pid, chat_id, started_at_unix, exited_at_unix
        case total_bytes, lingering, stdin, pty
    }

    let description: ProcessDescription
    let pid: Int32
    let snapshot: ManagedProcess.Snapshot
    let hasInput: Bool

    init(_ process: ManagedProcess) {
        description = process.description
        pid = process.pid
        snapshot = process.snapshot()
        hasInput = process.input != nil
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Keys.self)
        try container.encode(description.id.lowercased, forKey: .id)
        try container.encode(description.command, forKey: .command)
        if description.commandIsCut { try container.encode(true, forKey: .command_truncated) }
        try container.encode(description.workdir, forKey: .workdir)
        try container.encode(description.background, forKey: .background)
        try container.encode(snapshot.exit == nil, forKey: .running)
        try container.encode(pid, forKey: .pid)
        try container.encodeIfPresent(description.chat?.id.lowercased, forKey: .chat_id)
        try container.encode(description.startedWallSeconds, forKey: .started_at_unix)
        try container.encodeIfPresent(snapshot.exit?.wallSeconds, forKey: .exited_at_unix)
        try container.encode(snapshot.buffer.total, forKey: .total_bytes)
        if snapshot.lingering { try container.encode(true, forKey: .lingering) }
        if hasInput { try container.encode(true, forKey: .stdin) }
        try container.encodeIfPresent(snapshot.terminal, forKey: .pty)
        try ExitFields(snapshot.exit).encode(to: encoder)
    }
}

struct OutputAnswer: Encodable {
    private enum Keys: String, CodingKey {
        case output, truncated, cut_lines, running, pid, chat_id, total_bytes, lingering, stdin, pty
    }

    /// nil where the output itself has gone to the client already.
    let rendered: RenderedOutput?
    let description: ProcessDescription
    let pid: Int32
    let snapshot: ManagedProcess.Snapshot
    let hasInput: Bool

    init(_ process: ManagedProcess) {
        let snapshot = process.snapshot()
        self.init(process, snapshot, rendered: RenderedOutput(snapshot.buffer))
    }

    init(_ process: ManagedProcess, _ snapshot: ManagedProcess.Snapshot, rendered: RenderedOutput?) {
        description = process.description
        pid = process.pid
        hasInput = process.input != nil
        self.snapshot = snapshot
        self.rendered = rendered
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Keys.self)
        if let rendered {
            try container.encode(rendered.output, forKey: .output)
            try container.encodeIfPresent(rendered.truncated, forKey: .truncated)
            if rendered.cutLines > 0 { try container.encode(rendered.cutLines, forKey: .cut_lines) }
        }
        try container.encode(snapshot.exit == nil, forKey: .running)
        try container.encode(pid, forKey: .pid)
        try container.encodeIfPresent(description.chat?.id.lowercased, forKey: .chat_id)
        try container.encode(snapshot.buffer.total, forKey: .total_bytes)
        if snapshot.lingering { try container.encode(true, forKey: .lingering) }
        if hasInput { try container.encode(true, forKey: .stdin) }
        try container.encodeIfPresent(snapshot.terminal, forKey: .pty)
        try ExitFields(snapshot.exit).encode(to: encoder)
    }
}
