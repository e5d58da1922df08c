import NIOCore

/// Calls of the application.
extension Connection {
    /// The driver takes the connection: our SYN is to be sent.
    mutating func accept() {
        guard state == .requested else { return }
        state = .synReceived
        houseKeepingAt = .never
    }

    var canWrite: Bool {
        switch state {
        case .synSent, .synReceived, .established, .closeWait: !send.finQueued
        default: false
        }
    }

    /// Queues bytes to be sent.
    /// - Returns: how many, from the front.
    mutating func write(_ bytes: UnsafeRawBufferPointer, now: Microseconds, context: inout StackContext) -> Int {
        guard canWrite else { return 0 }
        var count = min(bytes.count, max(0, send.limit - send.ring.count))
        if !context.budget.grow(&send.ring, for: send.ring.count + count, limit: context.limits.sendBytes) {
            _ = context.budget.grow(&send.ring, for: ByteRing.leastCapacity, limit: context.limits.sendBytes)
            count = min(count, send.ring.capacity - send.ring.count)
        }
        if count < bytes.count { send.wantsWritable = true }
        guard count > 0, send.ring.write(UnsafeRawBufferPointer(rebasing: bytes.prefix(count)), at: send.ring.count)
        else { return 0 }
        send.ring.extend(by: count)
        noteUse(now)
        return count
    }

    /// The writer ends: FIN follows what is queued.
    mutating func finish() {
        guard canWrite else { return }
        send.finQueued = true
        switch state {
        case .established: state = .finWait1
        case .closeWait: state = .lastAck
        default: break
        }
    }

    /// Hands bytes that lie together to the reader, which says how many it took.
    mutating func read(
        now: Microseconds, context: inout StackContext, _ body: (UnsafeRawBufferPointer) -> Int
    ) -> Int {
        guard !receive.ring.isEmpty else { return 0 }
        let count = min(max(0, receive.ring.withFront(body)), receive.ring.count)
        guard count > 0 else { return 0 }
        receive.ring.drop(count)
        receive.noteRead(count, now: now, limits: context.limits, budget: context.budget)
        noteUse(now)
        if receive.ring.isEmpty {
            readableSignalled = false
            signalEnd(&context)
        }
        if state == .detached {
            if endSignalled { ending = .closed }
        } else if !receive.hasEnded, receive.shouldUpdateWindow(mss: send.mss, budget: context.budget) {
            receive.mustAcknowledge = true
        }
        return count
    }
}

extension Connection {
    /// The connection has left the network, with bytes that the reader hasn't read.
    mutating func detach(_ context: inout StackContext) {
        state = .detached
        context.budget.release(&send.ring)
        send = SendSide(limit: 0)
        receive.mustAcknowledge = false
        receive.delayedUntil = .never
        houseKeepingAt = .never
    }
}
