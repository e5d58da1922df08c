import ControlPlaneTestSupport
import AgentCore
import AgentProto
import ControlPlaneAPI
import DRPC
import SwiftProtobuf

/// Answers at once, without a simulation.
struct DirectConnection: UnaryConnection {
    let apiVersion = APIVersion(2, 9)
    let configuration: Coder_Agent_V2_GetResourcesMonitoringConfigurationResponse
    let pushes = Pushes()

    final class Pushes: Sendable {
        private let all = Watched<[Coder_Agent_V2_PushResourcesMonitoringUsageRequest]>([])
        var value: [Coder_Agent_V2_PushResourcesMonitoringUsageRequest] { all.value }
        var count: Int { all.read(\.count) }
        func add(_ push: Coder_Agent_V2_PushResourcesMonitoringUsageRequest) { all.update { $0.append(push) } }
    }

    init(configuration: Coder_Agent_V2_GetResourcesMonitoringConfigurationResponse) {
        self.configuration = configuration
    }

    func call<Request: Message, Response: Message>(
        _ method: Method<Request, Response>, _ request: Request
    ) async throws -> Response {
        if let push = request as? Coder_Agent_V2_PushResourcesMonitoringUsageRequest { pushes.add(push) }
        return configuration as? Response ?? Response()
    }

    func ended() async -> String { "never" }
    func close() async {}
}
