import IPAddresses
import NIOCore
import NIOPosix
import Synchronization
import Testing

@testable import Tailnet

@Suite(.timeLimit(.minutes(5))) struct UDPSocketsTests {
    /// There is no port 0 to send to.
    @Test func aReasonToRefuseIsToldOnce() async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let sockets = try await UDPSockets.open(port: 0, forbidsFragments: true, on: loop)
        let told = try await loop.submit {
            let told = Mutex<[String]>([])
            sockets.start(
                .init(
                    datagram: { _, _ in }, burstEnded: {}, refused: { text in told.withLock { $0.append(text) } },
                    failed: {}))
            let nowhere = Endpoint(IPAddress(v4: 0x7f00_0001), 0)
            for _ in 0..<3 {
                for _ in 0..<2 { [UInt8](repeating: 1, count: 100).withUnsafeBytes { sockets.send($0, to: nowhere) } }
                sockets.flush()
            }
            #expect(sockets.hasRoom)
            sockets.close()
            return told.withLock { $0 }
        }.get()
        #expect(told == ["Invalid argument"])
    }
}
