import AgentTestSupport
import Foundation
import Glibc
import NIOCore
import Synchronization
import Testing

@testable import Tailnet

/// What takes minutes: run with `WA_LONG=1`, in a release build where speed matters.
@Suite(.serialized, .enabled(if: getenv("WA_LONG") != nil), .timeLimit(.minutes(60))) struct LongTests {
    /// 1 GiB up and back at once, over a path of 50 ms that loses and reorders; `WA_LONG_MIB` makes it another amount.
    @Test(arguments: [0, 10, 50]) func aGiBBothWays(lostOfThousand: Int) async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        let path = Impairer.Path(lost: lostOfThousand, delay: .milliseconds(25), jitter: .milliseconds(2))
        let count = (Int(ProcessInfo.processInfo.environment["WA_LONG_MIB"] ?? "") ?? 1_024) << 20
        try await TunnelWorld.run(path: path) { world in
            let began = ContinuousClock.now
            let (sent, came) = (Hash(), Hash())
            try await world.connect(echo.port).executeThenClose { inbound, outbound in
                async let writing: Void = {
                    var left = count
                    var random = SeededGenerator("long")
                    while left > 0 {
                        let chunk = (0..<min(left, 128 << 10) / 8).flatMap { _ in
                            withUnsafeBytes(of: random.next()) { Array($0) }
                        }
                        sent.add(chunk)
                        try await outbound.write(ByteBuffer(bytes: chunk))
                        left -= chunk.count
                    }
                    outbound.finish()
                }()
                for try await data in inbound { came.add(data.readableBytesView) }
                try await writing
            }
            let seconds = (ContinuousClock.now - began) / .seconds(1)
            print("\(count >> 20) MiB each way at \(lostOfThousand) ‰ loss: \(Int(seconds)) s")
            #expect(came.count == count && came.value == sent.value)
        }
    }

    /// Under data all the time, past two renewals of the session.
    @Test func sessionsAreRenewedUnnoticed() async throws {
        let echo = try LoopbackServer(LoopbackServer.echo)
        try await TunnelWorld.run { world in
            try await world.connect(echo.port).executeThenClose { inbound, outbound in
                var replies = inbound.makeAsyncIterator()
                let end = ContinuousClock.now + .seconds(250)
                var handshakes: Set<Duration> = []
                var round = 0
                while ContinuousClock.now < end {
                    round += 1
                    let bytes = randomBytes(64 << 10)
                    try await outbound.write(ByteBuffer(bytes: bytes))
                    var got: [UInt8] = []
                    while got.count < bytes.count, let data = try await replies.next() { got += data.readableBytesView }
                    try #require(got == bytes)
                    if round % 100 == 0 {
                        let last = try await world.look(at: world.server) { tunnel in
                            tunnel.node.peerIDs.compactMap {
                                tunnel.node.status(of: $0, now: TunnelClock.now())?.lastHandshake
                            }
                        }
                        handshakes.formUnion(last)
                    }
                }
                print("\(round) round trips of 64 KiB, \(handshakes.count) handshakes")
                #expect(handshakes.count >= 3)
                outbound.finish()
            }
        }
    }
}

/// FNV-1a of what passed.
private final class Hash: Sendable {
    private let state = Mutex((value: UInt64(0xcbf2_9ce4_8422_2325), count: 0))

    var value: UInt64 { state.withLock { $0.value } }
    var count: Int { state.withLock { $0.count } }

    func add(_ bytes: some Sequence<UInt8>) {
        state.withLock { state in
            for byte in bytes {
                state.value = (state.value ^ UInt64(byte)) &* 0x100_0000_01b3
                state.count += 1
            }
        }
    }
}
