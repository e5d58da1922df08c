import AgentCore

/// What one file adds to the diff of a repository.
struct FileDiff: Equatable {
    /// nil when it is longer than the diff of a repository may be, so that it is never shown.
    var whole: [UInt8]?
    /// Bytes of the whole.
    var size: Int
    /// The headers and one line, for when the whole has no room; nil for one that is never cut.
    var short: [UInt8]?

    init(_ text: [UInt8]) { (whole, size, short) = (text, text.count, nil) }

    /// - Parameters:
    ///   - head: the lines before `---` and `+++`.
    ///   - names: those two.
    ///   - hunks: counted to their end, kept up to the limit.
    init(head: [UInt8], names: [UInt8], hunks: DiffText.BoundedBytes) {
        size = head.count + names.count + hunks.count
        whole = size > GitWatchLimits.totalDiffBytes ? nil : head + names + hunks.bytes
        short = size > GitWatchLimits.fileDiffBytes ? head + DiffText.tooLong(size) : nil
    }

    static func + (a: FileDiff, b: FileDiff) -> FileDiff {
        var sum = FileDiff([])
        sum.size = a.size + b.size
        if let first = a.whole, let second = b.whole { sum.whole = first + second } else { sum.whole = nil }
        if a.short != nil || b.short != nil { sum.short = (a.short ?? a.whole ?? []) + (b.short ?? b.whole ?? []) }
        return sum
    }
}

/// The diffs of a repository's files. They are shown whole as long as all of them fit into a snapshot; where they do
/// not, the longest are cut first, of those that may be. No more text is kept than is shown.
struct DiffPieces<Key: Hashable & Comparable> {
    private struct Piece {
        /// nil when it was let go: it does not fit beside the others.
        var text: [UInt8]?
        var short: [UInt8]?
        /// Bytes of the text, and of its JSON.
        var size: Int
        var encodedSize: Int
        /// Bytes of the file's diff, shown or not.
        var wholeSize: Int
    }

    enum Text: Equatable {
        case whole([UInt8])
        /// Bytes of all that is not shown.
        case tooLong(Int)
        /// Needs text that was let go when there was more beside it.
        case incomplete
    }

    private var pieces: [Key: Piece] = [:]
    private var retained = 0
    /// Those that may be cut and are not yet.
    private var retainedLong: Set<Key> = []

    var keys: some Collection<Key> { pieces.keys }

    func contains(_ key: Key) -> Bool { pieces[key] != nil }

    mutating func insert(_ diff: FileDiff, at key: Key) {
        remove(key)
        let text = diff.whole ?? diff.short ?? []
        pieces[key] = Piece(
            text: text, short: diff.whole == nil ? nil : diff.short, size: text.count,
            encodedSize: Self.encodedSize(text), wholeSize: diff.size)
        retained += text.count
        if pieces[key]?.short != nil { retainedLong.insert(key) }
        while retained > GitWatchLimits.totalDiffBytes {
            // Also the first that is cut when all of it is shown.
            let victim = retainedLong.min(by: isCutBefore) ?? key
            guard pieces[victim]?.text != nil else { return }
            letGo(victim)
        }
    }

    mutating func remove(_ key: Key) {
        letGo(key)
        pieces[key] = nil
    }

    private mutating func letGo(_ key: Key) {
        retained -= pieces[key]?.text?.count ?? 0
        pieces[key]?.text = nil
        retainedLong.remove(key)
    }

    private func isCutBefore(_ a: Key, _ b: Key) -> Bool {
        let (sizeA, sizeB) = (pieces[a]?.size ?? 0, pieces[b]?.size ?? 0)
        return sizeA == sizeB ? a < b : sizeA > sizeB
    }

    /// Which pieces are cut, so that the rest fits; nil when it does not fit anyhow.
    private func cuts() -> Set<Key>? {
        var size = pieces.values.reduce(0) { $0 + $1.size }
        var encodedSize = pieces.values.reduce(0) { $0 + $1.encodedSize }
        func fits() -> Bool {
            size <= GitWatchLimits.totalDiffBytes && encodedSize <= GitWatchLimits.encodedDiffBytes
        }
        if fits() { return [] }
        var cuts: Set<Key> = []
        for key in pieces.keys.filter({ pieces[$0]?.short != nil }).sorted(by: isCutBefore) {
            guard let piece = pieces[key], let short = piece.short else { continue }
            cuts.insert(key)
            size += short.count - piece.size
            encodedSize += Self.encodedSize(short) - piece.encodedSize
            if fits() { return cuts }
        }
        return nil
    }

    /// Whether text is to be shown that was let go.
    var isIncomplete: Bool {
        guard let cuts = cuts() else { return false }
        return pieces.contains { $0.value.text == nil && !cuts.contains($0.key) }
    }

    /// All of it, in the order of the keys.
    func text() -> Text {
        guard let cuts = cuts() else { return .tooLong(pieces.values.reduce(0) { $0 + $1.wholeSize }) }
        var all: [UInt8] = []
        for (key, piece) in pieces.sorted(by: { $0.key < $1.key }) {
            guard let text = cuts.contains(key) ? piece.short : piece.text else { return .incomplete }
            all += text
        }
        return .whole(all)
    }

    /// Bytes of the text in a JSON string, at most.
    private static func encodedSize(_ text: [UInt8]) -> Int {
        let isUTF8 = String(validating: text, as: UTF8.self) != nil
        return text.reduce(0) { size, byte in
            switch byte {
            case 9, 10, 13, UInt8(ascii: "\""), UInt8(ascii: "\\"): size + 2
            case ..<32: size + 6
            // What is not UTF-8 becomes U+FFFD, of three bytes.
            case 0x80...: size + (isUTF8 ? 1 : 3)
            default: size + 1
            }
        }
    }
}
