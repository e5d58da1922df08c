import Synchronization

/// What a session holds, readable from any thread at any time.
public final class YamuxCounters: Sendable {
    private let streams = Atomic<Int>(0)
    private let lingering = Atomic<Int>(0)
    private let buffered = Atomic<Int>(0)
    private let queued = Atomic<Int>(0)
    private let opened = Atomic<Int>(0)
    private let resets = Atomic<Int>(0)

    /// Streams that our application uses, or has not accepted yet.
    public var openStreams: Int { streams.load(ordering: .relaxed) }
    /// Streams that are closed on our side and wait for the other side's FIN.
    public var lingeringStreams: Int { lingering.load(ordering: .relaxed) }
    /// Received bytes that wait for their readers: at most a window for each stream.
    public var bufferedBytes: Int { buffered.load(ordering: .relaxed) }
    /// Written bytes that wait for window or transport.
    public var queuedBytes: Int { queued.load(ordering: .relaxed) }
    /// Streams opened since the session began, by either side.
    public var openedStreams: Int { opened.load(ordering: .relaxed) }
    /// Streams that the other side reset since the session began.
    public var resetStreams: Int { resets.load(ordering: .relaxed) }

    func note(_ session: YamuxSession) {
        streams.store(session.openStreams, ordering: .relaxed)
        lingering.store(session.lingeringStreams, ordering: .relaxed)
    }
    func addBuffered(_ count: Int) { buffered.add(count, ordering: .relaxed) }
    func addQueued(_ count: Int) { queued.add(count, ordering: .relaxed) }
    func noteOpened() { opened.add(1, ordering: .relaxed) }
    func noteReset() { resets.add(1, ordering: .relaxed) }
}
