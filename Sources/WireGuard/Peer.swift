import DequeModule
import IPAddresses
import Sodium

/// A handle of a peer; those of removed peers are never used again.
package struct PeerID: Hashable, Sendable, CustomStringConvertible {
    /// Small: the places of removed peers are used again.
    package let slot: Int
    let generation: UInt64

    package var description: String { "\(slot).\(generation)" }
}

/// What a node knows of a peer.
struct Peer: Sendable {
    /// Our initiation that waits for its answer.
    struct Initiation: Sendable {
        var index: UInt32
        var ephemeral: PrivateKey
        var state: Noise
    }

    /// Our tries to make a session.
    struct Attempt: Sendable {
        var beganAt: Duration
        /// When the next initiation is to be sent.
        var due: Duration
        var isDue = false
        var sent: Initiation?
    }

    static let noPreshared = SecretBytes(count: 32) { _ in }

    let id: PeerID
    let key: PublicKey
    /// DH of both static keys.
    let statics: SecretBytes
    let preshared: SecretBytes
    let keepAlive: Duration?
    var allowed: [IPPrefix] = []
    /// An address that was seen to be this peer's: spares the look-up for the next packet.
    var seen: IPAddress?

    // Places of sessions. Data is sent under the current one; the next one becomes it with the first message received.
    var previous: Int?
    var current: Int?
    var next: Int?
    var attempt: Attempt?
    /// Our answer to the peer's initiation, to be sent.
    var response: [UInt8]?
    var wantsKeepAlive = false
    var isReady = false
    var staged: Deque<[UInt8]> = []

    /// The earliest time of the next initiation.
    var initiationAllowed: Duration?
    var lastTimeSent: TAI64N?
    var lastTimeReceived: TAI64N?
    var lastInitiationReceived: Duration?
    /// Of the last handshake message to the peer, until a cookie came for it; with the index that the cookie names.
    var lastMAC1: (mac: MAC, index: UInt32)?
    var cookie: (value: MAC, receivedAt: Duration)?

    var lastSent: Duration
    /// The first data received since we sent anything.
    var dataReceived: Duration?
    /// The first data sent since we received anything.
    var dataSent: Duration?
    /// When the newest of the keys were made; nil when they are forgotten.
    var lastSession: Duration?
    /// When both ends had last agreed on a session.
    var lastHandshake: Duration?
    var receivedBytes: UInt64 = 0
    var sentBytes: UInt64 = 0
    var receivedMessages: UInt64 = 0
    var sentMessages: UInt64 = 0

    init(
        id: PeerID, key: PublicKey, statics: SecretBytes, preshared: SecretBytes, keepAlive: Duration?, now: Duration
    ) {
        (self.id, self.key, self.statics, self.preshared) = (id, key, statics, preshared)
        (self.keepAlive, lastSent) = (keepAlive, now)
    }
}
