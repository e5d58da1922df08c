import ControlPlaneAPI

/// Makes connections to the control plane.
package protocol Dialler: Sendable {
    /// Connects with the newest version that the control plane knows.
    /// - Throws: ``ControlPlaneError``; `isPermanent` tells a refusal from an outage.
    func dial() async throws -> any AgentConnection
}
