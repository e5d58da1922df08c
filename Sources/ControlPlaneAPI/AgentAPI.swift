import AgentProto
import DRPC
import SwiftProtobuf

/// The rpcs of `coder.agent.v2.Agent`, which the control plane serves.
package enum AgentAPI {
    private static let service = "/coder.agent.v2.Agent/"

    package static let getManifest = Method<Coder_Agent_V2_GetManifestRequest, Coder_Agent_V2_Manifest>(
        service + "GetManifest")
    /// Older than ``getAnnouncementBanners``, which the agent asks instead.
    package static let getServiceBanner = Method<Coder_Agent_V2_GetServiceBannerRequest, Coder_Agent_V2_ServiceBanner>(
        service + "GetServiceBanner")
    package static let getAnnouncementBanners = Method<
        Coder_Agent_V2_GetAnnouncementBannersRequest, Coder_Agent_V2_GetAnnouncementBannersResponse
    >(service + "GetAnnouncementBanners")
    package static let updateStats = Method<Coder_Agent_V2_UpdateStatsRequest, Coder_Agent_V2_UpdateStatsResponse>(
        service + "UpdateStats")
    package static let updateLifecycle = Method<Coder_Agent_V2_UpdateLifecycleRequest, Coder_Agent_V2_Lifecycle>(
        service + "UpdateLifecycle")
    package static let batchUpdateAppHealths = Method<
        Coder_Agent_V2_BatchUpdateAppHealthRequest, Coder_Agent_V2_BatchUpdateAppHealthResponse
    >(service + "BatchUpdateAppHealths")
    package static let updateStartup = Method<Coder_Agent_V2_UpdateStartupRequest, Coder_Agent_V2_Startup>(
        service + "UpdateStartup")
    package static let batchUpdateMetadata = Method<
        Coder_Agent_V2_BatchUpdateMetadataRequest, Coder_Agent_V2_BatchUpdateMetadataResponse
    >(service + "BatchUpdateMetadata")
    package static let batchCreateLogs = Method<
        Coder_Agent_V2_BatchCreateLogsRequest, Coder_Agent_V2_BatchCreateLogsResponse
    >(service + "BatchCreateLogs")
    package static let scriptCompleted = Method<
        Coder_Agent_V2_WorkspaceAgentScriptCompletedRequest, Coder_Agent_V2_WorkspaceAgentScriptCompletedResponse
    >(service + "ScriptCompleted")
    package static let getResourcesMonitoringConfiguration = Method<
        Coder_Agent_V2_GetResourcesMonitoringConfigurationRequest,
        Coder_Agent_V2_GetResourcesMonitoringConfigurationResponse
    >(service + "GetResourcesMonitoringConfiguration")
    package static let pushResourcesMonitoringUsage = Method<
        Coder_Agent_V2_PushResourcesMonitoringUsageRequest, Coder_Agent_V2_PushResourcesMonitoringUsageResponse
    >(service + "PushResourcesMonitoringUsage")
    package static let reportConnection = Method<Coder_Agent_V2_ReportConnectionRequest, Google_Protobuf_Empty>(
        service + "ReportConnection")
    package static let createSubAgent = Method<
        Coder_Agent_V2_CreateSubAgentRequest, Coder_Agent_V2_CreateSubAgentResponse
    >(service + "CreateSubAgent")
    package static let deleteSubAgent = Method<
        Coder_Agent_V2_DeleteSubAgentRequest, Coder_Agent_V2_DeleteSubAgentResponse
    >(service + "DeleteSubAgent")
    package static let listSubAgents = Method<
        Coder_Agent_V2_ListSubAgentsRequest, Coder_Agent_V2_ListSubAgentsResponse
    >(service + "ListSubAgents")
    package static let reportBoundaryLogs = Method<
        Coder_Agent_V2_ReportBoundaryLogsRequest, Coder_Agent_V2_ReportBoundaryLogsResponse
    >(service + "ReportBoundaryLogs")
    package static let updateAppStatus = Method<
        Coder_Agent_V2_UpdateAppStatusRequest, Coder_Agent_V2_UpdateAppStatusResponse
    >(service + "UpdateAppStatus")
}
