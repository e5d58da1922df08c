import AgentCore
import FoundationEssentials
import Hummingbird
import Logging
import NIOCore

/// Who is at the other end of a connection and how it came in.
public struct ConnectionInfo: Sendable {
    public enum Transport: Sendable, Equatable {
        /// A unix socket; the kernel vouches for the peer.
        case unix(pid: Int32, uid: UInt32)
        /// A TCP connection to `localHost` of this machine.
        case tcp(localHost: String, localPort: Int)
    }

    public var transport: Transport
    /// What the access log prints as the peer.
    public var peer: String

    public init(transport: Transport, peer: String) {
        self.transport = transport
        self.peer = peer
    }
}

/// What is known about a request before a route sees it.
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
    /// Whether somebody still waits for the answer.
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
