import AgentCore
import CPlatform
import Glibc
import Synchronization

/// Looks for a pattern in the files that a walk comes upon.
final class GrepSearch: TreeVisitor {
    struct Found: Sendable {
        /// Below the root; empty is the root itself.
        var path: [UInt8]
        var match: LineMatch
    }

    private struct State {
        var found: [Found] = []
        var bytes = 0
        var isFull = false
        /// Files could not be opened for want of descriptors or memory.
        var isIncomplete = false
    }

    private let search: GrepMatcher
    private let limit: Int
    private let prefix: Int
    private let state = Mutex(State())

    /// - Parameters:
    ///   - limit: how many matches are kept, at least 1.
    ///   - prefix: bytes of the entries' paths that are not below the root.
    init(_ search: GrepMatcher, limit: Int, prefix: Int) {
        (self.search, self.limit, self.prefix) = (search, limit, prefix)
    }

    func visit(
        _ entry: TreeEntry, _ buffer: inout ScratchBuffer, until end: ContinuousClock.Instant
    ) -> TreeVisit {
        guard entry.kind == .file, let name = entry.namePointer else { return .done }
        let flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
        let file = OwnedDescriptor(wa_openat(entry.directory.number, name, flags, 0))
        guard file.number >= 0 else {
            if [-EMFILE, -ENFILE, -ENOMEM].contains(file.number) { state.withLock { $0.isIncomplete = true } }
            return .done
        }
        return search(file.number, &buffer, until: end) { Array(entry.path[prefix...]) }
    }

    /// Looks in an open file.
    /// - Parameter path: asked for when there is a match, or more to search.
    func search(
        _ number: CInt, _ buffer: inout ScratchBuffer, until end: ContinuousClock.Instant, path: () -> [UInt8]
    ) -> TreeVisit {
        guard let text = Self.read(number, &buffer) else { return .done }
        var progress = GrepMatcher.Progress()
        let (found, isFinished) = search.matches(in: text, atMost: limit + 1, from: &progress) {
            ContinuousClock.now >= end
        }
        if isFinished, found.isEmpty { return .done }
        let path = path()
        guard keep(found, path) else { return .enough }
        return isFinished ? .done : .unfinished(Rest(self, Array(text), path, progress))
    }

    /// - Returns: false once there are enough matches.
    private func keep(_ matches: [LineMatch], _ path: [UInt8]) -> Bool {
        state.withLock { state in
            for match in matches {
                if state.found.count == limit { state.isFull = true }
                guard !state.isFull else { return false }
                state.found.append(Found(path: path, match: match))
                state.bytes += match.bytes + path.count
                if state.bytes >= FilesLimits.grepAnswerBytes { state.isFull = true }
            }
            return !state.isFull
        }
    }

    /// What is left of a file whose search takes long.
    private final class Rest: UnfinishedVisit {
        private let search: GrepSearch
        private let text: [UInt8]
        private let path: [UInt8]
        private let progress: Mutex<GrepMatcher.Progress>

        init(_ search: GrepSearch, _ text: [UInt8], _ path: [UInt8], _ progress: GrepMatcher.Progress) {
            (self.search, self.text, self.path) = (search, text, path)
            self.progress = Mutex(progress)
        }

        func proceed(until end: ContinuousClock.Instant) -> TreeVisit {
            var now = progress.withLock { $0 }
            let (found, isFinished) = text.withUnsafeBytes {
                search.search.matches(in: $0, atMost: search.limit + 1, from: &now) { ContinuousClock.now >= end }
            }
            progress.withLock { $0 = now }
            guard search.keep(found, path) else { return .enough }
            return isFinished ? .done : .unfinished(self)
        }
    }

    /// - Returns: by path and line, and whether there were more.
    func result() -> (found: [Found], truncated: Bool) {
        var (found, truncated) = state.withLock { ($0.found, $0.isFull || $0.isIncomplete) }
        found.sort { a, b in
            a.path == b.path ? a.match.line < b.match.line : a.path.lexicographicallyPrecedes(b.path)
        }
        return (found, truncated)
    }

    /// The content of a regular file that is text and not too large.
    private static func read(_ number: CInt, _ buffer: inout ScratchBuffer) -> UnsafeRawBufferPointer? {
        var info = stat()
        guard fstat(number, &info) == 0, info.st_mode & S_IFMT == S_IFREG, info.st_size <= FilesLimits.grepFileBytes
        else { return nil }
        // A file of /proc has the size 0, whatever is in it, and is read piece by piece.
        let area = buffer.reserve((info.st_size == 0 ? FilesLimits.grepFileBytes : Int(info.st_size)) + 1)
        var count = 0
        while count < area.count {
            let got = wa_read(number, area.baseAddress.map { $0 + count }, area.count - count)
            guard got > 0 else { break }
            if count == 0, isBinary(area, got) { return nil }
            count += got
            if count == info.st_size { break }
        }
        guard count <= FilesLimits.grepFileBytes else { return nil }
        return UnsafeRawBufferPointer(rebasing: area[..<count])
    }

    private static func isBinary(_ area: UnsafeMutableRawBufferPointer, _ count: Int) -> Bool {
        area.baseAddress.map { memchr($0, 0, min(count, FilesLimits.binaryBytes)) != nil } ?? false
    }
}
