/// Every bound of the agent socket, and what happens at it. The RPC's own are in `DRPCLimits`.
public enum AgentSocketLimits {
    /// Connections served at once. A further one replaces the longest idle one; while all have a call running it is
    /// refused.
    public static let connections = 1_024
    /// Connections that may wait to be accepted. A unix socket refuses more at once (EAGAIN), which
    /// existing clients report as a failure, so all that can be served may also wait.
    public static let backlog: Int32 = 1_024
    /// Units and dependencies by name. Registering more fails.
    public static let units = 10_000
    /// Edges of the graph. Wanting more fails.
    public static let edges = 100_000
    /// Dependencies of one unit. Wanting more fails.
    public static let dependenciesPerUnit = 4_096
    /// UTF-8 bytes of a unit's name. A longer one is refused.
    public static let nameBytes = 4_096
    /// UTF-8 bytes of the names of all units and dependencies, so that the list of them fits into
    /// one packet: 10,000 units take at most 19 bytes each beside their names. Registering more
    /// fails.
    public static let allNamesBytes = 3_932_160
    /// UTF-8 bytes of the names in one unit's dependencies, which all carry the unit's name beside
    /// their own, so that its status fits into one packet: a dependency takes at most 33 bytes
    /// beside. Wanting more fails.
    public static let dependencyNamesBytes = 3_932_160
    /// Events kept for `SyncEvents`. At the limit the oldest is dropped; a reader that has not read it gets an error.
    public static let events = 16_384
    /// Bytes of the journal that is read at start; a larger one is set aside. What the limits above allow takes at most
    /// half of it, and it is written anew when it has twice that size.
    public static let journalBytes = 16 << 20
    /// Bytes up to which the journal only grows.
    public static let journalQuietBytes = 256 << 10
    /// How long an answer waits for the journal to be written, in milliseconds.
    public static let journalPatienceMilliseconds = 2_000
    /// Between two tries to write a journal that could not be written, in seconds.
    public static let journalRetrySeconds = 10
    /// Events that one reader gets at a time.
    public static let eventBatch = 256
}
