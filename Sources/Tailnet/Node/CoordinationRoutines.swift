import AgentCore
import AgentProto
import ControlPlaneAPI
import DERP
import DRPC
import NIOCore

/// Where the node is, once there is one.
package typealias CurrentNode = Watched<TailnetNode?>

/// Hears of peers, and says where we are (docs/contracts/tailnet.md#coordination).
package struct Coordinate: Routine {
    package let name = "coordination"
    package let atShutdown = RoutineShutdown.stops
    /// How long the control plane may take to end the stream after our goodbye.
    static let goodbye = Duration.seconds(4)
    private let current: CurrentNode
    private let clock: AgentClock
    private let isEnding: @Sendable () -> Bool

    /// - Parameter isEnding: whether the daemon ends. Otherwise it is the connection that ends, and clients are told nothing.
    package init(_ current: CurrentNode, clock: AgentClock, isEnding: @escaping @Sendable () -> Bool) {
        (self.current, self.clock, self.isEnding) = (current, clock, isEnding)
    }

    package func run(_ connection: any AgentConnection) async throws {
        let node = try await current.first { $0 }
        // A task of its own: when this one is cancelled, there is a goodbye to say.
        let stream = Task(executorPreference: node.executor) { try await Self.stream(node, connection) }
        let (clock, isEnding) = (clock, isEnding)
        try await withTaskCancellationHandler {
            try await stream.value
        } onCancel: {
            guard isEnding() else { return stream.cancel() }
            node.loop.execute { node.sayGoodbye() }
            Task(executorPreference: node.executor) {
                try? await clock.sleep(Self.goodbye)
                stream.cancel()
            }
        }
    }

    private static func stream(_ node: TailnetNode, _ connection: any AgentConnection) async throws {
        try await connection.bidirectional(TailnetAPI.coordinate) { writer, responses in
            let (requests, continuation) = AsyncStream.makeStream(of: Coder_Tailnet_V2_CoordinateRequest.self)
            try await withThrowingTaskGroup(of: Void.self) { group in
                defer { continuation.finish() }
                group.addTask { for await request in requests { try await writer.send(request) } }
                try await node.onLoop { node in node.streamOpened { _ = continuation.yield($0) } }
                group.addTask {
                    for try await response in responses { try await node.onLoop { $0.streamReceived(response) } }
                }
                // Whichever way ends first, the stream is over with it.
                let end = await group.nextResult()
                group.cancelAll()
                try? await node.onLoop { $0.streamClosed() }
                try end?.get()
            }
        }
        throw DRPCError(.endOfStream, "the control plane ended the stream")
    }
}

/// Hears of the relay map, and of each that follows it.
package struct FollowDERPMap: Routine {
    package let name = "derp map"
    package let atShutdown = RoutineShutdown.stops
    private let current: CurrentNode

    package init(_ current: CurrentNode) { self.current = current }

    package func run(_ connection: any AgentConnection) async throws {
        let node = try await current.first { $0 }
        try await connection.serverStream(TailnetAPI.streamDERPMaps, .init()) { maps in
            for try await map in maps {
                let map = DERPMap(map)
                try await node.onLoop { $0.update({ _ in }, map: map) }
            }
        }
        throw DRPCError(.endOfStream, "the control plane ended the stream")
    }
}

extension TailnetNode {
    /// Runs the body on the node's event loop.
    package func onLoop<R: Sendable>(_ body: @escaping @Sendable (TailnetNode) throws -> R) async throws -> R {
        try await loop.submit { try body(self) }.get()
    }
}
