import AgentCore
import AgentSocket
import DRPC
import NIOCore
import NIOPosix

/// Calls to the agent socket, each over a connection of its own.
package struct LocalAgentSocket: Sendable {
    package let path: String

    package init(path: String) { self.path = path }

    /// How long an agent may take for a call that doesn't wait for anything.
    package static let callTimeout = Duration.seconds(30)

    /// Measures time limits; nil is the clock of the connection's loop.
    @TaskLocal package static var clock: AgentClock?

    /// Connects, runs the body and closes.
    /// - Throws: ``CommandFailure`` when the agent cannot be reached or takes longer than the limit; what the body throws.
    package func use<T: Sendable>(
        within limit: Duration = callTimeout, _ body: @escaping @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        try await use(
            within: limit, else: "the agent at \(path) did not answer within \(limit.components.seconds) s", body)
    }

    /// As ``use(within:_:)`` with a time limit for all of it, or none, and the line for what exceeds it.
    package func use<T: Sendable>(
        within limit: Duration?, else failure: String,
        _ body: @escaping @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        // One thread for the connection; the daemon's loops are not started for a command.
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        do {
            let value =
                if let limit {
                    try await withTimeLimit(
                        limit, Self.clock ?? AgentClock(EventLoopClock(group: group)), CommandFailure(message: failure)
                    ) { try await connected(group, body) }
                } else {
                    try await connected(group, body)
                }
            try? await group.shutdownGracefully()
            return value
        } catch {
            try? await group.shutdownGracefully()
            throw error
        }
    }

    private func connected<T: Sendable>(
        _ group: MultiThreadedEventLoopGroup, _ body: @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        let client: AgentSocketClient
        do {
            client = try await AgentSocketClient.connect(path: path, group: group)
        } catch {
            throw CommandFailure(
                message: "\(error.message(forPath: path)); check that the agent runs and that --socket-path or "
                    + "CODER_AGENT_SOCKET_PATH names its socket")
        }
        return try await Self.use(client, body)
    }

    private static func use<T: Sendable>(
        _ client: AgentSocketClient, _ body: @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        do {
            let result = try await body(client)
            await client.close()
            return result
        } catch {
            await client.close()
            throw error
        }
    }

    /// How long an agent that was lost may take to come back.
    package static let restartPatience = Duration.seconds(30)
    private static let reconnectPause = Duration.milliseconds(100)

    /// Within the body of ``use(within:else:_:)``: does the work with its client and, whenever the agent is lost, anew
    /// with a client of the next one.
    package func throughRestarts<T: Sendable>(
        _ first: AgentSocketClient, _ work: @Sendable (AgentSocketClient) async throws -> T
    ) async throws -> T {
        let clock = Self.clock ?? AgentClock(EventLoopClock(group: first.eventLoop))
        var client = first
        while true {
            do {
                return try await Self.use(client, work)
            } catch let error as DRPCError where error.isLostConnection {
                try Task.checkCancellation()
                client = try await reconnect(first.eventLoop, clock, error)
            }
        }
    }

    private func reconnect(
        _ group: any EventLoopGroup, _ clock: AgentClock, _ loss: DRPCError
    ) async throws -> AgentSocketClient {
        let deadline = clock.now() + Self.restartPatience
        var reason: any Error = loss
        while clock.now() < deadline {
            try await clock.sleep(Self.reconnectPause)
            do { return try await AgentSocketClient.connect(path: path, group: group) } catch { reason = error }
        }
        throw CommandFailure(
            message:
                "lost the agent at \(path) and found no other within \(Self.restartPatience.components.seconds) s: "
                + "\(reason.message(forPath: path)); start it and run this command again")
    }
}

extension DRPCError {
    /// The agent has ended, or has closed the connection.
    fileprivate var isLostConnection: Bool { [.closed, .endOfStream, .cancelled].contains(code) }
}

extension Error {
    fileprivate func message(forPath path: String) -> String {
        (self as? DRPCError)?.message ?? "cannot connect to \(path): \(self)"
    }
}
