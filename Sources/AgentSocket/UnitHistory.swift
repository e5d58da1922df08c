import NIOCore

/// Units with their timeline, as a journal has them. A value: no locks, no clock, no files.
///
/// A journal begins with a line that names its format and the start of the machine that it is of; records follow.
struct UnitHistory: Sendable {
    var graph = UnitGraph()
    var events: EventLog

    init(events: EventLog = EventLog()) { self.events = events }

    /// What was read of a journal.
    struct Reading: Sendable {
        var history: UnitHistory
        /// Bytes at the end that are not a journal's. All of them when the journal is another's.
        var damagedBytes = 0
        /// It is of another start of the machine, and nothing of it is used.
        var isOver = false
    }

    private static let format = "workspace-agent units 1 "

    /// The first line.
    static func header(_ machine: String) -> [UInt8] { Array("\(format)\(machine)\n".utf8) }

    /// Reads as much as makes sense.
    /// - Parameter machine: the start of the machine that this is.
    static func read(_ bytes: [UInt8], machine: String, events: EventLog = EventLog()) -> Reading {
        var reading = Reading(history: UnitHistory(events: events))
        let header = header(machine)
        guard bytes.starts(with: header) else {
            reading.isOver = bytes.starts(with: format.utf8)
            reading.damagedBytes = reading.isOver ? 0 : bytes.count
            return reading
        }
        var rest = ByteBuffer(bytes: bytes[header.count...])
        while rest.readableBytes > 0 {
            let before = rest.readableBytes
            guard let record = UnitRecord.read(from: &rest), (try? reading.history.apply(record)) != nil else {
                reading.damagedBytes = before
                break
            }
        }
        if reading.history.graph.hasCycle {
            return Reading(history: UnitHistory(events: events), damagedBytes: bytes.count)
        }
        return reading
    }

    /// - Throws: for what no daemon could have written, such as a cycle or an unknown unit.
    private mutating func apply(_ record: UnitRecord) throws(UnitError) {
        switch record {
        case .name(let name): try graph.restore(UnitName(name))
        case .state(let unit, let state): try graph.restore(name(unit), state)
        case .wants(let unit, let dependency): try graph.restore(name(unit), wants: name(dependency))
        case .event(let unit, let state, let at):
            let name = try name(unit)
            try graph.restore(name, state)
            events.append(UnitEvent(unit: name.text, status: state.rawValue, at: at))
        }
    }

    private func name(_ number: Int) throws(UnitError) -> UnitName {
        guard let name = graph.name(number) else { throw .notFound }
        return name
    }

    /// All of it as records; a journal that has them and no others says the same.
    var records: ByteBuffer {
        var bytes = ByteBuffer()
        let contents = graph.contents
        for unit in contents { UnitRecord.name(unit.name.text).write(into: &bytes) }
        // Before the events, the last of which says the same where it is still kept.
        for (number, unit) in contents.enumerated() {
            if let state = unit.state { UnitRecord.state(number, state).write(into: &bytes) }
        }
        for (number, unit) in contents.enumerated() {
            for dependency in unit.dependencies { UnitRecord.wants(number, dependency).write(into: &bytes) }
        }
        for event in events.all {
            guard let unit = graph.number(UnitName(event.unit)), let state = UnitState(rawValue: event.status) else {
                continue
            }
            UnitRecord.event(unit, state, event.at).write(into: &bytes)
        }
        return bytes
    }
}
