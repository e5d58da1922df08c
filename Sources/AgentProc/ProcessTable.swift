import AgentCore
import DequeModule
import FoundationEssentials

/// Which processes there are, by id, age and client token: a value without I/O.
struct ProcessTable {
    /// Scopes a client token: the same token of another chat is another token.
    struct TokenKey: Hashable {
        var chat: UUID?
        var token: String
    }

    enum TokenEntry {
        /// The first start with the token is under way; others wait for the promise.
        case starting(StartRequest.Fingerprint, Promise<Void>)
        case started(StartRequest.Fingerprint, UUID)
    }

    enum TokenClaim {
        /// It is new: start, and say how that went.
        case claimed
        /// Wait for the one that is under way, then claim again.
        case waiting(Promise<Void>)
        case attached(UUID)
        case conflict
    }

    private(set) var processes: [UUID: ManagedProcess] = [:]
    private var tokens: [TokenKey: TokenEntry] = [:]
    private var tokenOf: [UUID: TokenKey] = [:]
    /// Exited processes with the time at which they are forgotten, oldest first.
    private var exited = Deque<(id: UUID, deadline: Duration)>()
    /// Running processes and starts under way.
    private(set) var occupied = 0
    var shuttingDown = false
    /// Forgotten processes whose descendants still hold the pipe. At most ``ProcLimits/outliving``, the
    /// oldest goes.
    private(set) var outliving: [ManagedProcess] = []

    /// Takes the place of one running process.
    mutating func reserve() throws(ProcError) {
        guard !shuttingDown else { throw ProcError(.shuttingDown) }
        guard occupied < ProcLimits.running else {
            throw ProcError(.tooManyProcesses, detail: "\(ProcLimits.running) processes run already.")
        }
        occupied += 1
    }

    mutating func unreserve() { occupied -= 1 }

    mutating func insert(_ process: ManagedProcess) { processes[process.description.id] = process }

    /// A start failed after its process was inserted.
    mutating func withdraw(_ id: UUID) {
        processes[id] = nil
        occupied -= 1
    }

    /// - Returns: processes that are forgotten to keep the number of exited ones in bounds.
    mutating func exited(_ id: UUID, forgetAt deadline: Duration) -> [ManagedProcess] {
        occupied -= 1
        exited.append((id, deadline))
        var forgotten: [ManagedProcess] = []
        while exited.count > ProcLimits.exited, let oldest = exited.popFirst() {
            if let process = forget(oldest.id) { forgotten.append(process) }
        }
        return forgotten
    }

    /// When the next exited process is due to be forgotten.
    var nextDeadline: Duration? { exited.first?.deadline }

    mutating func forgetDue(now: Duration) -> [ManagedProcess] {
        var forgotten: [ManagedProcess] = []
        while let first = exited.first, first.deadline <= now {
            exited.removeFirst()
            if let process = forget(first.id) { forgotten.append(process) }
        }
        return forgotten
    }

    private mutating func forget(_ id: UUID) -> ManagedProcess? {
        if let key = tokenOf.removeValue(forKey: id) { tokens[key] = nil }
        let process = processes.removeValue(forKey: id)
        if let process, process.isLingering {
            outliving.removeAll { !$0.isLingering }
            if outliving.count >= ProcLimits.outliving { outliving.removeFirst() }
            outliving.append(process)
        }
        return process
    }

    // MARK: Client tokens

    mutating func claim(_ key: TokenKey, for request: StartRequest.Fingerprint) -> TokenClaim {
        switch tokens[key] {
        case nil:
            tokens[key] = .starting(request, Promise())
            return .claimed
        case .starting(let first, let settled):
            return first == request ? .waiting(settled) : .conflict
        case .started(let first, let id):
            return first == request ? .attached(id) : .conflict
        }
    }

    /// The claimed start ended, with a process or without.
    /// - Returns: what others wait for.
    mutating func settle(_ key: TokenKey, _ id: UUID?) -> Promise<Void>? {
        guard case .starting(let request, let settled) = tokens[key] else { return nil }
        if let id, processes[id] != nil {
            tokens[key] = .started(request, id)
            tokenOf[id] = key
        } else {
            tokens[key] = nil
        }
        return settled
    }

    func process(forToken key: TokenKey) -> UUID? {
        if case .started(_, let id) = tokens[key] { id } else { nil }
    }
}
