import AgentProto
import DRPC
import Foundation
import Testing

@testable import AgentSocket

/// Drives every method with bytes from the recordings, without our RPC code.
@Suite(.timeLimit(.minutes(5))) struct InteropTests {
    /// The recorded conversations with the agent socket, sent and answered byte for byte.
    @Test func recordedConversationsGetTheRecordedAnswers() async throws {
        let url = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../DRPCTests/Vectors/drpc_exchanges.json")
        let file = try JSONSerialization.jsonObject(with: Data(contentsOf: url)) as? [String: Any]
        let names = [
            "ping", "sync_want_ok", "sync_start_not_ready", "sync_cycle_error", "sync_life", "unknown_rpc",
            "bad_payload", "two_sequential_calls", "invoke_metadata", "agent_api_not_connected",
        ]
        let vectors = (file?["vectors"] as? [[String: Any]] ?? []).filter {
            names.contains($0["name"] as? String ?? "")
        }
        #expect(vectors.count == names.count)
        for vector in vectors {
            // The variant in which the server was not overtaken by the client's Close.
            let variants = vector["variants"] as? [[String: Any]] ?? []
            let fullest = try #require(
                variants.max {
                    ($0["server_to_client_hex"] as? String ?? "").count
                        < ($1["server_to_client_hex"] as? String ?? "").count
                })
            let writes = (fullest["writes"] as? [[String: Any]] ?? []).compactMap { write -> (String, String)? in
                guard let hex = write["hex"] as? String, let direction = write["dir"] as? String else { return nil }
                return (direction, hex)
            }
            let name = vector["name"] as? String ?? ""
            try await withAgent { agent in
                let client = try agent.raw()
                for (direction, hex) in writes {
                    if direction == "c2s" { client.write(hex: hex) } else { client.expect(hex: hex, "\(name)") }
                }
            }
        }
    }

    @Test func everyMethod() async throws {
        try await withAgent { agent in
            let client = try agent.raw()
            client.call(stream: 1, "Ping", "")
            client.expect(hex: "050101000d010200", "Ping")
            client.call(stream: 2, "SyncWant", "0a0141120142")
            client.expect(hex: "050201000d020200", "SyncWant")
            client.call(stream: 3, "SyncReady", "0a0141")
            client.expect(hex: "050301000d030200", "SyncReady: false is no field")
            client.call(stream: 4, "SyncStart", "0a0142")
            client.expect(hex: "050401000d040200", "SyncStart")
            client.call(stream: 5, "SyncList", "")
            client.expect(
                hex: "0501".replacingOccurrences(of: "01", with: "05") + "011e" + "0a0c0a0141120770656e64696e67"
                    + "0a0e0a01421207737461727465641801" + "0d050200", "SyncList")
            client.call(stream: 6, "SyncComplete", "0a0142")
            client.expect(hex: "050601000d060200", "SyncComplete")
            client.call(stream: 7, "SyncStatus", "0a0141")
            client.expect(
                hex: "050701" + "2b" + "0a0770656e64696e671001"
                    + "1a1e0a01411201421a09636f6d706c657465642209636f6d706c657465642801" + "0d070200", "SyncStatus")
            // Streams end with Close.
            client.call(stream: 8, "SyncWait", "0a0141")
            client.expect(
                hex: "050801" + "2b" + "0a0770656e64696e671001"
                    + "1a1e0a01411201421a09636f6d706c657465642209636f6d706c657465642801" + "0b080200", "SyncWait")
            client.call(stream: 9, "SyncEvents", "0801")
            for (message, event) in ["0a0141120770656e64696e67", "0a0142120770656e64696e67"].enumerated() {
                let header = client.read(4)
                #expect(header.prefix(3) == [0x05, 9, UInt8(message + 1)])
                let data = client.read(Int(header[3]))
                #expect(RawClient.hex(data).hasPrefix(event))
                #expect(data[12] == 0x1A, "a timestamp follows")
            }
            client.call(stream: 10, "UpdateAppStatus", "0a03617070")
            var tail = client.read(4)
            while tail.first == 0x05 { _ = client.read(Int(tail[3])); tail = client.read(4) }
            #expect(RawClient.hex(tail) == "0b090500", "Close of SyncEvents")
            client.expect(
                hex: "070a0125" + "0000000000000000"
                    + RawClient.hex(Array("agent not connected to coderd".utf8)), "UpdateAppStatus")
        }
    }

    @Test func anEmptyCallIsEOF() async throws {
        try await withAgent { agent in
            let client = try agent.raw()
            client.write(hex: "030101262f636f6465722e6167656e74736f636b65742e76312e4167656e74536f636b65742f50696e67")
            client.write(hex: "0d010200")
            client.expect(hex: "0701010b0000000000000000454f46", "EOF")
        }
    }

    @Test func errorsFromAboveKeepTheirCode() async throws {
        struct Refusing: AppStatusForwarder {
            func updateAppStatus(
                _ request: Coder_Agent_V2_UpdateAppStatusRequest
            ) async throws -> Coder_Agent_V2_UpdateAppStatusResponse {
                if request.slug == "ok" { return .init() }
                throw DRPCError(.remote(7), "no app \(request.slug)")
            }
        }
        try await withAgent(forwarder: Refusing()) { agent in
            let client = try await agent.client()
            try await client.updateAppStatus(.with { $0.slug = "ok" })
            let error = await #expect(throws: DRPCError.self) {
                try await client.updateAppStatus(.with { $0.slug = "x" })
            }
            #expect(error?.code == .remote(7))
            #expect(error?.message == "no app x")
        }
    }
}
