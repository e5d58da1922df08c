import AgentProto
import FoundationEssentials

/// The manifest that the simulator hands out.
package struct SimulatedManifest: Sendable {
    package var message: Coder_Agent_V2_Manifest

    package init(_ message: Coder_Agent_V2_Manifest) { self.message = message }
}
