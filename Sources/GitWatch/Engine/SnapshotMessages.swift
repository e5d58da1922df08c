import AgentCore
import NIOCore

/// What clients are sent about one repository, encoded once for all of them.
package final class EncodedEntry: Sendable {
    package let root: String
    package let removed: Bool
    /// One element of `repositories`.
    package let json: ByteBuffer
    /// Equal for equal entries.
    let digest: Int

    init(root: String, _ snapshot: RepositorySnapshot) {
        self.root = root
        removed = false
        var out = ByteBuffer()
        Self.write(root, snapshot, into: &out)
        if out.readableBytes > GitWatchLimits.messageBytes - SnapshotMessages.room {
            // Escapes can make it longer than the limit on the diff.
            var short = snapshot
            short.diff = DiffText.totalTooLong(snapshot.diff.count)
            out.clear()
            Self.write(root, short, into: &out)
        }
        json = out
        digest = Self.digest(out)
    }

    init(removed root: String) {
        self.root = root
        removed = true
        var out = ByteBuffer(string: #"{"repo_root":"#)
        JSONString.write(root, into: &out)
        out.writeString(#","branch":"","removed":true}"#)
        json = out
        digest = Self.digest(out)
    }

    private static func digest(_ buffer: ByteBuffer) -> Int {
        var hasher = Hasher()
        buffer.withUnsafeReadableBytes { hasher.combine(bytes: $0) }
        return hasher.finalize()
    }

    private static func write(_ root: String, _ snapshot: RepositorySnapshot, into out: inout ByteBuffer) {
        out.writeString(#"{"repo_root":"#)
        JSONString.write(root, into: &out)
        out.writeString(#","branch":"#)
        JSONString.write(snapshot.branch, into: &out)
        if !snapshot.origin.isEmpty {
            out.writeString(#","remote_origin":"#)
            JSONString.write(snapshot.origin, into: &out)
        }
        if !snapshot.diff.isEmpty {
            out.writeString(#","unified_diff":"#)
            JSONString.write(String(decoding: snapshot.diff, as: UTF8.self), into: &out)
        }
        out.writeString("}")
    }
}

/// A message to a client, in parts that others may be sent, too.
package struct SnapshotMessage: Sendable {
    package var parts: [ByteBuffer]

    package var bytes: Int { parts.reduce(0) { $0 + $1.readableBytes } }
    package var text: String { parts.map { String(buffer: $0) }.joined() }
}

enum SnapshotMessages {
    /// Bytes of a message around its repositories.
    static let room = 256

    /// `changes` messages with the entries, as few as their limit allows; one without any for none. The entries are in
    /// memory once, however many clients they are sent to.
    static func changes(_ entries: [EncodedEntry], wallSeconds: Int64) -> [SnapshotMessage] {
        let begin = ByteBuffer(
            string: #"{"type":"changes","scanned_at":"\#(timestamp(wallSeconds))","repositories":["#)
        let (comma, end) = (ByteBuffer(string: ","), ByteBuffer(string: "]}"))
        var messages: [SnapshotMessage] = []
        var message = SnapshotMessage(parts: [begin])
        for entry in entries {
            if message.parts.count > 1 {
                if message.bytes + entry.json.readableBytes + 3 > GitWatchLimits.messageBytes {
                    messages.append(SnapshotMessage(parts: message.parts + [end]))
                    message = SnapshotMessage(parts: [begin])
                } else {
                    message.parts.append(comma)
                }
            }
            message.parts.append(entry.json)
        }
        return messages + [SnapshotMessage(parts: message.parts + [end])]
    }

    static func error(_ text: String) -> SnapshotMessage {
        var out = ByteBuffer(string: #"{"type":"error","message":"#)
        JSONString.write(text, into: &out)
        out.writeString("}")
        return SnapshotMessage(parts: [out])
    }

    /// RFC 3339 in UTC. The calendar is Howard Hinnant's civil_from_days.
    static func timestamp(_ seconds: Int64) -> String {
        let days = (seconds >= 0 ? seconds : seconds - 86_399) / 86_400
        let second = seconds - days * 86_400
        let shifted = days + 719_468
        let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        let day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
        let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
        func two(_ value: Int64) -> String { value < 10 ? "0\(value)" : "\(value)" }
        return "\(year)-\(two(month))-\(two(day))T\(two(second / 3600)):\(two(second / 60 % 60)):\(two(second % 60))Z"
    }
}
