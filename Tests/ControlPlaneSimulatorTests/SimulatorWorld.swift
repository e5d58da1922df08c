import AgentCore
import NIOCore
import NIOPosix

@testable import ControlPlaneSimulator

/// A server for tests of the tailnet's side, with a demonstration manifest.
func startSimulator(
    clock: AgentClock? = nil, _ configure: (inout SimulatorServer.Configuration) -> Void = { _ in },
    service change: (inout AgentService.Configuration) -> Void = { _ in }
) async throws -> SimulatorServer {
    let group = MultiThreadedEventLoopGroup.singleton
    let clock = clock ?? AgentClock(EventLoopClock(group: group))
    var service = AgentService.Configuration(
        manifest: .demonstration(executable: "/bin/true", agentSocket: nil, healthURL: nil))
    change(&service)
    var configuration = SimulatorServer.Configuration(token: Secret("token"))
    configure(&configuration)
    return try await SimulatorServer.start(
        configuration: configuration,
        service: AgentService(configuration: service, recorder: Recorder(clock: clock), clock: clock), group: group)
}
