import AgentTestSupport
import Foundation
import Glibc
import Logging
import NIOCore
import Synchronization
import Testing

@testable import AgentCore

private final class MemorySink: LogSink {
    let format: LogSinkFormat
    private let text = Mutex("")
    init(_ format: LogSinkFormat) { self.format = format }
    func write(_ lines: ByteBuffer) { text.withLock { $0 += String(buffer: lines) } }
    var all: String { text.withLock { $0 } }
}

@Suite struct LogTests {
    @Test func humanAndJSONLines() throws {
        let (human, json) = (MemorySink(.human), MemorySink(.json))
        let pipeline = LogPipeline(sinks: [human, json])
        var logger = Logger(label: "x") { _ in AgentLogHandler(pipeline: pipeline, level: .info) }
        logger[metadataKey: "b"] = "2"
        logger.debug("unseen")
        logger.info("hello\nworld", metadata: ["a": "x y", "c": "\u{1}\"", "d": ""])
        pipeline.flush(milliseconds: 10_000)
        let line = human.all
        #expect(line.hasSuffix(" INFO  hello\\nworld a=\"x y\" b=2 c=\"\\u0001\\\"\" d=\"\"\n"), "\(line)")
        #expect(line.split(separator: "\n").count == 1)
        let object = try JSONSerialization.jsonObject(with: Data(json.all.utf8)) as? [String: String]
        #expect(object?["msg"] == "hello\nworld")
        #expect(object?["level"] == "info")
        #expect(object?["c"] == "\u{1}\"")
        #expect(object?["ts"].map { line.hasPrefix($0) } == true)
    }

    @Test func linesOfManyThreadsStayWhole() async {
        let sink = MemorySink(.human)
        let pipeline = LogPipeline(sinks: [sink])
        let logger = Logger(label: "x") { _ in AgentLogHandler(pipeline: pipeline, level: .info) }
        await withTaskGroup(of: Void.self) { group in
            for task in 0..<8 {
                group.addTask { for n in 0..<200 { logger.info("line", metadata: ["n": "\(task)-\(n)"]) } }
            }
        }
        pipeline.flush(milliseconds: 10_000)
        let lines = sink.all.split(separator: "\n")
        #expect(lines.count == 1600)
        #expect(Set(lines.compactMap { $0.split(separator: "=").last }).count == 1600)
    }

