import AgentProto
import AgentTestSupport
import DRPC
import Foundation
import NIOCore
import SwiftProtobuf
import Testing

@testable import AgentSocket

/// Clients that ask and never read.
@Suite(.timeLimit(.minutes(2))) struct UnreadAnswerTests {
    /// Units whose list is far longer than what sockets and one connection's buffer take.
    private static func manyUnits() throws -> (UnitStore, answerBytes: Int) {
        let units = UnitStore()
        for number in 0..<400 { try units.register(UnitGraphTests.name(number, 4_000)) }
        let response = Coder_Agentsocket_V1_SyncListResponse.with { response in
            response.units = units.list().map { unit in
                .with {
                    $0.unit = unit.unit
                    $0.status = unit.status
                    $0.isReady = unit.isReady
                }
            }
        }
        let data = ByteBuffer(bytes: try response.serializedBytes() as [UInt8])
        var answer = ByteBuffer()
        Packet(.message, stream: 1, message: 1, data: data).write(into: &answer)
        Packet(.closeSend, stream: 1, message: 2).write(into: &answer)
        return (units, answer.readableBytes)
    }

    @Test(arguments: [-1, 0, 1])
    func allTogetherAreBounded(difference: Int) async throws {
        let (units, bytes) = try Self.manyUnits()
        let budget = UnsentBudget(limit: 3 * bytes - difference)
        try await withAgent(units: units, unsentBudget: budget) { agent in
            var deaf: [RawClient] = []
            for number in 1...3 {
                deaf.append(try agent.raw())
                deaf.last?.call(stream: 1, "SyncList", "")
                if number < 3 { try await eventually("answer \(number) waits") { budget.held == number * bytes } }
            }
            var violations = difference > 0 ? 1 : 0
            try await eventually("the third answer waits") {
                agent.metrics.render().contains("agent_socket_violations_total \(violations)\n")
                    && agent.server.connections == 3 - violations && budget.held == (3 - violations) * bytes
            }
            #expect(agent.metrics.render().contains("agent_socket_unsent_bytes \(budget.held)\n"))
            // Clients that read are served; those that don't are closed to make room, the oldest first.
            #expect(try await agent.client().list().count == 400)
            violations += 1
            try await eventually("room was made") { agent.server.connections == 4 - violations }
            #expect(agent.metrics.render().contains("agent_socket_violations_total \(violations)\n"))
            #expect(deaf[0].read(bytes).count < bytes)
            #expect(deaf[2].read(bytes).count == bytes)
            deaf[2].call(stream: 2, "Ping", "")
            deaf[2].expect(hex: "050201000d020200", "it reads again and is served again")
            deaf.removeAll()
            try await eventually("all is given back") { budget.held == 0 }
        }
    }
}
