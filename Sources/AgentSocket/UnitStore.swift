import AgentCore
import Glibc
import Synchronization

/// The one unit graph of the daemon, with its events and the tasks that wait for changes.
///
/// Everything is behind one lock. Waiting tasks are woken after the lock is released; each checks again and may wait on,
/// so that a superfluous wake-up does no harm.
public final class UnitStore: Sendable {
    private struct State {
        var history: UnitHistory
        var graph: UnitGraph {
            get { history.graph }
            _modify { yield &history.graph }
        }
        var events: EventLog {
            get { history.events }
            _modify { yield &history.events }
        }
        /// Fulfilled at the next change of a unit's report.
        var unitWaiters: [UnitName: [Promise<Void>]] = [:]
        /// Fulfilled at the next event.
        var eventWaiters: [Promise<Void>] = []

        mutating func takeWaiters(of units: [UnitName], andEvents: Bool) -> [Promise<Void>] {
            var woken: [Promise<Void>] = []
            for unit in units {
                if let waiters = unitWaiters.removeValue(forKey: unit) { woken += waiters }
            }
            if andEvents {
                woken += eventWaiters
                eventWaiters.removeAll()
            }
            return woken
        }
    }

    private let state: Mutex<State>
    private let journal: UnitJournal?
    private let now: @Sendable () -> UnitInstant

    /// - Parameters:
    ///   - journal: keeps the units for the next daemon; those of the last one are read, which blocks.
    ///   - now: the wall clock, for the events.
    public convenience init(
        journal: UnitJournal? = nil, now: @escaping @Sendable () -> UnitInstant = UnitStore.wallClock
    ) {
        self.init(journal: journal, eventCapacity: AgentSocketLimits.events, now: now)
    }

    init(
        journal: UnitJournal? = nil, eventCapacity: Int,
        now: @escaping @Sendable () -> UnitInstant = UnitStore.wallClock
    ) {
        self.now = now
        self.journal = journal
        let events = EventLog(capacity: eventCapacity)
        state = Mutex(State(history: journal?.read(events: events) ?? UnitHistory(events: events)))
        journal?.begin { [weak self] taken in
            self?.state.withLock { state in
                taken()
                return state.history.records
            }
        }
    }

    /// The time of day.
    public static func wallClock() -> UnitInstant {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return UnitInstant(seconds: Int64(time.tv_sec), nanoseconds: Int32(time.tv_nsec))
    }

    /// Registered units.
    public var count: Int { state.withLock { $0.graph.count } }
    /// Events that were forgotten for newer ones.
    public var forgottenEvents: Int { state.withLock { $0.events.forgotten } }
    /// Tasks that wait for a change.
    var waiting: Int {
        state.withLock { $0.eventWaiters.count + $0.unitWaiters.values.reduce(0) { $0 + $1.count } }
    }

    /// Returns once the changes that came before would outlive the daemon, or cannot; see ``UnitJournal``.
    public func kept() async { await journal?.written() }

    /// Why units would not outlive the daemon; nil when they would, and for a store that keeps none.
    public var problem: String? { journal?.problem }

    /// Forgets all units and events: the scripts that have set them begin anew.
    public func forgetAll() {
        let woken = state.withLock { state in
            state.graph = UnitGraph()
            state.events.removeAll()
            journal?.forget()
            return state.takeWaiters(of: Array(state.unitWaiters.keys), andEvents: true)
        }
        for waiter in woken { waiter.fulfill() }
    }

    /// Registers a unit. See ``UnitGraph/register(_:)``.
    public func register(_ unit: String) throws(UnitError) {
        try change(unit) { (graph, name) throws(UnitError) in try graph.register(name) ? .pending : nil }
    }

    /// Adds an edge. See ``UnitGraph/want(_:_:)``.
    public func want(_ unit: String, _ dependency: String) throws(UnitError) {
        try change(unit, wants: dependency) { (graph, name) throws(UnitError) in
            try graph.want(name, UnitName(dependency))
            return nil
        }
    }

    /// Starts a registered unit. See ``UnitGraph/start(_:)``.
    public func start(_ unit: String) throws(UnitError) {
        try change(unit) { (graph, name) throws(UnitError) in
            try graph.start(name)
            return .started
        }
    }

