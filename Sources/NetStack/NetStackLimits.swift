/// Every bound of the stack, and what happens at it. Each is counted when it is hit: see ``NetStackCounters``.
package struct NetStackLimits: Sendable {
    /// TCP connections, half-open ones among them, those in TIME_WAIT not. A further SYN is dropped.
    package var connections = 4_096
    /// The same for one address of a peer.
    package var connectionsPerPeer = 1_024
    /// Connections of peers whose handshake isn't over. A further SYN is dropped.
    package var halfOpen = 4_096
    /// The same for one address of a peer, which is authenticated: a browser or a load test opens 500 at the same time, and
    /// those beyond the limit wait a second for their next SYN.
    package var halfOpenPerPeer = 1_024
    /// UDP flows. A datagram that would begin a further one is dropped.
    package var udpFlows = 1_024
    /// The same for one address of a peer.
    package var udpFlowsPerPeer = 128
    /// Bytes of all TCP buffers. At it windows close and writes are taken in part or not at all; received data that
    /// has no place is dropped.
    package var bufferBytes = 256 << 20
    /// The receive window of a connection that just began.
    package var firstReceiveBytes = 128 << 10
    /// What it grows to while the reader keeps up.
    package var receiveBytes = 3 << 20
    /// What a connection that just began takes from its writer.
    package var firstSendBytes = 128 << 10
    /// What it takes when its congestion window has grown.
    package var sendBytes = 4 << 20
    /// Bytes held out of order, for each begun MiB of receive window, once three quarters of ``bufferBytes`` are in use.
    /// Further ones are dropped. Before, a window's worth is held: a packet that is lost or late would otherwise take all
    /// behind it along, which on a long path is most of what is under way.
    package var outOfOrderBytesPerMiB = 64 << 10
    /// Ranges held out of order on one connection. A segment that would begin a further one is dropped.
    package var outOfOrderRanges = 256
    /// Segments of one connection that aren't acknowledged. The next waits.
    package var segmentsInFlight = 4_096
    /// Pairs of ends in TIME_WAIT. The oldest makes room.
    package var timeWaits = 16_384
    /// Segments that are acknowledged at once, each of them, at the start, after a pause and after a hole: the peer's window is
    /// small then, it grows by acknowledgments, and one that is delayed may be all that it waits for.
    package var quickAcknowledgments = 16
    /// Answers that wait to be sent: RST, TSMP, echo. A further one isn't made.
    package var answers = 1_024
    /// Bytes of datagrams that wait for the driver, and as many that wait to be sent. A further one is dropped.
    package var datagramBytes = 4 << 20
    /// Packets of which some fragments have come, each of at most 64 KiB. The oldest makes room.
    package var fragmentedPackets = 64
    /// The same for one address of a peer.
    package var fragmentedPacketsPerPeer = 16
    /// Pieces of such a packet that are apart from one another. One more ends it.
    package var fragmentRanges = 128
    /// Datagrams to closed ports that are answered in a second (RFC 4443, 2.4).
    package var unreachablesPerSecond = 100
    /// Distinct flows that are told apart in an interval of statistics. Further ones aren't counted as flows.
    package var countedFlows = 65_536
    /// Answers to segments that may be forged, for each connection and second (RFC 5961, 7).
    package var challenges = 10

    /// How long a request waits for the driver's answer.
    package var requestTimeout = Duration.seconds(60)
    /// SYNs sent again before the connection fails.
    package var synRetransmissions = 5
    /// Times that a segment is sent again without an answer before the connection fails: about three minutes with the
    /// shortest timeout (RFC 9293, 3.8.3 asks for 100 s).
    package var retransmissions = 10
    /// Between two probes of a silent peer (docs/contracts/tailnet.md#tcp).
    package var keepAliveInterval = Duration.seconds(75)
    /// Probes without an answer.
    package var keepAliveProbes = 9
    package var timeWait = Duration.seconds(60)
    /// How long the fragments of a packet wait for the others (RFC 8200, 4.5).
    package var fragmentLife = Duration.seconds(60)
    /// How long a UDP flow lives without a datagram.
    package var udpIdle = Duration.seconds(120)
    /// The same for port 53.
    package var dnsIdle = Duration.seconds(30)

    package init() {}
}
