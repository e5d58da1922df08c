import Testing

@testable import AgentCore

@Suite struct RecentLogTests {
    private func line(_ text: String) -> RecentLog.Line {
        RecentLog.Line(time: "2026-01-01T00:00:00.000Z", level: .info, message: text, fields: [])
    }

    @Test func theLastThousandLinesAreKept() {
        let log = RecentLog()
        for number in 0..<RecentLog.maximumLines { log.append(line("\(number)")) }
        #expect(log.start(lines: .max) == 0 && log.start(lines: 10) == RecentLog.maximumLines - 10)
        #expect(log.read(from: 0).missed == 0 && log.read(from: 0).lines.first?.message == "0")
        log.append(line("one more"))
        let batch = log.read(from: 0)
        #expect(batch.missed == 1 && batch.lines.first?.message == "1")
        #expect(batch.lines.count == RecentLog.batchLines && batch.next == RecentLog.batchLines + 1)
    }

    @Test func longLinesPushOutMore() {
        let log = RecentLog()
        // With the 100 that each line counts for its own: four fill it to the byte.
        let quarter = String(repeating: "a", count: RecentLog.maximumBytes / 4 - 100)
        for _ in 0..<4 { log.append(line(quarter)) }
        #expect(log.read(from: 0).missed == 0)
        log.append(line(""))
        #expect(log.read(from: 0).missed == 1 && log.read(from: 0).lines.count == 4)
        // One that is larger than all of it is not kept, and is counted.
        log.append(line(String(repeating: "b", count: RecentLog.maximumBytes)))
        #expect(log.read(from: 0).missed == 6 && log.read(from: 0).lines.isEmpty && log.read(from: 0).next == 6)
    }

    @Test func aReaderGoesOnWhereItWas() {
        let log = RecentLog()
        log.append(line("a"))
        let first = log.read(from: log.start(lines: 5))
        log.append(line("b"))
        let second = log.read(from: first.next)
        #expect(first.lines.map(\.message) == ["a"] && second.lines.map(\.message) == ["b"] && second.missed == 0)
        #expect(log.read(from: second.next).lines.isEmpty && log.read(from: second.next).next == 2)
    }
}
