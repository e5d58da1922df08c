import AgentProto
import Foundation
import SwiftProtobuf
import Testing

/// `protobuf_messages.json`: bytes of the reference's real generated code.
@Suite struct VectorTests {
    static let types: [any Message.Type] = [
        Coder_Agent_V2_Manifest.self, Coder_Agent_V2_UpdateAppStatusRequest.self,
        Coder_Agent_V2_ReportBoundaryLogsRequest.self, Coder_Agent_V2_BoundaryLog.self,
        Coder_Agent_V2_UpdateLifecycleRequest.self, Coder_Agent_V2_Lifecycle.self,
        Coder_Agent_V2_UpdateStartupRequest.self, Coder_Agent_V2_Startup.self,
        Coder_Agent_V2_UpdateStatsRequest.self, Coder_Agent_V2_Stats.self, Coder_Agent_V2_UpdateStatsResponse.self,
        Coder_Agent_V2_BatchCreateLogsRequest.self, Coder_Agent_V2_BatchCreateLogsResponse.self,
        Coder_Agent_V2_WorkspaceAgentScriptCompletedRequest.self, Coder_Agent_V2_Timing.self,
        Coder_Agent_V2_BatchUpdateAppHealthRequest.self, Coder_Agent_V2_BatchUpdateMetadataRequest.self,
        Coder_Agent_V2_GetAnnouncementBannersResponse.self,
        Coder_Agent_V2_GetResourcesMonitoringConfigurationResponse.self,
        Coder_Agent_V2_PushResourcesMonitoringUsageRequest.self, Coder_Agent_V2_ReportConnectionRequest.self,
        Coder_Agent_V2_CreateSubAgentRequest.self, Coder_Agent_V2_CreateSubAgentResponse.self,
        Coder_Boundarylogproxy_Codec_V1_BoundaryMessage.self,
        Coder_Agentsocket_V1_SyncWantRequest.self, Coder_Agentsocket_V1_SyncReadyResponse.self,
        Coder_Agentsocket_V1_SyncStatusResponse.self, Coder_Agentsocket_V1_SyncListResponse.self,
    ]

    /// Not in our contracts; any message keeps their fields as unknown ones.
    static let foreign: Set<String> = [
        "coder.agent.v2.PushContextStateRequest", "coder.agentsocket.v1.ContextSnapshotResponse",
    ]

    /// Whose JSON differs by design: the sequence number, which the contract says is an unsigned 64-bit one, was
    /// recorded from a narrower signed one.
    static let differentJSON: Set<String> = [
        "BoundaryLog with negative sequence_number (10 byte varint)",
        "ReportBoundaryLogsRequest, two logs, session, process, sequence", "BoundaryMessage logs",
    ]

    /// Go writes the fields of a oneof after all others; Swift writes every field in the order of
    /// its number. Both decode to the same.
    static let differentOrder: Set<String> = [
        "ReportBoundaryLogsRequest, two logs, session, process, sequence", "BoundaryMessage logs",
    ]

    private func vectors(_ key: String) throws -> [[String: Any]] {
        let url = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("Vectors/protobuf_messages.json")
        let file = try JSONSerialization.jsonObject(with: Data(contentsOf: url)) as? [String: Any]
        return file?[key] as? [[String: Any]] ?? []
    }

    private func type(_ name: String) -> (any Message.Type)? {
        // Of a message without fields all are unknown, and kept.
        if Self.foreign.contains(name) { return Coder_Tailnet_V2_StreamDERPMapsRequest.self }
        return Self.types.first { $0.protoMessageName == name }
    }

    private func bytes(_ hex: String) -> [UInt8] {
        stride(from: 0, to: hex.count, by: 2).compactMap { offset in
            let start = hex.index(hex.startIndex, offsetBy: offset)
            return UInt8(hex[start..<hex.index(start, offsetBy: 2)], radix: 16)
        }
    }

    private func encoded(_ message: any Message) throws -> [UInt8] {
        var options = BinaryEncodingOptions()
        options.useDeterministicOrdering = true
        return try message.serializedBytes(options: options)
    }

    private func sameJSON(_ message: any Message, _ expected: Any) throws -> Bool {
        let mine = try JSONSerialization.jsonObject(with: Data(message.jsonString().utf8))
        return (mine as? NSObject) == (expected as? NSObject)
    }

    @Test func everyMessageRoundTripsToTheByte() throws {
        let vectors = try vectors("vectors")
        #expect(vectors.count == 37)
        for vector in vectors {
            let description = vector["description"] as? String ?? ""
            let name = try #require(vector["message"] as? String)
            let found = type(name)
            let type = try #require(found, "no type for \(name)")
            let input = bytes(try #require(vector["hex"] as? String))
            #expect(input.count == vector["length"] as? Int)
            let message = try type.init(serializedBytes: input)
            let output = try encoded(message)
            if Self.differentOrder.contains(description) {
                #expect(output.sorted() == input.sorted(), "\(description)")
                #expect(try type.init(serializedBytes: output).isEqualTo(message: message), "\(description)")
            } else {
                #expect(output == input, "\(description)")
            }
            if !Self.foreign.contains(name), !Self.differentJSON.contains(description), let json = vector["protojson"] {
                #expect(try sameJSON(message, json), "\(description)")
            }
        }
    }

    @Test func everyDecoderInputHasItsResult() throws {
        let vectors = try vectors("decode")
        #expect(vectors.count == 17)
        for vector in vectors {
            let description = vector["description"] as? String ?? ""
            let found = type(vector["message"] as? String ?? "")
            let type = try #require(found)
            let input = bytes(try #require(vector["hex"] as? String))
            guard vector["accepted"] as? Bool == true else {
                #expect(throws: (any Error).self, "\(description)") { try type.init(serializedBytes: input) }
                continue
            }
            let message = try type.init(serializedBytes: input)
            #expect(try encoded(message) == bytes(vector["encodes_back_hex"] as? String ?? ""), "\(description)")
            if let json = vector["protojson"] { #expect(try sameJSON(message, json), "\(description)") }
        }
    }

    @Test func metadataIsFieldTwo() throws {
        let request = Coder_Agent_V2_BatchUpdateMetadataRequest.with { $0.metadata = [.with { $0.key = "k" }] }
        #expect(try encoded(request) == [0x12, 0x03, 0x0A, 0x01, 0x6B])
    }
}
