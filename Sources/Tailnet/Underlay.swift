import IPAddresses
import NIOCore
import NetStack
import WireGuard

/// What carries a tunnel's datagrams: sockets, relays. Used on the tunnel's event loop only.
package protocol Underlay: AnyObject {
    /// Whether more datagrams are taken now. When it becomes true again, the underlay calls ``Tunnel/work()``.
    var hasRoom: Bool { get }

    /// Sends a datagram, or drops it: IP may. What was sent may wait until ``flush()``.
    func send(_ datagram: UnsafeRawBufferPointer, to destination: Transmission.Destination)

    /// Sends what waits.
    func flush()

    /// A datagram from this source was this peer's, who need not be where it was before.
    /// - Returns: whether what is in it is taken.
    func heard(_ sender: Authentic, from source: Source) -> Bool

    /// What happened to a peer.
    func handle(_ event: WireGuardNode.Event)
}

/// What a tunnel leads to. Used on the tunnel's event loop only.
package protocol TunnelServices: AnyObject {
    /// A peer wants a connection: call ``Tunnel/accept(_:local:remote:initializer:)`` or ``Tunnel/refuse(_:)``.
    func connectionRequested(_ id: ConnectionID, local: Endpoint, remote: Endpoint)

    /// A request is over before it was answered.
    func requestEnded(_ id: ConnectionID)

    /// A peer sent a UDP datagram.
    func datagram(_ payload: ByteBuffer, local: Endpoint, remote: Endpoint)

    /// A UDP flow was idle for so long that it is over.
    func flowEnded(local: Endpoint, remote: Endpoint)
}
