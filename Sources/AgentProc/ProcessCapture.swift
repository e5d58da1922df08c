import AgentCore
import CPlatform
import Glibc

// Reads a process's output, on the reactor's thread.
extension ManagedProcess {
    func pipeReady(_ scratch: UnsafeMutableRawBufferPointer) {
        // At most a megabyte a turn, so that one loud process does not starve the others.
        for _ in 0..<4 {
            switch readOnce(scratch) {
            case .again: return
            case .more: continue
            case .ended: return pipeEnded()
            }
        }
    }

    private enum ReadResult { case more, again, ended }

    private func readOnce(_ scratch: UnsafeMutableRawBufferPointer) -> ReadResult {
        let n = wa_read(pipe, scratch.baseAddress, scratch.count)
        if n == -Int(EAGAIN) { return .again }
        guard n > 0 else { return .ended }
        let bytes = UnsafeRawBufferPointer(rebasing: scratch[..<n])
        // First, so that a follower finds in the spool what memory no longer has.
        let goesOn = spoolBytes(bytes)
        let followers = state.withLock { state in
            state.buffer.append(bytes)
            state.recent?.append(bytes)
            return state.takeIdleFollowers()
        }
        context.captured.increment(by: n)
        for follower in followers { follower.wake() }
        growPipe(afterReading: n)
        // A read that leaves room has taken all: another would only say so.
        return goesOn && n == scratch.count ? .more : .again
    }

    /// - Returns: false when the pipe is to be left alone for now.
    private func spoolBytes(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard let spool, !capture.withLock({ $0.spoolOff }) else { return true }
        switch spool.append(bytes) {
        case .accepted: return true
        case .off:
            capture.withLock { $0.spoolOff = true }
            return true
        case .hold:
            let deadline: ContinuousClock.Instant? = capture.withLock {
                guard $0.heldSince == nil, $0.heldFor < ProcLimits.spoolPatience else { return nil }
                $0.heldSince = .now
                return .now + (ProcLimits.spoolPatience - $0.heldFor)
            }
            guard let deadline else { return true }
            context.reactor.pause(pipe)
            context.reactor.setDeadline(deadline, for: pipeToken)
            // The disk may have caught up, and said so, before the line above.
            if !spool.isHolding { wakeCapture() }
            return false
        }
    }

    func wakeCapture() { context.reactor.setDeadline(.now, for: pipeToken) }

    /// Held up no longer: the disk caught up, or its time is over.
    func captureDeadline() {
        let (wasHeld, exhausted) = capture.withLock { capture in
            guard let since = capture.heldSince else { return (false, false) }
            capture.heldSince = nil
            capture.heldFor += since.duration(to: .now)
            return (true, capture.heldFor >= ProcLimits.spoolPatience)
        }
        guard wasHeld else { return }
        if exhausted {
            capture.withLock { $0.spoolOff = true }
            spool?.giveUp("the disk was too slow")
        }
        context.reactor.resume(pipe, events: UInt32(WA_EPOLLIN), token: pipeToken)
    }

    /// A larger pipe saves context switches for a process that writes a lot; the memory is the
    /// user's and limited, so only such a process gets one.
    private func growPipe(afterReading n: Int) {
        let grow = capture.withLock { capture in
            if n >= 60 << 10 { capture.fullReads += 1 }
            guard !capture.grown, capture.fullReads >= 16 else { return false }
            capture.grown = true
            return true
        }
        if grow { _ = wa_set_pipe_size(pipe, 1 << 20) }
    }

    func pipeEnded() {
        let wasOpen = state.withLock { state in
            defer { state.pipeOpen = false }
            return state.pipeOpen
        }
        guard wasOpen else { return }
        context.reactor.remove(pipe, token: pipeToken)
        close(pipe)
        finishSpoolIfDone()
    }

    /// Whatever the leader wrote is in the pipe by now, and belongs to the answer that says that it has exited. Not
    /// more than that: descendants may write for ever.
    func readOwed(_ scratch: UnsafeMutableRawBufferPointer) {
        let (isOpen, isTerminal) = state.withLock { ($0.pipeOpen, $0.terminal != nil) }
        // The kernel does not say how much is on its way through a terminal, but delivers it before a read ends.
        var owed = !isOpen ? 0 : isTerminal ? ProcLimits.terminalBytes : Int(wa_readable_bytes(pipe))
        while owed > 0 {
            let before = totalBytes
            let result = readOnce(scratch)
            owed -= totalBytes - before
            switch result {
            case .more: continue
            case .again: if totalBytes == before { return }
            case .ended: return pipeEnded()
            }
        }
    }
}

// The reactor keeps its sources, and they the process, for as long as something can happen to it.

final class PipeSource: ReactorSource {
    private let process: ManagedProcess
    init(_ process: ManagedProcess) { self.process = process }
    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer) { process.pipeReady(scratch) }
    func deadlineReached() { process.captureDeadline() }
}
