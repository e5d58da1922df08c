import Synchronization

/// Limits the answers of one server that its clients don't read, so that clients that never read can't exhaust the memory
/// of the process.
///
/// A connection is in it from the answer that filled it (past
/// ``DRPCLimits/unsentBytesOfConnection``) until its client has read nearly all. What a connection holds
/// below that is bounded by the number of connections.
public final class UnsentBudget: Sendable {
    private struct Holder {
        var bytes: Int
        /// Asked to close; its bytes no longer count against the limit.
        var isClosing = false
        let close: @Sendable () -> Void
    }

    private struct State {
        /// By ticket; the lowest has been stuck longest.
        var holders: [UInt64: Holder] = [:]
        var nextTicket: UInt64 = 0
        var held = 0
        var closingBytes = 0
    }

    private let state = Mutex(State())
    private let limit: Int

    public init(limit: Int = DRPCLimits.unsentBytes) { self.limit = limit }

    /// Bytes held now.
    public var held: Int { state.withLock { $0.held } }

    /// Books bytes that a connection holds beside those that it booked before. When all together
    /// hold too much, those are closed that have been stuck longest: clients that read are never
    /// stuck for long.
    /// - Parameters:
    ///   - ticket: of what it booked before; nil for the first.
    ///   - close: closes the connection; called at most once for a ticket, from any thread.
    /// - Returns: the ticket for ``release(_:)``.
    func book(_ bytes: Int, ticket: UInt64?, close: @escaping @Sendable () -> Void) -> UInt64 {
        let (ticket, closed) = state.withLock { state -> (UInt64, [@Sendable () -> Void]) in
            let ticket = ticket ?? state.nextTicket
            state.nextTicket = max(state.nextTicket, ticket + 1)
            var holder = state.holders[ticket] ?? Holder(bytes: 0, close: close)
            holder.bytes += bytes
            state.held += bytes
            if holder.isClosing { state.closingBytes += bytes }
            state.holders[ticket] = holder

            guard state.held - state.closingBytes > limit else { return (ticket, []) }
            var closed: [@Sendable () -> Void] = []
            for (ticket, holder) in state.holders.sorted(by: { $0.key < $1.key }) where !holder.isClosing {
                state.holders[ticket]?.isClosing = true
                state.closingBytes += holder.bytes
                closed.append(holder.close)
                if state.held - state.closingBytes <= limit { break }
            }
            return (ticket, closed)
        }
        for close in closed { close() }
        return ticket
    }

    /// Gives back all that the ticket stands for.
    func release(_ ticket: UInt64) {
        state.withLock { state in
            guard let holder = state.holders.removeValue(forKey: ticket) else { return }
            state.held -= holder.bytes
            if holder.isClosing { state.closingBytes -= holder.bytes }
        }
    }
}
