import Synchronization

/// Limits the unfinished packets of all connections of one server, so that they can't exhaust the memory of the process.
public final class UnfinishedBudget: Sendable {
    private let total = Atomic<Int>(0)
    private let limit: Int

    public init(limit: Int = DRPCLimits.unfinishedBytes) { self.limit = limit }

    /// Bytes held now.
    public var held: Int { total.load(ordering: .relaxed) }

    /// Books that a connection holds `new` bytes instead of `old`.
    /// - Returns: false when it must be closed: it has more than its grant, and all together have too much.
    func rebook(from old: Int, to new: Int) -> Bool {
        guard old != new else { return true }
        let (_, sum) = total.wrappingAdd(new - old, ordering: .relaxed)
        return new <= old || new <= DRPCLimits.unfinishedBytesGranted || sum <= limit
    }
}
