import DRPC
import Foundation
import Glibc
import NIOCore
import Testing

@testable import AgentSocket

@Suite(.timeLimit(.minutes(2))) struct EventTests {
    /// A reader that falls so far behind that events it needs are forgotten gets what was sent, and
    /// then how many it missed.
    @Test func aReaderThatFellBehindIsTold() async throws {
        let kept = 512
        let units = UnitStore(eventCapacity: kept)
        // One batch, which is more than a socket and a connection's buffer take.
        for number in 0..<AgentSocketLimits.eventBatch { try units.register(UnitGraphTests.name(number, 4_000)) }
        try await withAgent(units: units) { agent in
            let slow = try agent.raw()
            slow.call(stream: 1, "SyncEvents", "")
            // The batch was taken once its first byte is here.
            var first: UInt8 = 0
            #expect(recv(slow.descriptor, &first, 1, CInt(MSG_PEEK)) == 1)
            for number in 0..<1_000 { try units.register("later \(number)") }
            var reader = PacketReader()
            var packets: [Packet] = []
            while packets.last?.kind != .error {
                let bytes = slow.read(1)
                try #require(!bytes.isEmpty)
                reader.append(ByteBuffer(bytes: bytes + slow.readWhatIsThere()))
                while let packet = try reader.next() { packets.append(packet) }
            }
            #expect(packets.dropLast().map(\.kind) == Array(repeating: .message, count: AgentSocketLimits.eventBatch))
            let lost = 1_000 - kept
            let error = try #require(packets.last.map { ErrorPayload($0.data) })
            #expect(error.text == "SyncEvents: \(lost) events were forgotten before they were read")
            #expect(error.code == 0)
            // The connection is usable, and a reader that begins anew gets what is kept.
            slow.call(stream: 2, "Ping", "")
            slow.expect(hex: "050201000d020200", "the connection goes on")
            #expect(try await agent.client().history().count == kept)
            #expect(agent.metrics.render().contains("agent_socket_events_forgotten \(units.forgottenEvents)\n"))
        }
    }
}
