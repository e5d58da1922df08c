import AgentCore
import AgentTestSupport
import CPlatform
import DRPC
import Foundation
import Glibc
import NIOCore
import NIOPosix
import Testing

@testable import AgentSocket

@Suite(.timeLimit(.minutes(5)), .serialized) struct ServerTests {
    @Test func peersOfOtherUsersAreRefused() async throws {
        let me = PeerCredentials(pid: 1, uid: 1_000, gid: 1)
        #expect(me.mayUse(socketOf: 1_000))
        #expect(!me.mayUse(socketOf: 1_001))
        #expect(PeerCredentials(pid: 1, uid: 0, gid: 0).mayUse(socketOf: 1_001))
        try await withAgent(admits: { peer in
            #expect(peer.uid == geteuid() && peer.pid == getpid())
            return false
        }) { agent in
            let client = try agent.raw()
            client.call(stream: 1, "Ping", "")
            #expect(client.isClosed)
            #expect(agent.metrics.render().contains(#"agent_socket_connections_total{result="refused_peer"} 2"#))
        }
    }

    @Test func theFileIsOursAlone() async throws {
        try await withAgent { agent in
            var info = stat()
            #expect(lstat(agent.path, &info) == 0)
            #expect(info.st_mode & 0o777 == 0o600)
            let second = AgentSocketServer(
                configuration: .init(path: agent.path), units: UnitStore(), group: agent.group,
                logger: .init(label: "second"), metrics: MetricsRegistry())
            #expect(throws: CoreError(.socketInUse, "")) { try second.bind() }
        }
    }

    @Test func whatIsInTheWay() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let path = "/tmp/wa-test-\(UUID().uuidString.prefix(8)).sock"
        func server() -> AgentSocketServer {
            AgentSocketServer(
                configuration: .init(path: path), units: UnitStore(), group: group, logger: .init(label: "test"),
                metrics: MetricsRegistry())
        }
        // Not a socket: never deleted.
        try "precious".write(toFile: path, atomically: false, encoding: .utf8)
        #expect(throws: CoreError(.pathOccupied, "")) { try server().bind() }
        #expect(try String(contentsOfFile: path, encoding: .utf8) == "precious")
        unlink(path)
        // A socket that no process listens on any more is replaced, and served.
        close(try UnixListener.bind(path: path).descriptor)
        // Other tests' children hold it until they have executed.
        try await eventually("no process listens") { wa_unix_probe(path) == -ECONNREFUSED }
        let running = server()
        try running.bind()
        let run = Task { try await running.run() }
        let client = try await AgentSocketClient.connect(path: path, group: group)
        try await client.ping()
        // What took the file's place is not ours to remove.
        unlink(path)
        try "theirs".write(toFile: path, atomically: false, encoding: .utf8)
        run.cancel()
        try await run.value
        #expect(try String(contentsOfFile: path, encoding: .utf8) == "theirs")
        unlink(path)
        try await group.shutdownGracefully()
    }

    @Test(arguments: [3, 4, 5])
    func aFullSocketMakesRoom(clients: Int) async throws {
        try await withAgent(connections: 4) { agent in
            var all: [RawClient] = []
            for _ in 0..<clients {
                let client = try agent.raw()
                client.call(stream: 1, "Ping", "")
                client.expect(hex: "050101000d010200", "each new client is served")
                all.append(client)
            }
            #expect(agent.server.connections == min(clients, 4))
            if clients == 5 { #expect(all[0].isClosed, "the longest idle one had to go") }
        }
    }

    @Test func busyConnectionsAreNotEvicted() async throws {
        try await withAgent(connections: 2) { agent in
            try agent.units.register("u")
            try agent.units.want("u", "never")
            let waiting = try (0..<2).map { _ in try agent.raw() }
            for client in waiting {
                client.call(stream: 1, "SyncWait", "0a0175")
                #expect(client.read(4).first == 0x05)
            }
            let refused = try agent.raw()
            #expect(refused.isClosed)
            #expect(agent.metrics.render().contains(#"result="refused_limit"} 1"#))
        }
    }

    @Test func aBareInvokeIsNoCall() async throws {
        try await withAgent(connections: 2) { agent in
            let holding = try (0..<2).map { _ in try agent.raw() }
            for client in holding {
                // In one write, so that the Invoke has been seen when the first call is answered.
                let invoke = { (stream: UInt8, method: String) in
                    let name = Array("/coder.agentsocket.v1.AgentSocket/\(method)".utf8)
                    return [0x03, stream, 1, UInt8(name.count)] + name
                }
                client.write(invoke(1, "Ping") + [0x05, 1, 2, 0, 0x0D, 1, 3, 0] + invoke(2, "SyncWait"))
                client.expect(hex: "050101000d010200", "Ping")
            }
            let newClient = try agent.raw()
            newClient.call(stream: 1, "Ping", "")
            newClient.expect(hex: "050101000d010200", "the new client is served")
            #expect(holding[0].isClosed, "the longest idle one had to go")
        }
    }

    @Test func threeHundredClientsAtOnce() async throws {
        try await withAgent { agent in
            try agent.units.register("gate")
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                for number in 0..<300 {
                    tasks.addTask {
                        let client = try await agent.client()
                        try await client.want("u\(number)", dependsOn: "gate")
                        try await client.waitUntilReady(
                            "u\(number)", pollInterval: .seconds(3_600), clock: ContinuousClock())
                        try await client.start("u\(number)")
                        try await client.complete("u\(number)")
                        await client.close()
                    }
                }
                tasks.addTask {
                    try await eventually("all wait") { agent.units.waiting == 300 }
                    try agent.units.complete("gate")
                }
                try await tasks.waitForAll()
            }
            #expect(agent.units.list().filter { $0.status == "completed" }.count == 301)
            try await eventually("all are gone") { agent.server.connections == 0 }
        }
    }

    @Test func hostileClientsHarmNoOther() async throws {
        try await withAgent { agent in
            let victim = try agent.raw()
            var stream: UInt8 = 0
            func victimIsServed(_ after: Comment) {
                stream += 1
                victim.call(stream: stream, "Ping", "")
                let id = String(format: "%02x", stream)
                victim.expect(hex: "05\(id)01000d\(id)0200", after)
            }
            victimIsServed("before")
            for garbage in [
                "ff", "0dffffffffffffffffffff0100", "05000100", "7f010100", "0f010101ff", "050101ffffffff0f",
            ] {
                let client = try agent.raw()
                client.write(hex: garbage)
                if garbage != "ff" { #expect(client.isClosed, "\(garbage)") }
                victimIsServed("garbage \(garbage)")
            }
            let half = try agent.raw()
            half.write(hex: "0301012e")
            victimIsServed("half a frame")
            let second = try agent.raw()
            second.call(stream: 1, "Ping", "")
            second.expect(hex: "050101000d010200", "first call")
            second.write(hex: "0301040178")
            #expect(second.isClosed)
            victimIsServed("second Invoke")
            // 4 MiB is the longest packet, for Invoke names too.
            for (size, closed) in [(4_194_303, false), (4_194_304, false), (4_194_305, true)] {
                let client = try agent.raw()
                let frames = Self.invoke(size)
                let writer = Thread { client.write(frames) }
                writer.start()
                if closed {
                    #expect(client.isClosed, "\(size)")
                } else {
                    let header = client.read(6)
                    #expect(header.first == 0x07, "an unknown rpc is answered: \(size)")
                }
                victimIsServed("\(size) bytes")
            }
            // A reader that never reads: requests whose answers it leaves in the socket.
            for number in 0..<200 { try agent.units.register("unit \(number)") }
            let deaf = try agent.raw()
            var flags = fcntl(deaf.descriptor, F_GETFL)
            flags |= O_NONBLOCK
            _ = fcntl(deaf.descriptor, F_SETFL, flags)
            for stream in 1...120 as ClosedRange<UInt8> {
                deaf.call(stream: stream, "SyncList", "")
            }
            victimIsServed("a reader that never reads")
        }
    }

    private static func invoke(_ size: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        var rest = size
        while rest > 0 {
            let length = min(rest, 65_536)
            rest -= length
            bytes += [rest == 0 ? 0x03 : 0x02, 1, 1]
            var value = length
            while value >= 0x80 {
                bytes.append(UInt8(value & 0x7F) | 0x80)
                value >>= 7
            }
            bytes.append(UInt8(value))
            bytes += [UInt8](repeating: 0x61, count: length)
        }
        return bytes
    }

    @Test func shutdownEndsWaitingCalls() async throws {
        let units = UnitStore()
        try units.register("u")
        try units.want("u", "never")
        let client = try await Self.endedWhileWaiting(units)
        #expect(client.isClosed)
    }

    private static func endedWhileWaiting(_ units: UnitStore) async throws -> RawClient {
        nonisolated(unsafe) var result: RawClient?
        try await withAgent(units: units) { agent in
            let client = try agent.raw()
            client.call(stream: 1, "SyncWait", "0a0175")
            let header = client.read(4)
            _ = client.read(Int(header[3]))
            result = client
        }
        return try #require(result)
    }
}
