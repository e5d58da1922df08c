/// The state of a registered unit.
public enum UnitState: String, Sendable, CaseIterable {
    case pending
    case started
    case completed
}

/// The state of one unit and of its dependencies.
public struct UnitReport: Sendable, Equatable {
    /// One edge.
    public struct Dependency: Sendable, Equatable {
        public var dependsOn: String
        /// Always `completed` today.
        public var requiredStatus: String
        /// Empty when the dependency is not registered.
        public var currentStatus: String
        public var isSatisfied: Bool

        public init(dependsOn: String, requiredStatus: String, currentStatus: String, isSatisfied: Bool) {
            self.dependsOn = dependsOn
            self.requiredStatus = requiredStatus
            self.currentStatus = currentStatus
            self.isSatisfied = isSatisfied
        }
    }

    public var unit: String
    /// Empty when the unit is not registered.
    public var status: String
    public var isReady: Bool
    /// Ordered by name.
    public var dependencies: [Dependency]

    public init(unit: String, status: String, isReady: Bool, dependencies: [Dependency] = []) {
        self.unit = unit
        self.status = status
        self.isReady = isReady
        self.dependencies = dependencies
    }
}

/// Units and what each wants to be completed before it starts. A value: no locks, no clock.
///
/// How many wanted units are missing is counted at each unit as edges and states change, so asking
/// for readiness costs nothing however large the graph is. Lists come ordered by name.
public struct UnitGraph: Sendable {
    private struct Node {
        let name: UnitName
        /// Nil for a unit that is wanted by another and not registered itself.
        var state: UnitState?
        var dependencies: [Int] = []
        var dependents: [Int] = []
        /// Bytes of the names in `dependencies` and, with each, of this unit's.
        var dependencyBytes = 0
        /// Of `dependencies`, those that are not completed.
        var missing = 0
        /// The graph's revision when something of this unit's report changed last.
        var revision: UInt64 = 0
        /// The state is of an earlier daemon, whose scripts may run again and set it again.
        var isRestored = false
    }

    private var nodes: [Node] = []
    private var index: [UnitName: Int] = [:]
    /// Registered units, ordered by name.
    private var registered: [Int] = []
    private var edges = 0
    /// Bytes of all names in `nodes`.
    private var nameBytes = 0
    private var revision: UInt64 = 0

    public init() {}

    /// Registered units.
    public var count: Int { registered.count }
    /// Edges between units.
    public var edgeCount: Int { edges }
    /// Units and dependencies by name. They are numbered from 0 in the order in which they came.
    var nodeCount: Int { nodes.count }

    /// The name's number.
    func number(_ name: UnitName) -> Int? { index[name] }
    /// The number's name.
    func name(_ number: Int) -> UnitName? { nodes.indices.contains(number) ? nodes[number].name : nil }

    /// Registers a unit as pending.
    /// - Returns: false when it was registered before; that is fine.
    @discardableResult
    public mutating func register(_ name: UnitName) throws(UnitError) -> Bool {
        let id = try node(name)
        guard nodes[id].state == nil else { return false }
        nodes[id].state = .pending
        registered.insert(id, at: insertionPoint(name))
        touch(id)
        return true
    }

    /// Adds the edge "unit wants dependency to be completed". The unit must be registered; the dependency need not be.
    /// Adding an edge twice has no effect.
    public mutating func want(_ unit: UnitName, _ dependency: UnitName) throws(UnitError) {
        if let from = index[unit], let to = index[dependency], !nodes[from].dependencies.contains(to),
            reaches(from: to, to: from)
        {
            throw .cycle
        }
        try restore(unit, wants: dependency)
    }

    /// As ``want(_:_:)``, but a cycle is found only by ``hasCycle``, for all edges at once.
    mutating func restore(_ unit: UnitName, wants dependency: UnitName) throws(UnitError) {
        guard let from = index[unit], nodes[from].state != nil else { throw .notFound }
        if dependency == unit { throw .cycle }
        if let to = index[dependency], nodes[from].dependencies.contains(to) { return }
        guard nodes[from].dependencies.count < AgentSocketLimits.dependenciesPerUnit else {
            throw UnitError(.limit, "a unit can have \(AgentSocketLimits.dependenciesPerUnit) dependencies")
        }
        guard edges < AgentSocketLimits.edges else {
            throw UnitError(.limit, "there can be \(AgentSocketLimits.edges) dependencies")
        }
        let bytes = nodes[from].dependencyBytes + unit.text.utf8.count + dependency.text.utf8.count
        guard bytes <= AgentSocketLimits.dependencyNamesBytes else {
            throw UnitError(
                .limit,
                "names in a unit's dependencies can have \(AgentSocketLimits.dependencyNamesBytes) bytes together")
        }
        let to = try node(dependency)
        nodes[from].dependencyBytes = bytes
        nodes[from].dependencies.append(to)
        nodes[to].dependents.append(from)
        edges += 1
        if nodes[to].state != .completed { nodes[from].missing += 1 }
        revision += 1
        nodes[from].revision = revision
    }

    /// Moves a registered unit to `started`, which takes that it is ready.
    public mutating func start(_ unit: UnitName) throws(UnitError) {
        guard let id = index[unit], nodes[id].state != nil else { throw .notFound }
        guard nodes[id].missing == 0 else { throw .notReady }
        try move(id, to: .started)
    }

    /// Moves a registered unit to `completed`.
    public mutating func complete(_ unit: UnitName) throws(UnitError) {
        guard let id = index[unit], nodes[id].state != nil else { throw .notFound }
        try move(id, to: .completed)
    }

