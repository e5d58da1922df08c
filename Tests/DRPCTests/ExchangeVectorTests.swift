import DRPC
import Foundation
import NIOCore
import Testing

/// The recorded conversations of the reference's client and server.
@Suite struct ExchangeVectorTests {
    struct Exchange {
        let name: String
        let client: ByteBuffer
        let server: ByteBuffer
    }

    /// All variants; bytes that the recording abbreviates come from their own files or are built
    /// from what their description says.
    static func exchanges() throws -> [Exchange] {
        try Vectors.list("drpc_exchanges.json", "vectors").flatMap { vector -> [Exchange] in
            let name = vector["name"] as? String ?? ""
            let variants = vector["variants"] as? [[String: Any]] ?? []
            return try variants.map { variant in
                var streams: [ByteBuffer] = []
                for key in ["client_to_server_hex", "server_to_client_hex"] {
                    if let text = variant[key] as? String {
                        streams.append(bytes(hex: text))
                    } else if name == "split_exact_65536" {
                        streams.append(splitExact())
                    } else {
                        let full = try Vectors.load("drpc_\(name)_full.json")
                        streams.append(bytes(hex: full[key] as? String ?? ""))
                    }
                    if let short = variant[key] as? [String: Any] {
                        #expect(streams.last?.readableBytes == short["length"] as? Int)
                        #expect(
                            hex(streams.last?.getSlice(at: 0, length: 64) ?? .init()) == short["first_64_hex"]
                                as? String)
                    }
                }
                return Exchange(name: name, client: streams[0], server: streams[1])
            }
        }
    }

    /// UpdateAppStatus with slug "ok" and a message of 65,528 'm's: a request of 65,536 bytes.
    private static func splitExact() -> ByteBuffer {
        var request = bytes(hex: "0a026f6b1af8ff03")
        request.writeRepeatingByte(UInt8(ascii: "m"), count: 65_528)
        var all = ByteBuffer()
        Packet(.invoke, stream: 1, message: 1, data: ByteBuffer(string: "/coder.agent.v2.Agent/UpdateAppStatus"))
            .write(into: &all)
        Packet(.message, stream: 1, message: 2, data: request).write(into: &all)
        Packet(.closeSend, stream: 1, message: 3).write(into: &all)
        Packet(.close, stream: 1, message: 4).write(into: &all)
        return all
    }

    @Test func bothDirectionsDecodeAndEncodeToTheByte() throws {
        let exchanges = try Self.exchanges()
        #expect(Set(exchanges.map(\.name)).count == 19)
        for exchange in exchanges {
            for stream in [exchange.client, exchange.server] {
                var output = ByteBuffer()
                for packet in try packets(stream) { packet.write(into: &output) }
                #expect(output == stream, "\(exchange.name)")
            }
        }
    }

    /// Our client, asked to do the same, sends the same bytes.
    @Test func ourClientSendsTheSameBytes() throws {
        for exchange in try Self.exchanges() {
            let sent = try packets(exchange.client)
            let received = try packets(exchange.server)
            var client = ClientConnection()
            var output = ByteBuffer()
            for stream in Set(sent.map(\.stream)).sorted() {
                let mine = sent.filter { $0.stream == stream }
                let metadata = try mine.first { $0.kind == .invokeMetadata }.map { try Metadata.decode($0.data) } ?? [:]
                let rpc = try #require(mine.first { $0.kind == .invoke }.map { String(buffer: $0.data) })
                let kind: MethodKind = exchange.name == "server_stream" ? .serverStreaming : .unary
                let id = try client.open(rpc: rpc, kind: kind, metadata: metadata, into: &output)
                #expect(id == stream)
                for message in mine where message.kind == .message {
                    try client.send(message.data, stream: id, into: &output)
                }
                client.closeSend(stream: id, into: &output)
                for packet in received where packet.stream == stream {
                    _ = try client.receive(packet, into: &output)
                }
                if mine.contains(where: { $0.kind == .cancel }) { client.cancel(stream: id, into: &output) }
            }
            #expect(output == exchange.client, "\(exchange.name)")
        }
    }

    /// Our server, whose handlers answer as theirs did, sends the same bytes.
    @Test func ourServerSendsTheSameBytes() throws {
        for (name, variants) in Dictionary(grouping: try Self.exchanges(), by: \.name) {
            // Variants differ by whether the client's Close came before the server's CloseSend;
            // ours answers as in the one where it did not.
            let fullest = try #require(variants.max { $0.server.readableBytes < $1.server.readableBytes })
            let answers = try packets(fullest.server)
            var methods: [String: ServerConnection<Void>.Entry] = [:]
            let sent = try packets(fullest.client)
            for packet in sent where packet.kind == .invoke {
                let rpc = String(buffer: packet.data)
                if rpc.hasSuffix("DoesNotExist") { continue }
                methods[rpc] = .init(kind: name == "server_stream" ? .serverStreaming : .unary, handler: ())
            }
            var server = ServerConnection(methods: methods)
            var output = ByteBuffer()
            for packet in sent {
                for action in try server.receive(packet, into: &output) {
                    guard case .start(let stream, _, _, let metadata, _) = action else { continue }
                    #expect(metadata == (name == "invoke_metadata" ? ["key": "value"] : [:]))
                    let mine = answers.filter { $0.stream == stream }
                    if let failure = mine.first(where: { $0.kind == .error }) {
                        server.finish(.failure(ErrorPayload(failure.data)), stream: stream, into: &output)
                    } else if name == "server_stream" {
                        for message in mine where message.kind == .message {
                            try server.send(message.data, stream: stream, into: &output)
                        }
                        server.finish(.success(nil), stream: stream, into: &output)
                    } else if !mine.isEmpty {
                        let reply = mine.first { $0.kind == .message }?.data
                        server.finish(.success(reply), stream: stream, into: &output)
                    }
                }
            }
            #expect(output == fullest.server, "\(name)")
        }
    }
}
