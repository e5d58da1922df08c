import AgentCore
import Glibc
import NIOCore

/// Reads the output of a process from any offset on, as it comes: from memory what is recent, from the spool what is
/// older. It keeps nothing of its own, so that a slow reader costs no memory and never slows the process.
final class OutputFollower: Sendable {
    enum Piece {
        case bytes(ByteBuffer)
        /// So many bytes are kept nowhere any more.
        case gone(Int)
        /// The process has ended, and all that it had written by then was read.
        case ended(ManagedProcess.Snapshot)
        /// Nothing was written for the time of a heartbeat.
        case quiet
        /// ``stop()`` or ``stopWhenRead()`` was called, or the daemon is shutting down.
        case stopped
    }

    private struct Signals {
        var isNews = false
        var isQuiet = false
        /// What is there is still read.
        var isOver = false
        var isStopped = false
    }

    let process: ManagedProcess
    private let pool: BlockingPool
    private let signals = Watched(Signals())

    /// The process keeps more of its output in memory until ``stop()``, which must be called.
    /// - Parameter pool: where the spool is read.
    init(_ process: ManagedProcess, pool: BlockingPool) {
        self.process = process
        self.pool = pool
        process.add(self)
    }

    /// Ends the waiting of ``next(from:)``, now and later.
    func stop() {
        let isFirst = signals.update { signals in
            defer { signals.isStopped = true }
            return !signals.isStopped
        }
        if isFirst { process.remove(self) }
    }

    /// Ends the waiting of ``next(from:)`` once it has nothing to read.
    func stopWhenRead() { signals.update { $0.isOver = true } }

    /// There is more to read, or the process has ended.
    func wake() { signals.update { $0.isNews = true } }

    /// Has a wait for output end with ``Piece/quiet``.
    func beat() { signals.update { $0.isQuiet = true } }

    /// What comes next; waits for it. For one task.
    func next(from offset: Int) async -> Piece {
        while true {
            if signals.read({ $0.isStopped }) { return .stopped }
            switch process.look(at: offset, for: self) {
            case .bytes(let bytes): return .bytes(bytes)
            case .ended(let snapshot): return .ended(snapshot)
            case .stopped: return .stopped
            case .nothing: break
            case .older(let known):
                if let piece = await older(than: known, from: offset) { return piece }
            }
            let result = await signals.takeIgnoringCancellation { signals -> Piece?? in
                if signals.isStopped || signals.isOver { return .some(.stopped) }
                if signals.isNews {
                    signals.isNews = false
                    return .some(nil)
                }
                guard signals.isQuiet else { return nil }
                signals.isQuiet = false
                return .some(.quiet)
            }
            if let result { return result }
        }
    }

    /// What the spool has.
    /// - Returns: nil when it will be there soon, or something else is to be looked for.
    private func older(than known: Int, from offset: Int) async -> Piece? {
        guard let spool = process.spool else { return .gone(known - offset) }
        switch spool.reach(offset, for: self) {
        case .soon: return nil
        case .gone: return .gone(known - offset)
        case .upTo(let end):
            let count = min(end - offset, ProcLimits.followBytes)
            let bytes = try? await pool.run { try spool.read(offset: offset, count: count) }
            // Its file went meanwhile, or the disk fails.
            guard let bytes, bytes.readableBytes > 0 else { return .gone(known - offset) }
            return .bytes(bytes)
        }
    }
}
