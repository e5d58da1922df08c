import Sodium

/// The keys of one handshake and what was done with them.
struct Session: Sendable {
    private static let noKey = SecretBytes(count: 0) { _ in }
    /// A free place.
    static let vacant = Session(
        peer: -1, index: 0, remoteIndex: 0, sendKey: noKey, receiveKey: noKey, madeAt: .zero, isInitiator: false)

    let peer: Int
    /// By which the peer names the session to us, and we to the peer.
    let index: UInt32
    let remoteIndex: UInt32
    let sendKey: SecretBytes
    let receiveKey: SecretBytes
    let madeAt: Duration
    let isInitiator: Bool
    /// The counter of the next message.
    var counter: UInt64 = 0
    var window = ReplayWindow()

    init(
        peer: Int, index: UInt32, remoteIndex: UInt32, sendKey: SecretBytes, receiveKey: SecretBytes,
        madeAt: Duration, isInitiator: Bool
    ) {
        (self.peer, self.index, self.remoteIndex) = (peer, index, remoteIndex)
        (self.sendKey, self.receiveKey) = (sendKey, receiveKey)
        (self.madeAt, self.isInitiator) = (madeAt, isInitiator)
    }

    @inline(__always)
    func isUsable(now: Duration) -> Bool {
        now - madeAt < WireGuardTimes.sessionLife && counter < WireGuardTimes.mostMessages
    }
}
