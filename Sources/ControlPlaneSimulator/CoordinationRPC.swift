import AgentCore
import AgentProto
import ControlPlaneAPI
import DRPC
import DequeModule

/// The rpcs of `coder.tailnet.v2.Tailnet` that agents call.
struct CoordinationRPC: Sendable {
    let coordination: CoordinationService
    let service: AgentService

    /// Responses that wait until a stream takes them.
    private struct Outbox: Sendable {
        var responses: Deque<Coder_Tailnet_V2_CoordinateResponse> = []
        var isEnded = false

        /// Takes the next one: nil when there is none yet, `.some(nil)` when none comes any more.
        mutating func next() -> Coder_Tailnet_V2_CoordinateResponse?? {
            responses.popFirst().map(Optional.some) ?? (isEnded ? .some(nil) : nil)
        }
    }

    func add(_ caller: AgentService.Caller, to router: inout Router) {
        let coordinate = rpcName(TailnetAPI.coordinate)
        router.bidirectional(TailnetAPI.coordinate) { requests, responses, _ in
            try await service.fault(coordinate, caller, Coder_Tailnet_V2_CoordinateRequest())
            try await run(caller, requests, responses)
        }
        let streamMaps = rpcName(TailnetAPI.streamDERPMaps)
        router.serverStreaming(TailnetAPI.streamDERPMaps) { request, responses, _ in
            try await service.fault(streamMaps, caller, request)
            service.recorder.call(rpc: streamMaps, connection: caller.connection, request: request)
            var map = service.derpMaps.value
            while true {
                try await responses.send(map)
                map = try await service.derpMaps.first { [map] in $0 == map ? nil : $0 }
            }
        }
    }

    private func run(
        _ caller: AgentService.Caller, _ requests: RequestStream<Coder_Tailnet_V2_CoordinateRequest>,
        _ responses: ResponseWriter<Coder_Tailnet_V2_CoordinateResponse>
    ) async throws {
        let outbox = Watched(Outbox())
        let attachment = coordination.attach([UInt8](service.manifest.agentID), isAgent: true) { response in
            let hasRoom = outbox.update { outbox in
                guard outbox.responses.count < SimulatorLimits.waitingResponses else { return false }
                outbox.responses.append(response)
                return true
            }
            if !hasRoom { caller.cut() }
        } end: {
            outbox.update { $0.isEnded = true }
        }
        defer { attachment.lost() }
        // Each half says whether the call is over with it.
        try await withThrowingTaskGroup(of: Bool.self) { group in
            group.addTask {
                while let response = try await outbox.take({ $0.next() }) { try await responses.send(response) }
                return true
            }
            group.addTask {
                for try await request in requests {
                    let error = attachment.receive(request)
                    service.recorder.call(
                        rpc: rpcName(TailnetAPI.coordinate), connection: caller.connection, request: request,
                        outcome: error.map { .refused($0) } ?? .answered)
                }
                attachment.lost()
                return false
            }
            defer { group.cancelAll() }
            while let isOver = try await group.next(), !isOver {}
        }
    }
}
