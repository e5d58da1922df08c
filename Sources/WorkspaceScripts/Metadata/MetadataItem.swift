import AgentCore
import AgentProto
import ControlPlaneAPI

/// One thing to collect (docs/contracts/agent-api.md#metadata).
struct MetadataItem: Sendable, Equatable {
    var key: String
    /// The text, which may hold tokens.
    var script: String
    /// nil collects once for each connection.
    var interval: Duration?
    var timeout: Duration

    /// Intervals are whole seconds: a part of one counts as one.
    init(_ message: Coder_Agent_V2_WorkspaceAgentMetadata.Description) {
        key = message.key
        script = message.script
        let (seconds, attoseconds) = message.interval.duration.components
        let whole = seconds + (attoseconds > 0 ? 1 : 0)
        interval = whole > 0 ? .seconds(whole) : nil
        let limit = message.timeout.duration
        timeout = limit > .zero ? limit : interval ?? ScriptLimits.metadataTimeout
    }
}

/// What a run of a metadata script wrote to either output, bounded.
struct MetadataOutput: Sendable {
    private var value: [UInt8] = []
    private var valueTotal = 0

    mutating func append(_ bytes: UnsafeRawBufferPointer) {
        valueTotal += bytes.count
        // One byte more than can be used shows that there was more.
        value += bytes.prefix(ScriptLimits.metadataValueBytes + 1 + Self.slack - value.count)
    }

    /// Room for white space in front of the value, which is trimmed before it is cut.
    private static let slack = 1 << 10

    /// The value as it is reported and what is wrong with it, empty for nothing.
    /// - Parameter failure: how the run went wrong.
    func result(failure: String?) -> (value: String, error: String) {
        var problems: [String] = []
        if let failure { problems.append(failure) }
        let whole = Self.trimmed(LineSplitter.text(value[...]))
        let cut = Self.prefix(whole, ScriptLimits.metadataValueBytes)
        if cut.utf8.count < whole.utf8.count {
            problems.append(
                "the value was cut to \(ScriptLimits.metadataValueBytes) bytes; its script wrote \(valueTotal)")
        }
        return (cut, problems.joined(separator: "; "))
    }

    private static func trimmed(_ text: String) -> String {
        var rest = text.unicodeScalars[...]
        while let first = rest.first, first.properties.isWhitespace { rest.removeFirst() }
        while let last = rest.last, last.properties.isWhitespace { rest.removeLast() }
        return String(rest)
    }

    /// The longest prefix of whole characters (code points) that is not longer.
    static func prefix(_ text: String, _ limit: Int) -> String {
        guard text.utf8.count > limit else { return text }
        var end = text.utf8.index(text.startIndex, offsetBy: limit)
        while end > text.startIndex, text.utf8[end] & 0xc0 == 0x80 { end = text.utf8.index(before: end) }
        return String(text[..<end])
    }
}
