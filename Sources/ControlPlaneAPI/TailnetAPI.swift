import AgentProto
import DRPC

/// The rpcs of `coder.tailnet.v2.Tailnet` that an agent uses, on the same connection
/// (docs/contracts/tailnet.md#coordination).
package enum TailnetAPI {
    private static let service = "/coder.tailnet.v2.Tailnet/"

    /// Tells the control plane where this node is, and hears where others are.
    package static let coordinate = Method<Coder_Tailnet_V2_CoordinateRequest, Coder_Tailnet_V2_CoordinateResponse>(
        service + "Coordinate", .bidirectional)
    /// The relay map at once, then each that differs from the one before.
    package static let streamDERPMaps = Method<Coder_Tailnet_V2_StreamDERPMapsRequest, Coder_Tailnet_V2_DERPMap>(
        service + "StreamDERPMaps", .serverStreaming)
}
