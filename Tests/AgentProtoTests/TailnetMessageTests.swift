import AgentProto
import AgentTestSupport
import Foundation
import SwiftProtobuf
import Testing

/// `tailnet_messages.json`: bytes of the reference's real generated code.
@Suite struct TailnetMessageTests {
    private static let types: [any Message.Type] = [
        Coder_Tailnet_V2_Node.self, Coder_Tailnet_V2_CoordinateRequest.self, Coder_Tailnet_V2_CoordinateResponse.self,
        Coder_Tailnet_V2_DERPMap.self, Coder_Tailnet_V2_StreamDERPMapsRequest.self,
    ]

    /// What only clients and the control plane's own programs send.
    private static let foreign: Set<String> = [
        "RefreshResumeTokenResponse", "WorkspaceUpdatesRequest", "WorkspaceUpdate", "TelemetryRequest",
    ]

    @Test func everyMessageRoundTripsToTheByte() throws {
        let messages = try #require(VectorFile.read("tailnet_messages.json")["messages"] as? [[String: Any]])
        #expect(messages.count == 21)
        for vector in messages {
            let name = try #require(vector["type"] as? String)
            let input = try #require(bytes(fromHex: vector["hex"]))
            let found = Self.types.first { $0.protoMessageName == name }
            guard let type = found else {
                #expect(Self.foreign.contains(String(name.split(separator: ".").last ?? "")), "\(name)")
                continue
            }
            let message = try type.init(serializedBytes: input)
            var options = BinaryEncodingOptions()
            options.useDeterministicOrdering = true
            let output: [UInt8] = try message.serializedBytes(options: options)
            #expect(output == input, "\(vector["name"] ?? "")")
            var json = JSONEncodingOptions()
            json.preserveProtoFieldNames = true
            let mine = try JSONSerialization.jsonObject(with: message.jsonUTF8Data(options: json)) as? NSObject
            let theirs = try #require(vector["json"] as? NSObject)
            #expect(mine == theirs, "\(vector["name"] ?? "")")
        }
    }
}
