/// What has changed in a watched tree since the client was told last: one event for each path, in the order of the
/// last changes.
struct WatchChanges {
    enum Change: Equatable {
        case create
        case modify
        case delete
        /// Renamed, from this path.
        case move(from: [UInt8])
    }

    private var changes: [[UInt8]: (change: Change, turn: Int)] = [:]
    private var turn = 0

    var count: Int { changes.count }

    subscript(_ path: [UInt8]) -> Change? { changes[path]?.change }

    mutating func add(_ change: Change, _ path: [UInt8]) {
        switch (change, changes[path]?.change) {
        case (.create, .delete?), (.modify, .delete?): set(.modify, path)
        case (.create, let old?), (.modify, let old?): set(old, path)
        // It was there for a moment.
        case (.delete, .create?): changes[path] = nil
        case (.delete, .move(let from)?):
            set(.delete, from)
            set(.delete, path)
        case (.move(let from), _): move(from, path)
        case (_, _): set(change, path)
        }
    }

    private mutating func move(_ from: [UInt8], _ path: [UInt8]) {
        switch changes[from]?.change {
        case .move(let first)?:
            // Something may have been at the stop on the way.
            set(.delete, from)
            set(first == path ? .modify : .move(from: first), path)
        default:
            changes[from] = nil
            set(.move(from: from), path)
        }
    }

    private mutating func set(_ change: Change, _ path: [UInt8]) {
        turn += 1
        changes[path] = (change, turn)
    }

    /// A directory goes away as a whole: what changed in it is of no interest any more.
    mutating func remove(below directory: [UInt8]) {
        let inside = directory + [UInt8(ascii: "/")]
        for (path, value) in changes where path.starts(with: inside) {
            changes[path] = nil
            if case .move(let from) = value.change, !from.starts(with: inside) { add(.delete, from) }
        }
    }

    /// All of them; there are none left.
    mutating func take() -> [(path: [UInt8], change: Change)] {
        defer { changes = [:] }
        return changes.sorted { $0.value.turn < $1.value.turn }.map { ($0.key, $0.value.change) }
    }
}
