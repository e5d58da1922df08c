import Glibc

/// Reads the output of `git diff` as it comes, file by file, and applies the limits on the way: what is not shown is
/// counted and forgotten.
final class CLIDiff {
    private struct Section {
        var head: [UInt8] = []
        var body: DiffText.BoundedBytes
        var inHunks = false
        var isBinary = false
        var id = ""
        var path: GitPath = []
        var lines = 0
        init() { body = DiffText.BoundedBytes(limit: GitWatchLimits.totalDiffBytes) }
    }

    private let root: String
    /// By their place in the output.
    private var pieces = DiffPieces<Int>()
    private var count = 0
    private var heads: [Int: [UInt8]] = [:]
    /// Entries of binary files whose size is not known yet, with the id of the object to ask for.
    private(set) var unmeasured: [(Int, String)] = []
    private var line: [UInt8] = []
    private var lineOverflow = 0
    private var section: Section?

    init(root: String) { self.root = root }

    /// Everything so far, and what `more` adds when it is shown.
    func text(more: [UInt8]) -> [UInt8] {
        switch pieces.text() {
        case .whole(let text): return text + more
        case .tooLong(let size): return DiffText.totalTooLong(size)
        // A replacement made room by a few bytes.
        case .incomplete: return DiffText.totalTooLong(GitWatchLimits.totalDiffBytes + 1)
        }
    }

    func replace(_ position: Int, with body: [UInt8]) {
        guard let head = heads[position] else { return }
        pieces.insert(FileDiff(head + body), at: position)
    }

    /// A piece of output; lines may be cut anywhere.
    func feed(_ bytes: UnsafeRawBufferPointer) throws {
        var rest = bytes[...]
        while let end = rest.firstIndex(of: 10) {
            take(rest[...end])
            finishLine()
            rest = rest[(end + 1)...]
        }
        take(rest)
    }

    /// The output is at its end.
    func finish() throws {
        if !line.isEmpty { finishLine() }
        finishSection()
    }

    /// A longer line belongs to a file whose diff is not shown anyway.
    private static let longestLine = GitWatchLimits.totalDiffBytes + 1024

    private func take(_ bytes: Slice<UnsafeRawBufferPointer>) {
        let room = Self.longestLine - line.count
        if bytes.count <= room {
            line += bytes
        } else {
            line += bytes.prefix(max(0, room))
            lineOverflow += bytes.count - max(0, room)
        }
    }

    private func finishLine() {
        defer {
            line.removeAll(keepingCapacity: true)
            lineOverflow = 0
        }
        func starts(_ text: String) -> Bool { line.starts(with: text.utf8) }
        let inHunk = section?.inHunks == true && (line.first.map { [32, 43, 45, 92, 64, 10].contains($0) } ?? false)
        if !inHunk, starts("diff --git ") || starts("* Unmerged path ") || starts("diff --cc ") || starts("Submodule ")
        {
            finishSection()
            var fresh = Section()
            if starts("diff --git ") { fresh.path = Self.path(line) }
            section = fresh
        }
        guard section != nil else { return }
        section?.lines += 1
        if starts("@@ "), section?.inHunks == false { section?.inHunks = true }
        if section?.inHunks == true {
            section?.body.append(line)
            if lineOverflow > 0 { section?.body.append(repeatElement(0, count: lineOverflow)) }
            return
        }
        if starts("Binary files ") { section?.isBinary = true }
        if starts("index ") { section?.id = String(decoding: line.dropFirst(6).prefix { $0 != 46 }, as: UTF8.self) }
        section?.head += line
    }

    private func finishSection() {
        guard let done = section else { return }
        section = nil
        // Only touched: git would have noticed with diff.autoRefreshIndex.
        if done.lines == 1, done.head.starts(with: "diff --git ".utf8) { return }
        defer { count += 1 }
        guard done.isBinary else {
            let (head, names) = Self.parts(done.head)
            return pieces.insert(FileDiff(head: head, names: names, hunks: done.body), at: count)
        }
        let (head, _) = Self.parts(done.head)
        if let size = size(done.path), size > GitWatchLimits.fileBytes {
            return pieces.insert(FileDiff(head + DiffText.tooLarge(size)), at: count)
        } else if size(done.path) == nil, done.id.contains(where: { $0 != "0" }) {
            unmeasured.append((count, done.id))
            heads[count] = head
        }
        pieces.insert(FileDiff(done.head + done.body.bytes), at: count)
    }

    private func size(_ path: GitPath) -> Int? {
        var info = stat()
        guard lstat(path.below(root), &info) == 0, info.st_mode & S_IFMT == S_IFREG else { return nil }
        return Int(info.st_size)
    }

    /// The lines up to `--- ` or `Binary files `, and those from there on.
    private static func parts(_ head: [UInt8]) -> (extended: [UInt8], names: [UInt8]) {
        var start = head.startIndex
        while start < head.endIndex {
            let line = head[start...]
            if line.starts(with: "--- ".utf8) || line.starts(with: "+++ ".utf8) || line.starts(with: "Binary ".utf8) {
                break
            }
            start = line.firstIndex(of: 10).map { $0 + 1 } ?? head.endIndex
        }
        return (Array(head[..<start]), Array(head[start...]))
    }

    /// The name in a `diff --git` line, where both names are the same but for a prefix.
    private static func path(_ line: [UInt8]) -> GitPath {
        let both = Array(line.dropFirst(11).dropLast(line.last == 10 ? 1 : 0))
        guard both.count >= 3 else { return [] }
        let half = Array(both[(both.count / 2 + 1)...])
        var name = unquoted(half)
        if name.starts(with: "b/".utf8), both.starts(with: "a/".utf8) || both.starts(with: "\"a/".utf8) {
            name = Array(name.dropFirst(2))
        }
        return name
    }

    private static func unquoted(_ name: [UInt8]) -> [UInt8] {
        guard name.first == UInt8(ascii: "\""), name.count >= 2 else { return name }
        let escapes: [UInt8: UInt8] = [97: 7, 98: 8, 116: 9, 110: 10, 118: 11, 102: 12, 114: 13, 34: 34, 92: 92]
        var out: [UInt8] = []
        var rest = name.dropFirst().dropLast()[...]
        while let byte = rest.popFirst() {
            guard byte == 92, let next = rest.popFirst() else {
                out.append(byte)
                continue
            }
            if let plain = escapes[next] {
                out.append(plain)
            } else {
                let digits = [next] + rest.prefix(2)
                rest = rest.dropFirst(2)
                out.append(digits.reduce(0) { $0 &* 8 &+ ($1 &- 48) })
            }
        }
        return out
    }
}
