import DequeModule

/// A moment of wall-clock time.
public struct UnitInstant: Sendable, Equatable {
    public var seconds: Int64
    public var nanoseconds: Int32

    public init(seconds: Int64, nanoseconds: Int32) {
        self.seconds = seconds
        self.nanoseconds = nanoseconds
    }
}

/// One change of a unit's status.
public struct UnitEvent: Sendable, Equatable {
    public var unit: String
    public var status: String
    public var at: UnitInstant

    public init(unit: String, status: String, at: UnitInstant) {
        self.unit = unit
        self.status = status
        self.at = at
    }
}

/// The latest events, numbered from 0. A reader only keeps the number to go on with, so that a slow one costs no
/// memory.
struct EventLog: Sendable {
    /// What a reader gets.
    enum Batch: Sendable, Equatable {
        /// Events, and the number to go on with.
        case events([UnitEvent], next: Int)
        /// How many events that the reader had not seen were dropped.
        case lost(Int)
    }

    private var kept: Deque<UnitEvent> = []
    private var first = 0
    private let capacity: Int

    init(capacity: Int = AgentSocketLimits.events) { self.capacity = capacity }

    /// The number that the next event gets.
    var next: Int { first + kept.count }
    /// Events that were forgotten.
    var forgotten: Int { first }

    mutating func append(_ event: UnitEvent) {
        kept.append(event)
        if kept.count > capacity {
            kept.removeFirst()
            first += 1
        }
    }

    /// All that are kept, oldest first.
    var all: Deque<UnitEvent> { kept }

    /// Forgets all events; numbers go on.
    mutating func removeAll() {
        first = next
        kept = []
    }

    /// Events from a number on, at most ``AgentSocketLimits/eventBatch``. A reader that begins with 0 gets
    /// whatever is kept.
    func read(from number: Int) -> Batch {
        if number != 0, number < first { return .lost(first - number) }
        let start = max(number, first)
        let end = min(next, start + AgentSocketLimits.eventBatch)
        guard start < end else { return .events([], next: next) }
        return .events(Array(kept[(start - first)..<(end - first)]), next: end)
    }
}
