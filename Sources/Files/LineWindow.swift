import Glibc

/// Numbered lines of a file, taken from its bytes as they are read, without I/O
/// (docs/contracts/files.md#read-file-lines).
struct LineWindow {
    struct Request: Sendable {
        /// The first line, from 1.
        var first = 1
        /// Lines wanted; nil when the client named no number.
        var limit: Int?
        /// Bytes of a line; the rest is cut.
        var lineBytes = 1_024
        /// Lines of an answer.
        var lines = 2_000
        /// Bytes of an answer, numbers, tabs and newlines included.
        var bytes = 32 << 10
    }

    private static let cutMark = "... [truncated]"

    private let request: Request
    /// The line that the next byte belongs to.
    private var number = 1
    private var isEmpty = true
    /// The beginning of that line, as far as it may be needed, and its bytes in all.
    private var line: [UInt8] = []
    private var lineLength = 0
    private var content: [UInt8] = []
    private var linesRead = 0
    /// What the client asked for does not fit.
    private var problem: String?

    init(_ request: Request) { self.request = request }

    mutating func take(_ bytes: UnsafeRawBufferPointer) {
        if !bytes.isEmpty { isEmpty = false }
        var rest = bytes[...]
        while !rest.isEmpty {
            let area = UnsafeRawBufferPointer(rebasing: rest)
            guard let base = area.baseAddress, let end = memchr(base, CInt(UInt8(ascii: "\n")), area.count) else {
                return keep(area)
            }
            let count = UnsafeRawPointer(end) - base
            keep(UnsafeRawBufferPointer(rebasing: area[..<count]))
            endLine()
            rest = rest.dropFirst(count + 1)
        }
    }

    struct Outcome: Equatable {
        var totalLines: Int
        var linesRead: Int
        var content: String
    }

    /// The file has ended.
    /// - Throws: ``FilesError`` with the text for the client.
    mutating func finish() throws(FilesError) -> Outcome {
        if isEmpty { return Outcome(totalLines: 0, linesRead: 0, content: "") }
        let total = number
        endLine()
        guard request.first <= total else {
            throw FilesError(.invalid, "offset \(request.first) is beyond the file length of \(total) lines")
        }
        if let problem { throw FilesError(.invalid, problem) }
        return Outcome(totalLines: total, linesRead: linesRead, content: Self.repaired(content))
    }

    /// Whether the present line is one that is wanted.
    private var isWanted: Bool {
        guard problem == nil, number >= request.first else { return false }
        return number - request.first < request.limit ?? request.lines
    }

    private mutating func keep(_ bytes: UnsafeRawBufferPointer) {
        lineLength += bytes.count
        guard isWanted else { return }
        // One more than may be shown tells that there is more; beyond the answer's size none is needed.
        let room = min(request.lineBytes, request.bytes) + 4 - line.count
        if room > 0 { line.append(contentsOf: bytes.prefix(room)) }
    }

    private mutating func endLine() {
        if isWanted { addLine() }
        line.removeAll(keepingCapacity: true)
        lineLength = 0
        number += 1
    }

    private mutating func addLine() {
        var text = line
        if lineLength > request.lineBytes {
            text.removeSubrange(Self.boundary(line, atMost: request.lineBytes)...)
            text.append(contentsOf: Self.cutMark.utf8)
        }
        let prefix = (linesRead > 0 ? "\n" : "") + "\(number)\t"
        let length = lineLength > request.lineBytes ? text.count : lineLength
        guard content.count + prefix.utf8.count + length <= request.bytes else {
            return problem =
                "output would exceed \(request.bytes) bytes. Read less at a time using offset and limit parameters."
        }
        guard linesRead < request.lines else {
            return problem =
                "output would exceed \(request.lines) lines. Read less at a time using offset and limit parameters."
        }
        content.append(contentsOf: prefix.utf8)
        content.append(contentsOf: text)
        linesRead += 1
    }

    /// Where to cut so that no character is divided.
    static func boundary(_ bytes: [UInt8], atMost limit: Int) -> Int {
        guard limit < bytes.count else { return bytes.count }
        var end = limit
        // A UTF-8 character has at most three continuation bytes; a longer run is none.
        while end > 0, limit - end < 4, bytes[end] & 0xC0 == 0x80 { end -= 1 }
        return bytes[end] & 0xC0 == 0x80 ? limit : end
    }

    /// The text; each byte that is not part of valid UTF-8 becomes U+FFFD.
    static func repaired(_ bytes: [UInt8]) -> String {
        if let text = String(validating: bytes, as: UTF8.self) { return text }
        var text = String.UnicodeScalarView()
        var iterator = bytes.makeIterator()
        var parser = Unicode.UTF8.ForwardParser()
        while true {
            switch parser.parseScalar(from: &iterator) {
            case .valid(let encoded): text.append(Unicode.UTF8.decode(encoded))
            case .error(let length): for _ in 0..<length { text.append("\u{FFFD}") }
            case .emptyInput: return String(text)
            }
        }
    }
}
