import AgentTestSupport
import Foundation
import Glibc
import IPAddresses
import NIOCore
import NetStack
import Synchronization
import Testing

@testable import Tailnet

/// UDP through the tunnel, and the speed test.
@Suite(.timeLimit(.minutes(5))) struct TunnelDatagramTests {
    /// A UDP server at loopback that answers with the sender's port and what came.
    private final class Answerer: Sendable {
        let port: UInt16
        private let descriptor: CInt

        init() {
            let socket = socket(AF_INET, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
            descriptor = socket
            let any = SocketAddress(Endpoint(IPAddress(v4: 0x7f00_0001), 0))
            _ = any.withSockAddr { bind(socket, $0, socklen_t($1)) }
            var own = sockaddr_in()
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            withUnsafeMutablePointer(to: &own) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { _ = getsockname(socket, $0, &length) }
            }
            port = UInt16(bigEndian: own.sin_port)
            Thread.detachNewThread {
                var area = [UInt8](repeating: 0, count: 65_536)
                while true {
                    var peer = sockaddr_in()
                    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
                    let count = withUnsafeMutablePointer(to: &peer) { peer in
                        peer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                            recvfrom(socket, &area, area.count, 0, $0, &length)
                        }
                    }
                    guard count > 0 else { break }
                    let answer = Array("\(UInt16(bigEndian: peer.sin_port)) ".utf8) + area[..<count]
                    _ = withUnsafePointer(to: &peer) { peer in
                        peer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                            sendto(socket, answer, answer.count, 0, $0, length)
                        }
                    }
                }
                close(socket)
            }
        }

        func stop() { shutdown(descriptor, CInt(SHUT_RDWR)) }

        deinit { stop() }
    }

    /// Sends until something comes back: UDP may lose.
    private func ask(_ world: TunnelWorld, _ port: UInt16, from own: UInt16, _ text: String) async throws -> String {
        let (client, received) = (world.client.tunnel, Received())
        try await client.loop.submit {
            client.start(underlay: world.client, services: received)
        }.get()
        var looks = 0
        try await eventually("an answer") {
            if looks % 100 == 0 {
                try await client.loop.submit {
                    client.sendDatagram(
                        ByteBuffer(string: text), from: Endpoint(clientAddress, own), to: Endpoint(serverAddress, port))
                }.get()
            }
            looks += 1
            return received.text != nil
        }
        return received.text ?? ""
    }

    @Test func aFlowHasTheClientsPort() async throws {
        let answerer = Answerer()
        try await TunnelWorld.run { world in
            #expect(try await ask(world, answerer.port, from: 40_123, "hello") == "40123 hello")
            // In use here: another one.
            let other = try await ask(world, answerer.port, from: answerer.port, "again")
            #expect(other.hasSuffix(" again") && !other.hasPrefix("\(answerer.port) "))
        }
    }

    /// Longer than the path takes, and than NIO reads by itself.
    @Test(arguments: [1_300, 5_000, 60_000]) func longDatagrams(count: Int) async throws {
        let answerer = Answerer()
        try await TunnelWorld.run { world in
            let text = String(decoding: (0..<count).map { UInt8(97 + $0 % 26) }, as: UTF8.self)
            let answer = try await ask(world, answerer.port, from: 40_124, text)
            // From another port while the other cases have that one.
            #expect(answer.hasSuffix(" \(text)"))
        }
    }

    @Test func aClosedPortIsSaid() async throws {
        let answerer = Answerer()
        let port = answerer.port
        answerer.stop()
        try await TunnelWorld.run { world in
            let client = world.client.tunnel
            try await eventually("the client hears that the port is closed") {
                try await client.loop.submit {
                    client.sendDatagram(
                        ByteBuffer(string: "x"), from: Endpoint(clientAddress, 40_125),
                        to: Endpoint(serverAddress, port))
                }.get()
                // The stack of the client has no use for the message, and counts it.
                return try await world.look(at: world.client) { $0.stackCounters[.unknownMessage] } > 0
            }
        }
    }

    // MARK: Speed test

    private func speedTest(_ world: TunnelWorld, _ request: String, upload: Int = 0) async throws -> (String, Int) {
        try await world.connect(3).executeThenClose { inbound, outbound in
            try await outbound.write(ByteBuffer(string: request))
            var answer = ByteBuffer()
            var count = 0
            var hasAnswer = false
            for try await data in inbound {
                if hasAnswer {
                    count += data.readableBytes
                    continue
                }
                answer.writeImmutableBuffer(data)
                guard let end = answer.readableBytesView.firstIndex(of: UInt8(ascii: "\n")) else { continue }
                hasAnswer = true
                count = answer.readableBytesView.endIndex - end - 1
                answer.moveWriterIndex(to: end)
                guard upload > 0 else { continue }
                for _ in 0..<(upload >> 16) { try await outbound.write(ByteBuffer(repeating: 1, count: 1 << 16)) }
                outbound.finish()
            }
            return (String(buffer: answer), count)
        }
    }

    @Test func speedTests() async throws {
        try await TunnelWorld.run { world in
            let download = try await speedTest(world, #"{"version":2,"time":200000000,"direction":0}"# + "\n")
            #expect(download.0 == "{}" && download.1 > 1 << 16, "\(download)")
            let upload = try await speedTest(
                world, #"{"version":2,"time":60000000000,"direction":1}"# + "\n", upload: 4 << 20)
            #expect(upload == ("{}", 0))
            let version = try await speedTest(world, #"{"version":1,"time":1,"direction":0}"# + "\n")
            #expect(version.0 == #"{"error":"version 1 is not supported; this is version 2"}"#)
            for bad in [#"{"version":2,"time":0,"direction":0}"#, #"{"version":2,"time":1,"direction":2}"#, "}", "{]}"]
            {
                let answer = try await speedTest(world, bad + "\n")
                #expect(answer.0.hasPrefix(#"{"error":""#), "\(bad): \(answer)")
            }
            let long = try await speedTest(world, String(repeating: " ", count: SpeedTest.requestBytes + 1))
            #expect(long.0 == #"{"error":"the request is too long"}"#)
        }
    }
}

/// The last datagram that came to a node, as text.
private final class Received: TunnelServices, Sendable {
    private let last = Mutex<String?>(nil)

    var text: String? { last.withLock { $0 } }

    func connectionRequested(_ id: ConnectionID, local: Endpoint, remote: Endpoint) {}
    func requestEnded(_ id: ConnectionID) {}
    func flowEnded(local: Endpoint, remote: Endpoint) {}
    func datagram(_ payload: ByteBuffer, local: Endpoint, remote: Endpoint) {
        last.withLock { $0 = String(buffer: payload) }
    }
}
