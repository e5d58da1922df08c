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
        #expect(String(buffer: sink.tail(1000)).split(separator: "\n").map { $0.prefix(1) } == ["6", "7", "8", "9"])
        // The tail starts with a whole line.
        #expect(String(buffer: sink.tail(100)).split(separator: "\n").map { $0.prefix(1) } == ["9"])
        #expect(sink.tail(0).readableBytes == 0)
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
        #expect(String(buffer: sink.tail(1000)).split(separator: "\n").map { $0.prefix(1) } == ["2", "3"])
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
