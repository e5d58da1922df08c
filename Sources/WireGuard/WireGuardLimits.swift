/// Every bound of a node, and what happens at it. Each has a counter: the ``DropReason`` that is named.
package struct WireGuardLimits: Sendable {
    /// Peers; a further one is refused (``DropReason/tooManyPeers``).
    package var peers = 1_024
    /// Prefixes of a peer; one with more is refused (``DropReason/tooManyPrefixes``).
    package var prefixesPerPeer = 8
    /// Packets that wait for a session with their peer; a further one is dropped (``DropReason/stagingFull``).
    package var stagedPerPeer = 128
    /// Packets that wait for a session with any peer, likewise: 10 MiB.
    package var staged = 8_192
    /// Bytes of the largest inner packet that is sent; a larger one is dropped (``DropReason/tooLarge``). Padding ends
    /// there, too.
    package var mtu = 1_280
    /// Handshake messages that may wait, as if they were worked off at ``handshakesPerSecond``. Over half of it a sender
    /// has to prove its source with a cookie; those over all of it are dropped (``DropReason/tooManyHandshakes``). Half is
    /// what comes when all peers come back at once.
    package var handshakeBacklog = 2_048
    /// Handshake messages that are worked off in a second: an eighth of a core.
    package var handshakesPerSecond = 2_000
    /// Sources whose rate is watched under load; messages of a further one are dropped (``DropReason/tooManySources``).
    package var sources = 1_024
    /// Handshake messages of a source in a second under load; those over it are dropped (``DropReason/sourceTooFast``).
    package var handshakesPerSourceAndSecond = 20
    /// Handshake messages of a source at once under load.
    package var handshakeBurstPerSource = 5
    /// Cookie replies that wait for ``WireGuardNode/nextTransmission(into:now:)``; a further one is not made
    /// (``DropReason/tooManyCookieReplies``).
    package var cookieReplies = 64
    /// Events that wait for ``WireGuardNode/nextEvent()``; the oldest is lost (``DropReason/tooManyEvents``).
    package var events = 4_096

    package init() {}
}

/// The protocol's times and counts (docs/contracts/wireguard.md#times; whitepaper, 6).
package enum WireGuardTimes {
    /// From this counter on a session is dead: 2^64 - 2^13 - 1.
    package static let mostMessages = UInt64.max - (1 << 13)
    /// A session is renewed when so many messages were sent.
    package static let renewAfterMessages: UInt64 = 1 << 60
    /// A session is dead at this age.
    package static let sessionLife = Duration.seconds(180)
    /// Its initiator renews a session of this age when it sends.
    package static let renewWhenSending = Duration.seconds(120)
    /// Its initiator renews a session of this age when it receives.
    package static let renewWhenReceiving = Duration.seconds(165)
    /// Between two initiations to a peer, and up to ``jitter`` more.
    package static let retry = Duration.seconds(5)
    package static let jitter = Duration.milliseconds(333)
    /// Without an answer for so long, a handshake is given up.
    package static let giveUp = Duration.seconds(90)
    /// Between two initiations of a peer.
    package static let initiationInterval = Duration.milliseconds(20)
    /// Data received and nothing sent for so long: an empty packet.
    package static let keepAlive = Duration.seconds(10)
    /// Data sent and nothing received for so long: a new handshake.
    package static let noAnswer = Duration.seconds(15)
    /// Without a new session for so long, all keys are forgotten.
    package static let forget = Duration.seconds(540)
    /// The life of a cookie and of the secret that cookies are made with.
    package static let cookieLife = Duration.seconds(120)
    /// How long cookies are demanded after the last sign of load.
    package static let loadLasts = Duration.seconds(1)
}
