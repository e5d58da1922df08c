import AgentProto
import DRPC

/// Passes the status of an app upward to the control plane. The control plane link implements it.
package protocol AppStatusForwarder: Sendable {
    /// - Throws: a `DRPCError` with `.remote(code)` reaches the client with its code and text as
    ///   they are; the text of any other error with code 0.
    func updateAppStatus(
        _ request: Coder_Agent_V2_UpdateAppStatusRequest
    ) async throws -> Coder_Agent_V2_UpdateAppStatusResponse
}

/// The forwarder of a daemon that has no control plane, or no connection to it.
package struct OfflineForwarder: AppStatusForwarder {
    /// What a client gets while there is no connection; part of the contract.
    package static let error = DRPCError(.remote(0), "agent not connected to coderd")

    package init() {}

    package func updateAppStatus(
        _ request: Coder_Agent_V2_UpdateAppStatusRequest
    ) async throws -> Coder_Agent_V2_UpdateAppStatusResponse {
        throw Self.error
    }
}
