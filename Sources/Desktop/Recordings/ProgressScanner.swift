/// Finds in what `ffmpeg -progress` writes that a frame is on the disk.
///
/// It writes blocks of `name=value` lines, each ended by `progress=…` (ffmpeg(1), -progress):
/// `frame` counts frames that went to the encoder or out of it, by version; `total_size` is the size
/// of the first output file, which with -flush_packets is what was written.
struct ProgressScanner: Sendable {
    /// ftyp, free and the head of mdat, which are written before any frame, have 48 bytes.
    private static let headerBytes = 128
    /// Bytes of a line that are kept; ours are shorter.
    private static let lineBytes = 128

    private var line: [UInt8] = []
    private var frames = 0
    private var size = 0
    private(set) var hasFrame = false

    /// - Returns: true once, when the first frame is found.
    mutating func take(_ bytes: some Sequence<UInt8>) -> Bool {
        guard !hasFrame else { return false }
        for byte in bytes {
            if byte == UInt8(ascii: "\n") {
                endLine()
                if hasFrame { return true }
            } else if line.count < Self.lineBytes {
                line.append(byte)
            }
        }
        return false
    }

    private mutating func endLine() {
        defer { line.removeAll(keepingCapacity: true) }
        let text = String(decoding: line, as: UTF8.self)
        if text.hasPrefix("frame=") {
            frames = number(text.dropFirst(6))
        } else if text.hasPrefix("total_size=") {
            size = number(text.dropFirst(11))
        } else if text.hasPrefix("progress=") {
            hasFrame = frames > 0 && size > Self.headerBytes
        }
    }

    /// `N/A` before there is any.
    private func number(_ text: Substring) -> Int {
        Int(text.drop { $0 == " " }.prefix { $0.isNumber }) ?? 0
    }
}
