import Glibc

/// Tracks where the headers, bodies and chunks of a connection's requests end, before the decoder and without I/O.
/// The decoder accepts chunks of any size and chunk extensions of any length; other errors are left to it.
///
/// What body a header announces is known from the decoder, so it gets each header separately.
struct RequestFraming {
    /// The body that a header announces.
    enum Body: Equatable {
        case length(Int)
        /// - Parameter limit: bytes of all chunks.
        case chunked(limit: Int)
    }

    private enum Phase: Equatable {
        case header
        case size
        case extensions
        /// The remaining bytes of a body, or of a chunk with its line end.
        case data(remaining: Int)
        case trailer
        /// Bytes of another protocol, which are not inspected.
        case rest
        case failed
    }

    /// The most digits of a chunk's size: 64 bits.
    private static let sizeDigits = 16

    private var phase = Phase.header
    /// Bytes of the present line, of a header or trailer, that were seen before.
    private var lineBytes = 0
    private var isChunked = false
    private var isLast = false
    private var bodyLimit = 0
    private var bodyBytes = 0
    private var extensionBytes = 0
    private var digits = 0
    private var size: UInt64 = 0

    /// - Parameters:
    ///   - body: what the header that just ended announces.
    ///   - isLast: no request follows.
    mutating func begin(_ body: Body, isLast: Bool) {
        self.isLast = isLast
        switch body {
        case .length(let count):
            isChunked = false
            if count > 0 { phase = .data(remaining: count) } else { endMessage() }
        case .chunked(let limit):
            isChunked = true
            (bodyLimit, bodyBytes, extensionBytes) = (limit, 0, 0)
            beginChunk()
        }
    }

    /// Inspects bytes that arrived.
    /// - Returns: how many of them to pass to the decoder, and whether a header seems to end with them. If it does,
    ///   the decoder produces a head, and ``begin(_:isLast:)`` has to be called.
    /// - Throws: ``HTTPProblem`` of the request whose body this is. No bytes may be passed on after that.
    mutating func take(_ bytes: UnsafeRawBufferPointer) throws(HTTPProblem) -> (count: Int, endsHeader: Bool) {
        var rest = bytes[...]
        while let first = rest.first {
            switch phase {
            case .header:
                if takeLine(&rest) { return (rest.startIndex - bytes.startIndex, true) }
            case .trailer:
                if takeLine(&rest) { endMessage() }
            case .data(let remaining):
                let count = min(remaining, rest.count)
                rest = rest.dropFirst(count)
                phase = .data(remaining: remaining - count)
                if count == remaining {
                    if isChunked { beginChunk() } else { endMessage() }
                }
            case .size:
                guard let digit = Self.digit(first) else {
                    try announceChunk()
                    phase = .extensions
                    continue
                }
                digits += 1
                guard digits <= Self.sizeDigits else { return try fail(.chunkTooLarge) }
                size = size << 4 | UInt64(digit)
                rest.removeFirst()
            case .extensions:
                let end = rest.firstIndex(of: UInt8(ascii: "\n"))
                let text = rest[..<(end ?? rest.endIndex)]
                extensionBytes += text.count - (text.last == UInt8(ascii: "\r") ? 1 : 0)
                guard extensionBytes <= HTTPLimits.chunkExtensionBytes else {
                    return try fail(.chunkExtensionsTooLarge)
                }
                rest = rest[text.endIndex...]
                guard end != nil else { continue }
                rest.removeFirst()
                // Includes the line end after the chunk.
                phase = size == 0 ? .trailer : .data(remaining: Int(clamping: size) + 2)
            case .rest: return (bytes.count, false)
            case .failed: return (0, false)
            }
        }
        return (bytes.count, false)
    }

    /// Takes a line or the part of it that is there.
    /// - Returns: whether it has ended and is empty.
    private mutating func takeLine(_ rest: inout Slice<UnsafeRawBufferPointer>) -> Bool {
        let area = UnsafeRawBufferPointer(rebasing: rest)
        guard let base = area.baseAddress, let end = memchr(base, CInt(UInt8(ascii: "\n")), area.count) else {
            lineBytes += area.count
            rest = rest[rest.endIndex...]
            return false
        }
        let count = UnsafeRawPointer(end) - base
        rest = rest.dropFirst(count + 1)
        defer { lineBytes = 0 }
        // Empty but for a carriage return; another single character is refused by the decoder.
        return lineBytes + count <= 1
    }

    private mutating func beginChunk() {
        phase = .size
        (digits, size) = (0, 0)
    }

    private mutating func announceChunk() throws(HTTPProblem) {
        guard let count = Int(exactly: size) else { return try fail(.chunkTooLarge) }
        guard count <= bodyLimit - bodyBytes else { return try fail(.tooLarge(limit: bodyLimit)) }
        bodyBytes += count
    }

    private mutating func endMessage() {
        phase = isLast ? .rest : .header
        lineBytes = 0
    }

    private mutating func fail<T>(_ problem: HTTPProblem) throws(HTTPProblem) -> T {
        phase = .failed
        throw problem
    }

    private static func digit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}

extension HTTPProblem {
    static let chunkTooLarge = HTTPProblem(
        .badRequest, "The request is not valid HTTP/1.1.", detail: "The size of a chunk is out of range.")
    static let chunkExtensionsTooLarge = HTTPProblem(
        .contentTooLarge, "The chunk extensions of the request body are too large.",
        detail: "The limit is \(HTTPLimits.chunkExtensionBytes) bytes.")
}
