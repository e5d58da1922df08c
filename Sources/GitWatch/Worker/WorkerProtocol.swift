import Glibc

/// What the daemon asks of the worker.
struct WorkerRequest: Sendable, Equatable {
    enum Kind: UInt8, Sendable {
        /// `root` is a path: find its repository.
        case resolve = 1
        /// Scan; `paths` are what changed.
        case scan
        /// List the directories to watch below `paths`, or all of them.
        case directories
        /// No client watches the repository any more.
        case forget
        /// Watch the directories `paths`, each an encoded ``WatchTarget``.
        case watch
    }

    var id: UInt32
    var kind: Kind
    var root: String
    /// Everything, not only `paths`.
    var full = false
    /// libgit2 crashed over this repository.
    var avoidsLibgit = false
    /// The daemon holds the last snapshot that was sent, so an equal one need not come again.
    var hasSnapshot = false
    var paths: [GitPath] = []
}

/// What the worker answers.
struct WorkerReply: Sendable, Equatable {
    enum Body: Sendable, Equatable {
        /// A thread begins with the request; with libgit2, so that a crash is its fault, or without.
        case started(inLibgit: Bool)
        case resolved(String?)
        case unchanged(byCLI: Bool)
        case snapshot(RepositorySnapshot, byCLI: Bool)
        /// What is to be watched; not complete when that is more than may be.
        case directories([WatchTarget], complete: Bool)
        case failed(ScanError)
        /// For each path the watch descriptor, or -errno.
        case watched([Int32])

        static func == (a: Body, b: Body) -> Bool {
            switch (a, b) {
            case (.started(let a), .started(let b)): a == b
            case (.resolved(let a), .resolved(let b)): a == b
            case (.unchanged(let a), .unchanged(let b)): a == b
            case (.snapshot(let a, let c), .snapshot(let b, let d)): a == b && c == d
            case (.directories(let a, let c), .directories(let b, let d)): a == b && c == d
            case (.failed(let a), .failed(let b)): a == b && a.description == b.description
            case (.watched(let a), .watched(let b)): a == b
            default: false
            }
        }
    }

    var id: UInt32
    var body: Body
}

/// A frame: its length in four bytes, then fields of fixed order, big-endian.
enum WorkerFrames {
    static func encode(_ request: WorkerRequest) -> [UInt8] {
        var out = WorkerMessageWriter()
        out.number(request.id)
        out.byte(request.kind.rawValue)
        out.byte((request.full ? 1 : 0) | (request.avoidsLibgit ? 2 : 0) | (request.hasSnapshot ? 4 : 0))
        out.bytes(Array(request.root.utf8))
        out.list(request.paths)
        return out.finished
    }

    static func request(_ frame: ArraySlice<UInt8>) -> WorkerRequest? {
        var frame = WorkerMessageReader(frame)
        guard let id = frame.number(), let kind = frame.byte().flatMap(WorkerRequest.Kind.init(rawValue:)),
            let flags = frame.byte(), let root = frame.bytes(), let paths = frame.list()
        else { return nil }
        return WorkerRequest(
            id: id, kind: kind, root: String(decoding: root, as: UTF8.self), full: flags & 1 != 0,
            avoidsLibgit: flags & 2 != 0, hasSnapshot: flags & 4 != 0, paths: paths)
    }

    static func encode(_ reply: WorkerReply) -> [UInt8] {
        var out = WorkerMessageWriter()
        out.number(reply.id)
        switch reply.body {
        case .started(let inLibgit):
            out.byte(1)
            out.byte(inLibgit ? 1 : 0)
        case .resolved(let root):
            out.byte(2)
            out.bytes(Array((root ?? "").utf8))
        case .unchanged(let byCLI):
            out.byte(3)
            out.byte(byCLI ? 1 : 0)
        case .snapshot(let snapshot, let byCLI):
            out.byte(4)
            out.byte(byCLI ? 1 : 0)
            out.bytes(Array(snapshot.branch.utf8))
            out.bytes(Array(snapshot.origin.utf8))
            out.bytes(snapshot.diff)
            out.number(snapshot.layout)
        case .directories(let targets, let complete):
            out.byte(5)
            out.byte(complete ? 1 : 0)
            out.list(targets.map(\.encoded))
        case .failed(let error):
            out.byte(6)
            out.byte(error.code.rawValue)
            out.bytes(Array(error.description.utf8))
        case .watched(let descriptors):
            out.byte(7)
            out.number(UInt32(truncatingIfNeeded: descriptors.count))
            for one in descriptors { out.number(UInt32(bitPattern: one)) }
        }
        return out.finished
    }

