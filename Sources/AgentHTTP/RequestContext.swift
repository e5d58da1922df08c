import AgentCore
import Hummingbird
import Logging

/// The peer of a connection and how it connected.
public struct ConnectionInfo: Sendable {
    public enum Transport: Sendable, Equatable {
        /// A unix socket; the peer's ids are the kernel's.
        case unix(pid: Int32, uid: UInt32)
        /// A TCP connection to `localHost` of this machine.
        case tcp(localHost: String, localPort: Int)
        /// A tunnel, whose peers are as trusted as the workspace's owner (docs/contracts/tailnet.md#trust).
        case tunnel
    }

    public var transport: Transport
    /// What the access log prints as the peer.
    public var peer: String

    public init(transport: Transport, peer: String) {
        self.transport = transport
        self.peer = peer
    }
}

/// What is known about a request before its route runs.
public struct AgentRequestSource: RequestContextSource {
    public var logger: Logger
    public var connection: ConnectionInfo
    public var chat: ChatIdentity?
    let caller: CallerPresence
    let upgrade: UpgradeSlot
}

/// The context that every route gets.
public struct AgentRequestContext: RequestContext {
    public typealias Source = AgentRequestSource

    public var coreContext: CoreRequestContextStorage
    public let connection: ConnectionInfo
    /// The chat of the request, when it names a valid one.
    public let chat: ChatIdentity?
    /// Whether the client is still connected.
    public let caller: CallerPresence
    let upgrade: UpgradeSlot

    public init(source: AgentRequestSource) {
        coreContext = CoreRequestContextStorage(source: source)
        connection = source.connection
        chat = source.chat
        caller = source.caller
        upgrade = source.upgrade
    }
}
