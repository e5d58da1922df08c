import AgentCore
import FoundationEssentials

// The JSON of the process API. Property names are the wire's.

struct StartAnswer: Encodable {
    var id: String
    var started: Bool
    var attached: Bool?
}

struct TokenAnswer: Encodable {
    var found: Bool
    var process_id: String?
}

struct MessageAnswer: Encodable {
    var message: String
}

struct ListAnswer: Encodable {
    var processes: [ProcessInfo]
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
        case id, command, workdir, background, running, pid, chat_id, started_at_unix, exited_at_unix
        case total_bytes, lingering
    }

    let description: ProcessDescription
    let pid: Int32
    let snapshot: ManagedProcess.Snapshot

    init(_ process: ManagedProcess) {
        description = process.description
        pid = process.pid
        snapshot = process.snapshot()
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Keys.self)
        try container.encode(description.id.lowercased, forKey: .id)
        try container.encode(description.command, forKey: .command)
        try container.encode(description.workdir, forKey: .workdir)
        try container.encode(description.background, forKey: .background)
        try container.encode(snapshot.exit == nil, forKey: .running)
        try container.encode(pid, forKey: .pid)
        try container.encodeIfPresent(description.chat?.id.lowercased, forKey: .chat_id)
        try container.encode(description.startedWallSeconds, forKey: .started_at_unix)
        try container.encodeIfPresent(snapshot.exit?.wallSeconds, forKey: .exited_at_unix)
        try container.encode(snapshot.buffer.total, forKey: .total_bytes)
        if snapshot.lingering { try container.encode(true, forKey: .lingering) }
        try ExitFields(snapshot.exit).encode(to: encoder)
    }
}

struct OutputAnswer: Encodable {
    private enum Keys: String, CodingKey {
        case output, truncated, cut_lines, running, pid, chat_id, total_bytes, lingering
    }

    let rendered: RenderedOutput
    let description: ProcessDescription
    let pid: Int32
    let snapshot: ManagedProcess.Snapshot

    init(_ process: ManagedProcess) {
        description = process.description
        pid = process.pid
        snapshot = process.snapshot()
        rendered = RenderedOutput(snapshot.buffer)
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Keys.self)
        try container.encode(rendered.output, forKey: .output)
        try container.encodeIfPresent(rendered.truncated, forKey: .truncated)
        if rendered.cutLines > 0 { try container.encode(rendered.cutLines, forKey: .cut_lines) }
        try container.encode(snapshot.exit == nil, forKey: .running)
        try container.encode(pid, forKey: .pid)
        try container.encodeIfPresent(description.chat?.id.lowercased, forKey: .chat_id)
        try container.encode(snapshot.buffer.total, forKey: .total_bytes)
        if snapshot.lingering { try container.encode(true, forKey: .lingering) }
        try ExitFields(snapshot.exit).encode(to: encoder)
    }
}
