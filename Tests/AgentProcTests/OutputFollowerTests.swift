import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import NIOCore
import Testing

@testable import AgentProc

@Suite struct OutputFollowerTests {
    private let pool = BlockingPool(threads: 1)

    /// Everything from an offset on until the end; missing bytes as the character it stands for.
    private func read(_ follower: OutputFollower, from start: Int) async -> [UInt8?] {
        var bytes: [UInt8?] = []
        while true {
            switch await follower.next(from: start + bytes.count) {
            case .bytes(let more): bytes += more.readableBytesView.map { $0 }
            case .gone(let count): bytes += [UInt8?](repeating: nil, count: count)
            case .quiet: continue
            case .ended, .stopped: return bytes
            }
        }
    }

    @Test func fromAnyOffsetWhileItRunsAndAfterItsEnd() async throws {
        let fixture = try ManagerFixture()
        let process = try await fixture.start("seq 1 100000")
        let running = OutputFollower(process, pool: pool)
        let expected = (1...100_000).map { "\($0)\n" }.joined().utf8.map { UInt8?($0) }
        #expect(await read(running, from: 0) == expected)
        running.stop()
        _ = await fixture.finish(process)
        for offset in [0, 1, 16_384, 16_385, expected.count - 16_385, expected.count - 1, expected.count] {
            let ended = OutputFollower(process, pool: pool)
            #expect(await read(ended, from: offset) == Array(expected[offset...]), "from \(offset)")
            ended.stop()
        }
        #expect(process.followers == 0)
        await fixture.end()
    }

    /// Where the complete output is not kept, what memory has lost is said, and nothing else.
    @Test func withoutASpool() async throws {
        let fixture = try ManagerFixture(spools: false)
        let process = try await fixture.start("seq 1 100000")
        _ = await fixture.finish(process)
        let follower = OutputFollower(process, pool: pool)
        let expected = (1...100_000).map { "\($0)\n" }.joined().utf8.map { UInt8?($0) }
        let middle = [UInt8?](repeating: nil, count: expected.count - 32_768)
        #expect(await read(follower, from: 0) == expected.prefix(16_384) + middle + expected.suffix(16_384))
        #expect(await read(follower, from: 20_000) == middle.dropFirst(3_616) + expected.suffix(16_384))
        follower.stop()
        await fixture.end()
    }

    @Test func silenceIsToldAndStopEndsTheWait() async throws {
        let fixture = try ManagerFixture()
        let process = try await fixture.start("sleep 1000")
        let follower = OutputFollower(process, pool: pool)
        let heart = fixture.manager.heartbeat { follower.beat() }
        for _ in 0..<2 {
            await fixture.clock.sleepers(1)
            async let next = follower.next(from: 0)
            fixture.clock.advance(by: .seconds(15))
            guard case .quiet = await next else {
                Issue.record("no heartbeat")
                break
            }
        }
        heart.cancel()
        follower.stop()
        if case .stopped = await follower.next(from: 0) {} else { Issue.record("not stopped") }
        // Its end is not waited for on a clock that stands still.
        try await fixture.manager.signal(process, SIGKILL)
        _ = await fixture.finish(process)
        await fixture.end()
    }

    /// What a terminal's process keeps in memory goes with its end.
    @Test func memoryGoesWithTheEnd() async throws {
        let fixture = try ManagerFixture()
        let process = try await fixture.start("seq 1 1000; read x") {
            $0.input = .terminal(TerminalSize(rows: 24, cols: 80))
        }
        #expect(process.state.withLock { $0.recent != nil })
        #expect(await process.input?.write(ByteBuffer(string: "\n")) == true)
        _ = await fixture.finish(process)
        #expect(process.state.withLock { $0.recent == nil })
        await fixture.end()
    }
}
