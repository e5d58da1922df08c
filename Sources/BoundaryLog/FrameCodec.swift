/// Splits the bytes of a connection into frames (docs/contracts/boundary.md#frames): 1 byte tag, 3 bytes big-endian
/// length, and the protobuf payload of that length.
///
/// Complete frames are passed on without a copy. Only the beginning of an incomplete frame is copied, so that a
/// connection never holds more than one frame.
public struct FrameCodec: Sendable {
    /// The type of a payload.
    public enum Tag: UInt8, Sendable {
        /// `coder.agent.v2.ReportBoundaryLogsRequest`
        case request = 1
        /// `coder.boundarylogproxy.codec.v1.BoundaryMessage`
        case envelope = 2
    }

    /// What ends a connection.
    public enum Violation: Error, Equatable, CustomStringConvertible {
        case unknownTag(UInt8)
        case tooLarge(Int)

        public var description: String {
            switch self {
            case .unknownTag(let tag): "tag \(tag) is neither 1 nor 2"
            case .tooLarge(let length): "a frame of \(length) bytes; at most \(BoundaryLimits.frameBytes) are allowed"
            }
        }
    }

    public static let headerBytes = 4

    private var partial: [UInt8] = []
    private var violation: Violation?

    public init() {}

    /// Bytes kept of a frame that is not complete.
    public var pending: Int { partial.count }

    /// Takes received bytes and passes on each frame that they complete.
    /// - Parameter frame: called in order; the payload is valid during the call only.
    /// - Throws: the violation that ends the connection, and again in every later call.
    public mutating func feed(
        _ input: UnsafeRawBufferPointer, _ frame: (Tag, UnsafeRawBufferPointer) -> Void
    ) throws(Violation) {
        if let violation { throw violation }
        var rest = input[...]
        if !partial.isEmpty {
            guard let whole = try complete(&rest) else { return }
            whole.withUnsafeBytes { frame(whole.tag, UnsafeRawBufferPointer(rebasing: $0.dropFirst(Self.headerBytes))) }
        }
        while !rest.isEmpty {
            guard let header = try header(rest), rest.count >= Self.headerBytes + header.length else {
                partial.append(contentsOf: rest)
                return
            }
            let payload = rest.dropFirst(Self.headerBytes).prefix(header.length)
            frame(header.tag, UnsafeRawBufferPointer(rebasing: payload))
            rest = rest.dropFirst(Self.headerBytes + header.length)
        }
    }

    private struct Whole {
        var tag: Tag
        var bytes: [UInt8]
        func withUnsafeBytes(_ body: (UnsafeRawBufferPointer) -> Void) { bytes.withUnsafeBytes(body) }
    }

    /// Completes the pending frame; nil when it needs more bytes.
    private mutating func complete(_ rest: inout Slice<UnsafeRawBufferPointer>) throws(Violation) -> Whole? {
        if partial.count < Self.headerBytes { take(Self.headerBytes - partial.count, &rest) }
        // Checked before the header is complete: an unknown tag fails at once.
        let header: (tag: Tag, length: Int)? = try header(partial)
        guard let header else { return nil }
        // Exactly one frame; the array would double its capacity otherwise.
        partial.reserveCapacity(Self.headerBytes + header.length)
        take(Self.headerBytes + header.length - partial.count, &rest)
        guard partial.count == Self.headerBytes + header.length else { return nil }
        defer { partial = [] }
        return Whole(tag: header.tag, bytes: partial)
    }

    private mutating func take(_ count: Int, _ rest: inout Slice<UnsafeRawBufferPointer>) {
        partial.append(contentsOf: rest.prefix(count))
        rest = rest.dropFirst(count)
    }

    /// The header at the beginning of the bytes; nil when it is incomplete.
    private mutating func header(_ bytes: some Collection<UInt8>) throws(Violation) -> (tag: Tag, length: Int)? {
        var bytes = bytes.makeIterator()
        guard let first = bytes.next() else { return nil }
        guard let tag = Tag(rawValue: first) else { throw fail(.unknownTag(first)) }
        guard let a = bytes.next(), let b = bytes.next(), let c = bytes.next() else { return nil }
        let length = Int(a) << 16 | Int(b) << 8 | Int(c)
        guard length <= BoundaryLimits.frameBytes else { throw fail(.tooLarge(length)) }
        return (tag, length)
    }

    private mutating func fail(_ violation: Violation) -> Violation {
        self.violation = violation
        partial = []
        return violation
    }
}
