import AgentProto
import Synchronization

/// The control plane's coordinator: nodes of agents and clients, and what each hears of the others
/// (docs/contracts/tailnet.md#coordination). Agents reach it by the rpc `Coordinate`; a client in the same process
/// attaches directly.
package final class CoordinationService: Sendable {
    package typealias Request = Coder_Tailnet_V2_CoordinateRequest
    package typealias Response = Coder_Tailnet_V2_CoordinateResponse

    /// One stream of a peer. It ends by a Disconnect, an error, ``lost()``, or a newer stream with the same id.
    package struct Attachment: Sendable {
        fileprivate let service: CoordinationService
        fileprivate let stream: UInt64

        /// Takes a request; one that comes after the end does nothing.
        /// - Returns: the error that ends the stream, when the request breaks the contract.
        @discardableResult package func receive(_ request: Request) -> String? {
            service.perform { $0.receive(request, stream) }
        }

        /// The stream broke: peers hear LOST.
        package func lost() { service.perform { $0.lost(stream) } }

        package var isOpen: Bool { service.state.withLock { $0.coordination.isOpen(stream) } }
    }

    private struct Receiver {
        var deliver: @Sendable (Response) -> Void
        var end: @Sendable () -> Void
    }

    private struct State {
        var coordination = CoordinationState()
        var receivers: [UInt64: Receiver] = [:]
        var next: UInt64 = 0
        /// Somebody calls the receivers now, and will go on with what is added.
        var isDelivering = false
    }

    private let state = Mutex(State())

    package init() {}

    /// Begins a stream.
    /// - Parameters:
    ///   - id: 16 bytes.
    ///   - deliver: gets what the peer hears, one after the other, on any thread; may call the service, must not wait.
    ///   - end: called once, as the last; the stream is over, by whomever.
    package func attach(
        _ id: [UInt8], isAgent: Bool, deliver: @escaping @Sendable (Response) -> Void,
        end: @escaping @Sendable () -> Void
    ) -> Attachment {
        let stream = state.withLock { state in
            state.next += 1
            state.receivers[state.next] = Receiver(deliver: deliver, end: end)
            return state.next
        }
        perform { $0.attach(stream, id, isAgent: isAgent) }
        return Attachment(service: self, stream: stream)
    }

    private func perform<T: Sendable>(_ body: (inout CoordinationState) -> T) -> T {
        let (result, isOurs) = state.withLock { state in
            let result = body(&state.coordination)
            defer { state.isDelivering = true }
            return (result, !state.isDelivering)
        }
        while isOurs, let call = nextCall() { call() }
        return result
    }

    /// What to call next, so that each peer hears everything in order.
    private func nextCall() -> (@Sendable () -> Void)? {
        state.withLock { state in
            let effects = state.coordination.effects
            state.coordination.effects = []
            guard !effects.isEmpty else {
                state.isDelivering = false
                return nil
            }
            let calls = effects.compactMap { effect -> (@Sendable () -> Void)? in
                switch effect {
                case .deliver(let stream, let response):
                    guard let deliver = state.receivers[stream]?.deliver else { return nil }
                    return { deliver(response) }
                case .end(let stream): return state.receivers.removeValue(forKey: stream)?.end
                }
            }
            return { for call in calls { call() } }
        }
    }

    // MARK: What tests see and do

    /// The node that a connected peer has told.
    package func node(of id: [UInt8]) -> Coder_Tailnet_V2_Node? { state.withLock { $0.coordination.node(id) } }
    /// Ids of the connected peers, sorted.
    package var peers: [[UInt8]] { state.withLock { $0.coordination.ids } }
    package var tunnels: Int { state.withLock { $0.coordination.tunnelCount } }

    /// Sends a peer anything.
    package func send(_ response: Response, to id: [UInt8]) {
        perform { state in
            if let stream = state.stream(id) { state.effects.append(.deliver(to: stream, response)) }
        }
    }

    /// Ends the streams of all agents: clients hear LOST.
    package func endAgents() {
        perform { state in
            for id in state.agents {
                if let stream = state.stream(id) { state.lost(stream) }
            }
        }
    }
}