    /// Adds a name that is not yet there, under the next number.
    mutating func restore(_ name: UnitName) throws(UnitError) {
        guard index[name] == nil else { throw .sameStatus }
        _ = try node(name)
    }

    /// Gives a unit the state that it had under an earlier daemon. It may be set once more.
    mutating func restore(_ unit: UnitName, _ state: UnitState) throws(UnitError) {
        try register(unit)
        guard let id = index[unit] else { throw .notFound }
        nodes[id].isRestored = true
        try move(id, to: state)
        nodes[id].isRestored = true
    }

    /// Whether a unit wants itself, directly or through others.
    var hasCycle: Bool {
        // Takes away what nothing wants, until nothing is left.
        var wanted = nodes.map(\.dependents.count)
        var free = wanted.indices.filter { wanted[$0] == 0 }
        var left = nodes.count
        while let id = free.popLast() {
            left -= 1
            for dependency in nodes[id].dependencies {
                wanted[dependency] -= 1
                if wanted[dependency] == 0 { free.append(dependency) }
            }
        }
        return left > 0
    }

    /// All names in the order of their numbers, with their states and the numbers of what they want.
    var contents: [(name: UnitName, state: UnitState?, dependencies: [Int])] {
        nodes.map { ($0.name, $0.state, $0.dependencies) }
    }

    /// Whether all that the unit wants is completed. True for an unregistered unit.
    public func isReady(_ unit: UnitName) -> Bool {
        index[unit].map { nodes[$0].missing == 0 } ?? true
    }

    /// The unit's state, or nil when it is not registered.
    public func state(_ unit: UnitName) -> UnitState? { index[unit].flatMap { nodes[$0].state } }

    /// Grows whenever the unit's report changes; 0 for an unknown name.
    public func revision(_ unit: UnitName) -> UInt64 { index[unit].map { nodes[$0].revision } ?? 0 }

    /// All that is known of the unit.
    public func report(_ unit: UnitName) -> UnitReport {
        guard let id = index[unit] else { return UnitReport(unit: unit.text, status: "", isReady: true) }
        let node = nodes[id]
        let dependencies = node.dependencies.sorted { nodes[$0].name < nodes[$1].name }.map { dependency in
            let state = nodes[dependency].state
            return UnitReport.Dependency(
                dependsOn: nodes[dependency].name.text, requiredStatus: UnitState.completed.rawValue,
                currentStatus: state?.rawValue ?? "", isSatisfied: state == .completed)
        }
        return UnitReport(
            unit: node.name.text, status: node.state?.rawValue ?? "", isReady: node.missing == 0,
            dependencies: dependencies)
    }

    /// The registered units without their dependencies, ordered by name.
    public func list() -> [UnitReport] {
        registered.map { id in
            UnitReport(
                unit: nodes[id].name.text, status: nodes[id].state?.rawValue ?? "", isReady: nodes[id].missing == 0)
        }
    }

    /// All that is known of the registered units, ordered by name.
    public func reports() -> [UnitReport] { registered.map { report(nodes[$0].name) } }

    /// Names of the units that want this one.
    public func dependents(_ unit: UnitName) -> [UnitName] {
        index[unit].map { nodes[$0].dependents.map { nodes[$0].name } } ?? []
    }

    private mutating func move(_ id: Int, to state: UnitState) throws(UnitError) {
        guard let old = nodes[id].state, old != state || nodes[id].isRestored else { throw .sameStatus }
        nodes[id].isRestored = false
        nodes[id].state = state
        let change = (old == .completed ? 1 : 0) - (state == .completed ? 1 : 0)
        if change != 0 {
            for dependent in nodes[id].dependents { nodes[dependent].missing += change }
        }
        touch(id)
    }

    /// Notes that the unit's state changed, which its dependents' reports show, too.
    private mutating func touch(_ id: Int) {
        revision += 1
        nodes[id].revision = revision
        for dependent in nodes[id].dependents { nodes[dependent].revision = revision }
    }

    private mutating func node(_ name: UnitName) throws(UnitError) -> Int {
        if let known = index[name] { return known }
        guard !name.text.isEmpty else { throw .nameRequired }
        guard name.text.utf8.count <= AgentSocketLimits.nameBytes else {
            throw UnitError(.limit, "a unit name can have \(AgentSocketLimits.nameBytes) bytes")
        }
        guard nodes.count < AgentSocketLimits.units else {
            throw UnitError(.limit, "there can be \(AgentSocketLimits.units) units")
        }
        guard nameBytes + name.text.utf8.count <= AgentSocketLimits.allNamesBytes else {
            throw UnitError(.limit, "names of all units can have \(AgentSocketLimits.allNamesBytes) bytes together")
        }
        nameBytes += name.text.utf8.count
        nodes.append(Node(name: name))
        index[name] = nodes.count - 1
        return nodes.count - 1
    }

    /// Where the name belongs in `registered`.
    private func insertionPoint(_ name: UnitName) -> Int {
        var (low, high) = (0, registered.count)
        while low < high {
            let middle = (low + high) / 2
            if nodes[registered[middle]].name < name { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// Whether `goal` is among what `start` wants, directly or through others.
    private func reaches(from start: Int, to goal: Int) -> Bool {
        // A unit that no other unit wants can't be reached, which is so for nearly every new edge.
        guard !nodes[goal].dependents.isEmpty else { return false }
        var seen = [Bool](repeating: false, count: nodes.count)
        var stack = [start]
        while let id = stack.popLast() {
            if id == goal { return true }
            if seen[id] { continue }
            seen[id] = true
            stack.append(contentsOf: nodes[id].dependencies)
        }
        return false
    }
}
