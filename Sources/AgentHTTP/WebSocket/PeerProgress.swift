/// Whether a peer that has not answered a ping shows another sign of life, without I/O.
///
/// A ping waits for the output before it, so until it has arrived what counts is whether the peer accepts output. And while
/// we do not read, because the peer does not or the route is busy, a pong may be waiting.
struct PeerProgress {
    private var hasPaused = false
    /// Bytes that the peer had accepted when the ping was sent, and will have when it has the ping.
    private var accepted = 0
    private var target = 0

    /// A ping was sent.
    /// - Parameters:
    ///   - isReading: whether we read now.
    ///   - written: bytes that were ever written for the peer, the ping among them.
    ///   - unsent: those of them that it has not got.
    mutating func pinged(isReading: Bool, written: Int, unsent: Int) {
        (hasPaused, accepted, target) = (!isReading, written - unsent, written)
    }

    /// We do not read for now.
    mutating func paused() { hasPaused = true }

    /// Whether there was no sign of life since the ping, which was not answered.
    func isSilent(written: Int, unsent: Int) -> Bool {
        let now = written - unsent
        return now < target ? now <= accepted : !hasPaused
    }
}
