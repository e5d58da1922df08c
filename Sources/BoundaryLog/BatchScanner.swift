/// What the proxy needs to know of a batch.
public struct BatchSummary: Sendable, Equatable {
    public var logs = 0
    /// The range of `session_id` in the payload; empty when there is none.
    public var session = 0..<0
    public var sequence = SequenceRun()
}

/// The sequence numbers of one batch, in their order.
public struct SequenceRun: Sendable, Equatable {
    public private(set) var first: UInt64?
    /// The number that should come after the batch.
    public private(set) var next: UInt64 = 0
    /// Gaps between the logs of the batch.
    public private(set) var gaps = 0

    public init() {}

    /// Numbers that were seen before (an older boundary numbers all logs 0) are no gaps.
    public mutating func note(_ number: UInt64) {
        if first == nil {
            first = number
            next = number &+ 1
        } else if number >= next {
            if number > next { gaps += 1 }
            next = number &+ 1
        }
    }
}

/// The content of a frame.
public enum FrameContent: Sendable, Equatable {
    /// A batch to forward: these parts of the payload one after the other are the encoded request.
    /// (An envelope may hold `logs` twice; protobuf merges them, and so does joining their bytes.)
    case batch([Range<Int>], BatchSummary)
    /// What boundary itself dropped.
    case status(channelFull: Int64, batchFull: Int64)
    /// An envelope without a variant that we know.
    case empty
}

/// Checks a payload and extracts what the proxy needs to know, without building messages: decoding and encoding again
/// would cost more than everything else the proxy does.
public enum BatchScanner {
    /// - Throws: where SwiftProtobuf's decoder would, and only there.
    public static func scan(_ tag: FrameCodec.Tag, _ payload: UnsafeRawBufferPointer) throws(Malformed) -> FrameContent
    {
        let all = 0..<payload.count
        switch tag {
        case .request:
            var summary = BatchSummary()
            try request(payload, all, depth: 0, &summary)
            return .batch([all], summary)
        case .envelope: return try envelope(payload, all)
        }
    }

    private static func envelope(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>) throws(Malformed)
        -> FrameContent
    {
        // Kept apart until the end: a payload may hold thousands of variants.
        var (parts, summary): ([Range<Int>], BatchSummary) = ([], BatchSummary())
        var status: (channel: Int64, batch: Int64)?
        var reader = WireReader(bytes, range, depth: 0)
        while let field = try reader.field() {
            switch (field.number, field.wire) {
            case (1, .bytes):
                let body = try reader.body()
                // A second `logs` right after the first is merged into it; otherwise the last wins.
                if status != nil { (parts, summary, status) = ([], BatchSummary(), nil) }
                try request(bytes, body, depth: 1, &summary)
                parts.append(body)
            case (2, .bytes):
                let body = try reader.body()
                if status == nil { (parts, summary) = ([], BatchSummary()) }
                var counts = status ?? (0, 0)
                try Self.status(bytes, body, &counts.channel, &counts.batch)
                status = counts
            default: try reader.skip(field)
            }
        }
        if let status { return .status(channelFull: status.channel, batchFull: status.batch) }
        return parts.isEmpty ? .empty : .batch(parts, summary)
    }

    private static func status(
        _ bytes: UnsafeRawBufferPointer, _ range: Range<Int>, _ channel: inout Int64, _ batch: inout Int64
    ) throws(Malformed) {
        var reader = WireReader(bytes, range, depth: 1)
        while let field = try reader.field() {
            switch (field.number, field.wire) {
            case (1, .varint): channel = Int64(bitPattern: try reader.varint())
            case (2, .varint): batch = Int64(bitPattern: try reader.varint())
            default: try reader.skip(field)
            }
        }
    }

    private static func request(
        _ bytes: UnsafeRawBufferPointer, _ range: Range<Int>, depth: Int, _ summary: inout BatchSummary
    ) throws(Malformed) {
        var reader = WireReader(bytes, range, depth: depth)
        while let field = try reader.field() {
            switch (field.number, field.wire) {
            case (1, .bytes):
                summary.sequence.note(try log(bytes, try reader.body(), depth: depth + 1))
                summary.logs += 1
            case (2, .bytes): summary.session = try reader.string()
            case (3, .bytes): _ = try reader.string()
            default: try reader.skip(field)
            }
        }
    }

    /// - Returns: its sequence number.
    private static func log(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>, depth: Int) throws(Malformed)
        -> UInt64
    {
        var sequence: UInt64 = 0
        var reader = WireReader(bytes, range, depth: depth)
        while let field = try reader.field() {
            switch (field.number, field.wire) {
            case (1, .varint): _ = try reader.varint()
            case (2, .bytes): try timestamp(bytes, try reader.body(), depth: depth + 1)
            case (3, .bytes): try httpRequest(bytes, try reader.body(), depth: depth + 1)
            case (4, .varint): sequence = try reader.varint()
            default: try reader.skip(field)
            }
        }
        return sequence
    }

    private static func timestamp(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>, depth: Int) throws(Malformed) {
        var reader = WireReader(bytes, range, depth: depth)
        // Both fields are varints, which are skipped as they are read.
        while let field = try reader.field() { try reader.skip(field) }
    }

    private static func httpRequest(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>, depth: Int) throws(Malformed)
    {
        var reader = WireReader(bytes, range, depth: depth)
        while let field = try reader.field() {
            switch (field.number, field.wire) {
            case (1...3, .bytes): _ = try reader.string()
            default: try reader.skip(field)
            }
        }
    }
}
