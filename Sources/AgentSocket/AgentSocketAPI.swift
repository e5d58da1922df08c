import AgentProto
import DRPC

/// The rpcs of `coder.agentsocket.v1.AgentSocket`.
package enum AgentSocketAPI {
    /// The version of the service that this is.
    package static let version = "1.2"

    private static let service = "/coder.agentsocket.v1.AgentSocket/"

    package static let ping = Method<Coder_Agentsocket_V1_PingRequest, Coder_Agentsocket_V1_PingResponse>(
        service + "Ping")
    package static let syncStart = Method<
        Coder_Agentsocket_V1_SyncStartRequest, Coder_Agentsocket_V1_SyncStartResponse
    >(service + "SyncStart")
    package static let syncWant = Method<
        Coder_Agentsocket_V1_SyncWantRequest, Coder_Agentsocket_V1_SyncWantResponse
    >(service + "SyncWant")
    package static let syncComplete = Method<
        Coder_Agentsocket_V1_SyncCompleteRequest, Coder_Agentsocket_V1_SyncCompleteResponse
    >(service + "SyncComplete")
    package static let syncReady = Method<
        Coder_Agentsocket_V1_SyncReadyRequest, Coder_Agentsocket_V1_SyncReadyResponse
    >(service + "SyncReady")
    package static let syncStatus = Method<
        Coder_Agentsocket_V1_SyncStatusRequest, Coder_Agentsocket_V1_SyncStatusResponse
    >(service + "SyncStatus")
    package static let syncList = Method<
        Coder_Agentsocket_V1_SyncListRequest, Coder_Agentsocket_V1_SyncListResponse
    >(service + "SyncList")
    package static let updateAppStatus = Method<
        Coder_Agent_V2_UpdateAppStatusRequest, Coder_Agent_V2_UpdateAppStatusResponse
    >(service + "UpdateAppStatus")
    /// Ours: what git is to log in with, from the control plane.
    package static let gitLogin = Method<
        Coder_Agentsocket_V1_GitLoginRequest, Coder_Agentsocket_V1_GitLoginResponse
    >(service + "GitLogin")
    /// Ours: the unit's status at once and after each change, until the unit is ready.
    package static let syncWait = Method<
        Coder_Agentsocket_V1_SyncWaitRequest, Coder_Agentsocket_V1_SyncStatusResponse
    >(service + "SyncWait", .serverStreaming)
    /// Ours: what happened so far, oldest first, and then what happens.
    package static let syncEvents = Method<
        Coder_Agentsocket_V1_SyncEventsRequest, Coder_Agentsocket_V1_UnitEvent
    >(service + "SyncEvents", .serverStreaming)
}
