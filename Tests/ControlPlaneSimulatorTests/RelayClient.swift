import AgentTestSupport
import DERP
import NIOCore
import Sodium
import Synchronization

@testable import ControlPlaneSimulator

/// A node's connection to the simulator's relay, driven by the test: ``step()`` moves it on.
final class RelayClient: Sendable {
    let bytes: ByteClient
    let key: PublicKey
    private let isWebSocket: Bool
    private let state: Mutex<State>

    private struct State {
        var connection: DERPConnection
        var read = 0
        var events: [DERPConnection.Event] = []
    }

    static let upgrade = "GET /derp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: DERP\r\n\r\n"
    static let webSocket =
        "GET /derp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        + "Sec-WebSocket-Key: Agn37WlJx3SXrNzUm1DUZw==\r\nSec-WebSocket-Protocol: derp\r\n\r\n"

    static func connect(_ server: SimulatorServer, isWebSocket: Bool = false, home: Bool = true) async throws
        -> RelayClient
    {
        let bytes = try await ByteClient.connect(server.address)
        try await bytes.write(isWebSocket ? webSocket : upgrade)
        try await eventually("the 101") { bytes.head.hasPrefix("HTTP/1.1 101 ") }
        var random = SystemRandomNumberGenerator()
        let key = try PrivateKey(random: &random)
        return RelayClient(
            bytes, key.publicKey, isWebSocket,
            DERPConnection(key: key, isHome: home, dialled: .zero, now: .zero, random: &random))
    }

    private init(_ bytes: ByteClient, _ key: PublicKey, _ isWebSocket: Bool, _ connection: DERPConnection) {
        (self.bytes, self.key, self.isWebSocket) = (bytes, key, isWebSocket)
        state = Mutex(State(connection: connection))
    }

    var isConnected: Bool { state.withLock { $0.connection.isConnected } }

    /// What came since the last time.
    func takeEvents() -> [DERPConnection.Event] {
        state.withLock { state in
            defer { state.events = [] }
            return state.events
        }
    }

    /// Reads what came, and writes what is to be sent.
    func step() async throws {
        let all = isWebSocket ? binaryPayloads(bytes.afterHead) : bytes.afterHead
        let out = state.withLock { state in
            state.connection.receive(ByteBuffer(bytes: all[state.read...]), now: .zero)
            state.read = all.count
            while let event = state.connection.nextEvent(now: .zero) { state.events.append(event) }
            var out = ByteBuffer()
            if state.connection.hasOutput { state.connection.write(into: &out, now: .zero) }
            return Array(out.readableBytesView)
        }
        if !out.isEmpty { try await bytes.write(isWebSocket ? maskedFrame(out) : out) }
    }

    func greet() async throws {
        try await eventually("the greeting") {
            try await step()
            return isConnected
        }
    }

    func send(_ packet: [UInt8], to peer: PublicKey) async throws {
        _ = state.withLock { $0.connection.send(ByteBuffer(bytes: packet), to: peer) }
        try await step()
    }

    func expect(_ event: DERPConnection.Event) async throws {
        var seen: [DERPConnection.Event] = []
        try await eventually("\(event)") {
            try await step()
            seen += takeEvents()
            return seen.contains(event)
        }
    }
}

/// A binary frame of a client, masked with zeros.
func maskedFrame(_ payload: [UInt8]) -> [UInt8] {
    let length = payload.count
    let size: [UInt8] =
        length < 126
        ? [UInt8(length) | 0x80] : [254, UInt8(truncatingIfNeeded: length >> 8), UInt8(truncatingIfNeeded: length)]
    return [0x82] + size + [0, 0, 0, 0] + payload
}

/// What a server's whole binary frames carry; none is longer than 65,535 bytes.
func binaryPayloads(_ bytes: [UInt8]) -> [UInt8] {
    var rest = bytes[...]
    var payloads: [UInt8] = []
    while rest.count >= 4 || rest.count >= 2 && rest[rest.startIndex + 1] < 126 {
        let head = Array(rest.prefix(4))
        let (length, start) = head[1] < 126 ? (Int(head[1]), 2) : (Int(head[2]) << 8 | Int(head[3]), 4)
        guard rest.count >= start + length else { break }
        if head[0] & 0x0f == 2 { payloads += rest.dropFirst(start).prefix(length) }
        rest = rest.dropFirst(start + length)
    }
    return payloads
}