    /// Completes a registered unit. See ``UnitGraph/complete(_:)``.
    public func complete(_ unit: String) throws(UnitError) {
        try change(unit) { (graph, name) throws(UnitError) in
            try graph.complete(name)
            return .completed
        }
    }

    /// Whether all that the unit wants is completed.
    public func isReady(_ unit: String) -> Bool { state.withLock { $0.graph.isReady(UnitName(unit)) } }

    /// All that is known of the unit.
    public func report(_ unit: String) -> UnitReport { state.withLock { $0.graph.report(UnitName(unit)) } }

    /// The registered units, ordered by name.
    public func list() -> [UnitReport] { state.withLock { $0.graph.list() } }

    /// All that is known of the registered units, ordered by name.
    public func reports() -> [UnitReport] { state.withLock { $0.graph.reports() } }

    /// The unit's report and its revision, for ``changed(_:since:)``.
    func versioned(_ unit: String) -> (report: UnitReport, revision: UInt64) {
        let name = UnitName(unit)
        return state.withLock { ($0.graph.report(name), $0.graph.revision(name)) }
    }

    /// Waits until the unit's report differs from the one with this revision.
    func changed(_ unit: String, since revision: UInt64) async throws {
        let name = UnitName(unit)
        let change = Promise<Void>()
        state.withLock { state in
            guard state.graph.revision(name) == revision else { return _ = change.fulfill() }
            state.unitWaiters[name, default: []].append(change)
        }
        try await wait(for: change) { state in
            state.unitWaiters[name]?.removeAll { $0 === change }
            if state.unitWaiters[name]?.isEmpty == true { state.unitWaiters[name] = nil }
        }
    }

    /// Events from a number on. Begin with 0 for all that are kept.
    func events(from number: Int) -> EventLog.Batch { state.withLock { $0.events.read(from: number) } }

    /// The number that the next event gets.
    var nextEvent: Int { state.withLock { $0.events.next } }

    /// Waits until there is an event with this number.
    func happened(_ number: Int) async throws {
        let event = Promise<Void>()
        state.withLock { state in
            guard state.events.next <= number else { return _ = event.fulfill() }
            state.eventWaiters.append(event)
        }
        try await wait(for: event) { $0.eventWaiters.removeAll { $0 === event } }
    }

    /// Changes the graph and wakes the tasks that wait for the change.
    /// - Parameter dependency: of an edge that the body adds.
    private func change(
        _ unit: String, wants dependency: String? = nil,
        _ body: (inout UnitGraph, UnitName) throws(UnitError) -> UnitState?
    ) throws(UnitError) {
        let name = UnitName(unit)
        let at = now()
        let woken = try state.withLock { state throws(UnitError) -> [Promise<Void>] in
            let (names, edges) = (state.graph.nodeCount, state.graph.edgeCount)
            let event = try body(&state.graph, name)
            if let event { state.events.append(UnitEvent(unit: unit, status: event.rawValue, at: at)) }
            if let journal, event != nil || state.graph.edgeCount > edges {
                let graph = state.graph
                journal.append { bytes in
                    for number in names..<graph.nodeCount {
                        if let name = graph.name(number) { UnitRecord.name(name.text).write(into: &bytes) }
                    }
                    guard let unit = graph.number(name) else { return }
                    if graph.edgeCount > edges, let dependency, let wanted = graph.number(UnitName(dependency)) {
                        UnitRecord.wants(unit, wanted).write(into: &bytes)
                    }
                    if let event { UnitRecord.event(unit, event, at).write(into: &bytes) }
                }
            }
            if state.unitWaiters.isEmpty { return state.takeWaiters(of: [], andEvents: event != nil) }
            return state.takeWaiters(of: [name] + state.graph.dependents(name), andEvents: event != nil)
        }
        for waiter in woken { waiter.fulfill() }
    }

    /// - Parameter forget: takes the promise back when the calling task is cancelled.
    private func wait(for promise: Promise<Void>, forget: (inout State) -> Void) async throws {
        do {
            try await promise.valueUnlessCancelled()
        } catch {
            state.withLock { forget(&$0) }
            throw error
        }
    }
}
