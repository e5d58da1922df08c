import AgentCore
import FoundationEssentials
import NIOCore

/// Turns pieces of a process's output into server-sent events (docs/contracts/process-api.md#output-as-it-comes): text
/// is cut at characters, what is no UTF-8 goes as base64. A value without I/O.
struct OutputEvents {
    /// The offset behind what was given.
    private(set) var offset: Int
    /// The beginning of a character whose rest has not come yet.
    private var rest = ByteBuffer()

    init(from offset: Int) { self.offset = offset }

    /// The events for the next bytes; empty while they are the beginning of a character.
    mutating func events(for bytes: ByteBuffer) -> ByteBuffer {
        offset += bytes.readableBytes
        var chunk = rest
        if chunk.readableBytes == 0 { chunk = bytes } else { chunk.writeImmutableBuffer(bytes) }
        rest = ByteBuffer()
        let incomplete = chunk.readableBytes - Self.endOfCharacters(chunk)
        if incomplete > 0 {
            rest = chunk.getSlice(at: chunk.writerIndex - incomplete, length: incomplete) ?? ByteBuffer()
            chunk.moveWriterIndex(to: chunk.writerIndex - incomplete)
        }
        var out = ByteBuffer()
        // A reader that began inside a character gets the rest of that one by itself.
        let broken = chunk.readableBytesView.prefix(3).prefix { $0 & 0xC0 == 0x80 }.count
        let first = chunk.readSlice(length: broken) ?? ByteBuffer()
        let end = offset - rest.readableBytes
        write(first, endingAt: end - chunk.readableBytes, into: &out)
        write(chunk, endingAt: end, into: &out)
        return out
    }

    /// The event for bytes that are kept nowhere.
    mutating func gone(_ count: Int) -> ByteBuffer {
        var out = flush()
        out.writeString("event: gone\nid: \(offset + count)\ndata: {\"offset\":\(offset),\"bytes\":\(count)}\n\n")
        offset += count
        return out
    }

    /// The last events.
    mutating func exit(_ answer: OutputAnswer) -> ByteBuffer {
        var out = flush()
        out.writeString("event: exit\nid: \(offset)\ndata: \(WireJSON.text(answer))\n\n")
        return out
    }

    /// The beginning of a character that does not go on.
    private mutating func flush() -> ByteBuffer {
        var out = ByteBuffer()
        write(rest, endingAt: offset, into: &out)
        rest = ByteBuffer()
        return out
    }

    private func write(_ bytes: ByteBuffer, endingAt end: Int, into out: inout ByteBuffer) {
        let count = bytes.readableBytes
        guard count > 0 else { return }
        out.reserveCapacity(minimumWritableBytes: count + count / 8 + 128)
        out.writeString("event: output\nid: \(end)\ndata: {\"offset\":\(end - count),\"")
        if let text = String(validating: bytes.readableBytesView, as: UTF8.self) {
            out.writeStaticString("text\":")
            JSONString.write(text, into: &out)
        } else {
            out.writeStaticString("base64\":\"")
            out.writeString(Data(bytes.readableBytesView).base64EncodedString())
            out.writeStaticString("\"")
        }
        out.writeStaticString("}\n\n")
    }

    /// Where the last character that may be complete ends.
    private static func endOfCharacters(_ bytes: ByteBuffer) -> Int {
        let tail = bytes.readableBytesView.suffix(3)
        return bytes.readableBytes - tail.count + UTF8Repair.endOfWholeSequences(Array(tail))
    }
}

/// JSON as messages carry it.
enum WireJSON {
    static func text(_ value: some Encodable) -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Only a value that JSON cannot hold (an infinite number) fails, and none of ours does.
        return (try? encoder.encode(value)).map { String(decoding: $0, as: UTF8.self) } ?? "{}"
    }
}