    @Test func rotationKeepsThreeOldFiles() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/a.log"
        let sink = try RotatingLogSink(path: path, limit: 100, kept: 3)
        for number in 0..<10 { sink.write(ByteBuffer(string: String(repeating: "\(number)", count: 59) + "\n")) }
        #expect(Set(directoryEntries(directory.path)) == ["a.log", "a.log.1", "a.log.2", "a.log.3"])
        #expect(readTextFile(path)?.hasPrefix("9") == true)
        #expect(readTextFile("\(path).3")?.hasPrefix("6") == true)
        #expect(text(sink.tail(1000)).split(separator: "\n").map { $0.prefix(1) } == ["6", "7", "8", "9"])
        // The tail starts with a whole line.
        #expect(text(sink.tail(100)).split(separator: "\n").map { $0.prefix(1) } == ["9"])
        #expect(text(sink.tail(0)) == "")
        // A line that begins exactly there is whole.
        #expect(text(sink.tail(120)).split(separator: "\n").map { $0.prefix(1) } == ["8", "9"])
    }

    private func text(_ excerpt: LogExcerpt) -> String {
        var text = ""
        while let piece = excerpt.next() { text += String(buffer: piece) }
        return text
    }

    private func setModified(_ path: String, _ seconds: Int) {
        let times = [timespec(tv_sec: seconds, tv_nsec: 0), timespec(tv_sec: seconds, tv_nsec: 500_000_000)]
        #expect(utimensat(AT_FDCWD, path, times, 0) == 0)
    }

    @Test func rotatedFilesThatAreNewerFollowTheCurrentOne() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/a.log"
        let sink = try RotatingLogSink(path: path, limit: 100, kept: 3)
        for number in 0..<8 { sink.write(ByteBuffer(string: String(repeating: "\(number)", count: 49) + "\n")) }
        for number in 1...3 { setModified("\(path).\(number)", 1_000 - number) }
        func line(_ digit: Int) -> String { String(repeating: "\(digit)", count: 49) + "\n" }
        func header(_ number: Int) -> String {
            "--- a.log.\(number) (100 bytes, modified 1970-01-01T00:16:3\(10 - number).500Z) ---\n"
        }
        func files(_ seconds: Int, _ nanoseconds: Int = 0, current: Int = 1_000, total: Int = 10_000) -> String {
            text(sink.files(after: timespec(tv_sec: seconds, tv_nsec: nanoseconds), current: current, total: total))
        }
        let current = line(6) + line(7)
        #expect(files(999, 500_000_000) == current)
        #expect(files(999) == current + header(1) + line(4) + line(5))
        #expect(files(998, 499_999_999) == current + header(1) + line(4) + line(5) + header(2) + line(2) + line(3))
        let two = current + header(1) + line(4) + line(5) + header(2) + line(2) + line(3)
        let all = two + header(3) + line(0) + line(1)
        #expect(files(0) == all)
        // The limits: exactly all, and a byte less, which costs the oldest line.
        #expect(files(0, total: 400) == all)
        func cut(_ most: Int) -> String { "--- cut: 50 bytes are left out; \(most) are sent at most ---\n" }
        #expect(files(0, total: 399) == two + header(3) + line(1) + cut(399))
        #expect(files(999, 500_000_000, current: 99) == line(7) + cut(10_000))
    }

    @Test func anExcerptIsOfTheFilesAsTheyWere() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/a.log"
        let sink = try RotatingLogSink(path: path, limit: 200_000, kept: 3)
        let first = String(repeating: "a", count: 150_000) + "\n"
        sink.write(ByteBuffer(string: first))
        let excerpt = sink.files(after: timespec(), current: 1 << 20, total: 1 << 20)
        let piece = try #require(excerpt.next())
        #expect(piece.readableBytes <= LogExcerpt.pieceBytes)
        for _ in 0..<6 { sink.write(ByteBuffer(string: String(repeating: "b", count: 150_000) + "\n")) }
        #expect(String(buffer: piece) + text(excerpt) == first)
    }

    @Test func timesAreReadAsRFC3339() {
        func read(_ text: String) -> [Int]? { timestamp(fromRFC3339: text).map { [$0.tv_sec, $0.tv_nsec] } }
        #expect(read("1970-01-01T00:00:00Z") == [0, 0])
        #expect(read("2026-01-31T12:00:00.5+02:00") == [1_769_853_600, 500_000_000])
        #expect(read("2026-01-31t10:00:00.123456789123z") == [1_769_853_600, 123_456_789])
        #expect(read("2024-02-29T00:00:00-00:30") == [1_709_166_600, 0])
        #expect(read("0000-01-01T00:00:00Z") != nil)
        for wrong in [
            "", "now", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31 12:00:00Z", "2026-02-29T12:00:00Z",
            "2026-13-01T12:00:00Z", "2026-01-00T12:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T12:60:00Z",
            "2026-01-31T12:00:60Z", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00+0200", "2026-01-31T12:00:00 02:00",
            "2026-01-31T12:00:00Zx", "+026-01-31T12:00:00Z", "1769853600", "2026-01-31T12:00:00+24:00",
            "２026-01-31T12:00:00Z",
        ] { #expect(read(wrong) == nil, "\(wrong)") }
        // Both ways.
        #expect(read(timestampText(seconds: 1_769_853_600, nanoseconds: 7_000_000)) == [1_769_853_600, 7_000_000])
    }

    @Test func aLinkInTheWayIsRefused() throws {
        let directory = try TemporaryDirectory()
        symlink("/etc/passwd", "\(directory.path)/a.log")
        #expect(throws: CoreError.self) { try RotatingLogSink(path: "\(directory.path)/a.log") }
    }

    @Test func controlsAreEscaped() {
        let sink = MemorySink(.human)
        let pipeline = LogPipeline(sinks: [sink])
        let logger = Logger(label: "x") { _ in AgentLogHandler(pipeline: pipeline, level: .info) }
        // U+009B is a terminal's CSI in one character; é is no control.
        logger.info("a\u{9B}31mb\u{7F}é", metadata: ["k": "\u{85}", "n": "é"])
        pipeline.flush(milliseconds: 10_000)
        #expect(sink.all.hasSuffix(" a\\u009b31mb\\u007fé k=\"\\u0085\" n=é\n"), "\(sink.all)")
    }

    /// Another user's file under the name of an old log stops no rotation and is not shown as ours.
    @Test func whatIsNotOursIsLeftOut() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/a.log"
        let sink = try RotatingLogSink(path: path, limit: 100, kept: 3)
        mkdir("\(path).1", 0o700)
        try OwnFile.replace("\(path).elsewhere", with: Array("not ours\n".utf8))
        symlink("\(path).elsewhere", "\(path).2")
        for number in 0..<4 { sink.write(ByteBuffer(string: String(repeating: "\(number)", count: 59) + "\n")) }
        #expect(text(sink.tail(1000)).split(separator: "\n").map { $0.prefix(1) } == ["2", "3"])
        #expect(readTextFile("\(path).3")?.hasPrefix("2") == true)
        #expect(readTextFile("\(path).elsewhere") == "not ours\n")
        // With no place at all the log stays within its limit.
        unlink("\(path).3")
        mkfifo("\(path).3", 0o600)
        for number in 4..<8 { sink.write(ByteBuffer(string: String(repeating: "\(number)", count: 59) + "\n")) }
        #expect(readTextFile(path)?.hasPrefix("7") == true)
        #expect((readFile(path)?.count ?? 0) <= 100)
    }

    @Test(.timeLimit(.minutes(1))) func aFIFOInTheWayIsRefused() throws {
        let directory = try TemporaryDirectory()
        mkfifo("\(directory.path)/a.log", 0o600)
        #expect(throws: CoreError(.pathOccupied, "")) { try RotatingLogSink(path: "\(directory.path)/a.log") }
    }
}
