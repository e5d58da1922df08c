/// Finds in the output of `ffmpeg -progress` when the first frame is on disk.
///
/// It writes blocks of `name=value` lines, each ended by `progress=…` (ffmpeg(1), -progress):
/// `frame` counts frames that entered or left the encoder, depending on the version; `total_size` is the size of
/// the first output file, which with -flush_packets is what was written.
struct ProgressScanner: Sendable {
    /// More than ftyp, free and the head of mdat (48 bytes), which are written before any frame.
    private static let headerBytes = 128
    /// Bytes of a line that are kept; the lines that we read are shorter.
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

    /// 0 for `N/A`, which ffmpeg writes before the first value.
    private func number(_ text: Substring) -> Int {
        Int(text.drop { $0 == " " }.prefix { $0.isNumber }) ?? 0
    }
}
