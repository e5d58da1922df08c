import Glibc
import Testing

@testable import AgentProc

@Suite struct PeakMemoryTests {
    @Test func aFigureThatMayBeOursIsNone() {
        for (reported, borrowed, own) in [
            (8_000, 8_000, nil), (7_999, 8_000, nil), (9_000, 8_000, nil), (9_001, 8_000, 9_001), (9_001, nil, nil),
        ] as [(Int64, Int64?, Int64?)] {
            #expect(PeakMemory.ofProgram(reported: reported, borrowed: borrowed) == own)
        }
    }

    @Test func whatProcSays() throws {
        #expect(PeakMemory.parse("Name:\tx\nVmHWM:\t   12345 kB\nVmRSS:\t 1 kB\n") == Int64(12_641_280))
        #expect(PeakMemory.parse("Name:\tx\nVmHWM:\n") == nil)
        #expect(PeakMemory.parse("Name:\tVmHWM: 5\n") == nil)
        #expect(try #require(PeakMemory.ofThisProcess()) > 1 << 20)
    }

    /// A peak that is over is not counted for the next program.
    @Test func aPeakIsForgotten() throws {
        let bytes = 256 << 20
        let area = UnsafeMutableRawPointer.allocate(byteCount: bytes, alignment: 4_096)
        memset(area, 1, bytes)
        area.deallocate()
        let before = try #require(PeakMemory.ofThisProcess())
        #expect(before >= bytes)
        PeakMemory.forgetThatOfThisProcess()
        #expect(try #require(PeakMemory.ofThisProcess()) < before)
    }
}
