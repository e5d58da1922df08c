import NIOCore

/// Every bound of the HTTP server, in one place.
public struct HTTPLimits: Sendable {
    /// Bytes of a request body unless the route says more.
    public static let defaultBodyBytes = 1 << 20
    /// Bytes of a request's path and query; longer is 414.
    public static let uriBytes = 8 << 10
    /// Bytes of all header fields of a request; more is 431.
    public static let headerBytes = 64 << 10
    /// Header fields of a request; more is 431.
    public static let headerFields = 200
    /// Bytes of the chunk extensions of a request body, all together; more is 413.
    public static let chunkExtensionBytes = 16 << 10
    /// Nesting of a JSON body; deeper is 400.
    public static let jsonDepth = 64
    /// Values of a JSON body: its commas and opening brackets are counted; more is 413.
    public static let jsonValues = 1 << 18
    /// Bytes of JSON up to which it is decoded on the event loop, which takes a few milliseconds at worst.
    public static let inlineJSONBytes = 16 << 10
    /// Bytes of one inbound WebSocket message; more closes with 1009.
    public static let webSocketMessageBytes = 4 << 20
    /// Inbound WebSocket messages kept for a route that is busy; then reading pauses.
    public static let webSocketInboundMessages = 16
    /// Bytes that all connections together keep for clients that read slowly; beyond, those whose clients have gone
    /// without reading for the longest time are closed.
    public static let queuedOutputBytes = 64 << 20
    /// Open connections of all unix sockets together, of all TCP listeners together and of all tunnels together. For one
    /// more, the longest idle one is closed; while all have a request under way, new ones wait to be accepted. They are counted
    /// separately, so that TCP peers without a token cannot keep the machine's own user out.
    public static let connections = 2_048
    /// Bytes behind a request that are read while it is answered, and what one read brings beyond; the rest waits in
    /// the socket.
    public static let pipelinedBytes = 16 << 10
    /// Bytes of a body that have arrived and that a route which takes it as it comes has yet to take; then reading
    /// pauses.
    public static let streamedBytes = 1 << 20
    /// Bytes of the daemon's log, or of its current file, that `/debug/logs` returns: the last ones.
    public static let logTailBytes = 10 << 20
    /// Bytes of log files that `/debug/logs?after=` returns; of the oldest, the beginning is left out.
    public static let logFilesBytes = 100 << 20
    /// Bytes that are read and discarded after a refused request.
    public static let lingerBytes = 8 << 20

    /// As ``connections``, for sockets, whose descriptors may be scarce.
    public var maximumConnections = Self.connections
    /// From the first byte of a request to the end of its header.
    public var headerTimeout: TimeAmount = .seconds(10)
    /// From the end of the header to the end of the body; where the route takes the body as it comes, without a byte.
    public var bodyTimeout: TimeAmount = .seconds(30)
    /// Between two requests of a connection.
    public var idleTimeout: TimeAmount = .seconds(75)
    /// How long a refused upload is read and discarded, so that the client gets the answer instead of a reset.
    public var lingerTimeout: TimeAmount = .seconds(2)
    /// How long a connection that is accepted at the limit is kept without a request.
    public var firstRequestGrace: TimeAmount = .seconds(1)
    /// How long requests may go on at shutdown.
    public var shutdownGrace: TimeAmount = .seconds(5)
    /// How long a request may make no progress at shutdown, because its client neither sends nor reads.
    public var shutdownStallTimeout: TimeAmount = .seconds(1)
    /// How long a response may make no progress because its reader does not read.
    public var writeTimeout: TimeAmount = .seconds(60)
    public var webSocketPingInterval: TimeAmount = .seconds(15)
    public var webSocketPongTimeout: TimeAmount = .seconds(15)

    public init() {}
}
