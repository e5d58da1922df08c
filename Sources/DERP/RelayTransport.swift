import NIOCore

/// Opens the byte streams below DERP: TCP, TLS and the upgrade (docs/contracts/derp.md#dialling).
package protocol RelayTransport: Sendable {
    /// Connects to a relay.
    /// - Parameters:
    ///   - webSocket: by WebSocket; otherwise with `Upgrade: DERP`.
    ///   - limit: for all of it; the rest of the greeting is the caller's.
    ///   - initializer: runs on the loop when the upgrade is done and before any byte behind it is read; adds the handlers
    ///     that read and write DERP's bytes.
    /// - Returns: the open channel, which is the caller's to close.
    /// - Throws: ``RelayDialError``, or `CancellationError`.
    func dial(
        _ relay: RelayURL, webSocket: Bool, on loop: any EventLoop, within limit: Duration,
        initializer: @escaping @Sendable (any Channel) throws -> Void
    ) async throws -> any Channel

    /// Asks a relay for `/derp/latency-check` on a connection of its own.
    /// - Returns: the time from the request to its answer of 2xx, without that of connecting.
    /// - Throws: ``RelayDialError``, or `CancellationError`.
    func latency(_ relay: RelayURL, on loop: any EventLoop, within limit: Duration) async throws -> Duration
}

/// Why there is no connection to a relay.
package struct RelayDialError: Error, Hashable, CustomStringConvertible {
    /// The relay, or what is before it, refused `Upgrade: DERP` with a 4xx: WebSocket may pass.
    package var refusesUpgrade: Bool
    /// Names the relay and what was wrong.
    package var description: String

    package init(_ description: String, refusesUpgrade: Bool = false) {
        (self.description, self.refusesUpgrade) = (description, refusesUpgrade)
    }
}
