import AgentCore
import AgentProto
import FoundationEssentials

/// The manifest as the agent works with it: checked, its directory expanded, its secrets gone. What
/// prints or encodes it gets ``redacted`` (docs/contracts/control-plane.md#manifest).
package struct ManifestSnapshot: Sendable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    package let agentID: UUID
    /// Set for a sub-agent, whose dev-container features are off.
    package let parentID: UUID?
    package let workspaceID: UUID?
    /// Absolute, expanded; the user's home when the manifest names none.
    package let directory: String
    /// The message without its secrets.
    package let message: Coder_Agent_V2_Manifest

    package var isSubAgent: Bool { parentID != nil }
    package var agentName: String { message.agentName }
    package var workspaceName: String { message.workspaceName }
    package var ownerName: String { message.ownerUsername }
    package var scripts: [WorkspaceScript] { message.scripts.map(WorkspaceScript.init) }
    package var metadata: [Coder_Agent_V2_WorkspaceAgentMetadata.Description] { message.metadata }
    package var apps: [Coder_Agent_V2_WorkspaceApp] { message.apps }

    /// Takes a message apart the moment it arrives: secrets go their own way, in a type that nothing prints.
    ///
    /// - Parameters:
    ///   - home: absolute path of the user's home.
    ///   - environment: for variables in `directory`.
    /// - Throws: ``ManifestError``.
    package static func receive(
        _ message: consuming Coder_Agent_V2_Manifest, home: String, environment: [String: String]
    ) throws(ManifestError) -> (manifest: ManifestSnapshot, secrets: [WorkspaceSecretValue]) {
        var message = message
        let secrets = message.secrets.map(WorkspaceSecretValue.init)
        message.secrets = []
        return (try ManifestSnapshot(stripped: message, home: home, environment: environment), secrets)
    }

    private init(
        stripped message: Coder_Agent_V2_Manifest, home: String, environment: [String: String]
    ) throws(ManifestError) {
        guard let agentID = UUID(wire: message.agentID) else {
            throw ManifestError(
                "the manifest's agent_id has \(message.agentID.count) bytes instead of the 16 of a UUID")
        }
        guard !agentID.isAllZero else {
            throw ManifestError("the manifest's agent_id is all zero: the control plane does not know this agent")
        }
        self.agentID = agentID
        if message.hasParentID {
            guard let parent = UUID(wire: message.parentID) else {
                throw ManifestError(
                    "the manifest's parent_id has \(message.parentID.count) bytes instead of the 16 of a UUID")
            }
            parentID = parent
        } else {
            parentID = nil
        }
        workspaceID = UUID(wire: message.workspaceID)
        directory = WorkspacePath.expand(message.directory, home: home, environment: environment, base: home)
        self.message = message
    }

    /// What the manifest gives to the environment of children.
    package func environment(secrets: [ManifestLayer.SecretVariable]) -> ManifestLayer {
        ManifestLayer(
            workspaceName: workspaceName, agentName: agentName, ownerName: ownerName,
            workspaceID: workspaceID?.lowercased ?? "", proxyURI: message.vsCodePortProxyUri,
            variables: message.environmentVariables, secrets: secrets)
    }

    /// One line for a log.
    package var description: String {
        "manifest of agent \(agentID.lowercased) (\(goQuoted(agentName))): \(message.scripts.count) scripts, "
            + "\(message.apps.count) apps, \(message.metadata.count) metadata, "
            + "\(message.environmentVariables.count) variables"
    }
    package var debugDescription: String { description }
    package var customMirror: Mirror { Mirror(self, children: []) }
}

extension UUID {
    /// From the 16 raw bytes of the wire (docs/contracts/agent-api.md#identifiers); nil for any other number.
    package init?(wire bytes: Data) {
        guard bytes.count == 16 else { return nil }
        var uuid: uuid_t = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        withUnsafeMutableBytes(of: &uuid) { area in area.copyBytes(from: bytes) }
        self.init(uuid: uuid)
    }

    /// The 16 raw bytes of the wire.
    package var wire: Data { withUnsafeBytes(of: uuid) { Data($0) } }
}