    static func reply(_ frame: ArraySlice<UInt8>) -> WorkerReply? {
        var frame = WorkerMessageReader(frame)
        func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }
        guard let id = frame.number(), let kind = frame.byte() else { return nil }
        let body: WorkerReply.Body
        switch kind {
        case 1:
            guard let inLibgit = frame.byte() else { return nil }
            body = .started(inLibgit: inLibgit != 0)
        case 2:
            guard let root = frame.bytes() else { return nil }
            body = .resolved(root.isEmpty ? nil : text(root))
        case 3:
            guard let byCLI = frame.byte() else { return nil }
            body = .unchanged(byCLI: byCLI != 0)
        case 4:
            guard let byCLI = frame.byte(), let branch = frame.bytes(), let origin = frame.bytes(),
                let diff = frame.bytes(), let layout = frame.number()
            else { return nil }
            body = .snapshot(
                RepositorySnapshot(branch: text(branch), origin: text(origin), diff: diff, layout: layout),
                byCLI: byCLI != 0)
        case 5:
            guard let complete = frame.byte(), let encoded = frame.list() else { return nil }
            let targets = encoded.compactMap(WatchTarget.init)
            guard targets.count == encoded.count else { return nil }
            body = .directories(targets, complete: complete != 0)
        case 6:
            guard let code = frame.byte().flatMap(ScanError.Code.init(rawValue:)), let what = frame.bytes() else {
                return nil
            }
            body = .failed(ScanError(code, text(what)))
        case 7:
            guard let count = frame.number(), count <= GitWatchLimits.watchesPerRepository else { return nil }
            var descriptors: [Int32] = []
            for _ in 0..<count {
                guard let one = frame.number() else { return nil }
                descriptors.append(Int32(bitPattern: one))
            }
            body = .watched(descriptors)
        default: return nil
        }
        return WorkerReply(id: id, body: body)
    }
}

struct WorkerMessageWriter {
    private var out: [UInt8] = [0, 0, 0, 0]

    mutating func byte(_ value: UInt8) { out.append(value) }

    mutating func number(_ value: UInt32) {
        for shift in [24, 16, 8, 0] { out.append(UInt8(truncatingIfNeeded: value >> UInt32(shift))) }
    }

    mutating func bytes(_ value: [UInt8]) {
        number(UInt32(truncatingIfNeeded: value.count))
        out += value
    }

    mutating func list(_ values: [[UInt8]]) {
        number(UInt32(truncatingIfNeeded: values.count))
        for value in values { bytes(value) }
    }

    var finished: [UInt8] {
        var copy = out
        let count = UInt32(truncatingIfNeeded: copy.count - 4)
        for (position, shift) in [24, 16, 8, 0].enumerated() {
            copy[position] = UInt8(truncatingIfNeeded: count >> UInt32(shift))
        }
        return copy
    }
}

struct WorkerMessageReader {
    private var rest: ArraySlice<UInt8>

    init(_ frame: ArraySlice<UInt8>) { rest = frame }

    mutating func byte() -> UInt8? { rest.popFirst() }

    mutating func number() -> UInt32? {
        guard rest.count >= 4 else { return nil }
        defer { rest = rest.dropFirst(4) }
        return rest.prefix(4).reduce(0) { $0 << 8 | UInt32($1) }
    }

    mutating func bytes() -> [UInt8]? {
        guard let count = number(), count <= rest.count else { return nil }
        defer { rest = rest.dropFirst(Int(count)) }
        return Array(rest.prefix(Int(count)))
    }

    mutating func list() -> [[UInt8]]? {
        guard let count = number(), count <= rest.count else { return nil }
        var values: [[UInt8]] = []
        for _ in 0..<count {
            guard let value = bytes() else { return nil }
            values.append(value)
        }
        return values
    }
}

/// Cuts a byte stream into frames.
struct FrameSplitter {
    private var buffer: [UInt8] = []

    /// - Returns: whole frames; nil when one is longer than allowed.
    mutating func add(_ bytes: UnsafeRawBufferPointer) -> [ArraySlice<UInt8>]? {
        buffer += bytes
        var frames: [ArraySlice<UInt8>] = []
        var start = 0
        while buffer.count - start >= 4 {
            let count = buffer[start..<start + 4].reduce(0) { $0 << 8 | Int($1) }
            guard count <= GitWatchLimits.frameBytes else { return nil }
            guard buffer.count - start - 4 >= count else { break }
            frames.append(buffer[(start + 4)..<(start + 4 + count)])
            start += 4 + count
        }
        if start > 0 { buffer = Array(buffer[start...]) }
        return frames
    }
}
