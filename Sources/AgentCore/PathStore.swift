/// Where tool calls report the paths that they touched. The git watcher implements it; the process
/// API feeds it, so that neither knows the other.
public protocol PathStore: Sendable {
    /// Adds absolute paths to the chat and all of its ancestors.
    func add(paths: [String], for chat: ChatIdentity)
    /// Says that a tool call of the chat ended, so that its repositories deserve a fresh look.
    func notify(_ chat: ChatIdentity)
}

/// The path store of a daemon without a git watcher: it keeps nothing.
public struct NoPathStore: PathStore {
    public init() {}
    public func add(paths: [String], for chat: ChatIdentity) {}
    public func notify(_ chat: ChatIdentity) {}
}
