import AgentTestSupport
import Testing

@testable import AgentCore

@Suite struct ServerSentEventTests {
    private typealias Event = ServerSentEventReader.Event

    private func read(_ text: String, limit: Int = 1 << 16, step: Int = .max) throws -> [Event] {
        var reader = ServerSentEventReader(limit: limit)
        return try read(text, &reader, step: step)
    }

    private func read(_ text: String, _ reader: inout ServerSentEventReader, step: Int = .max) throws -> [Event] {
        var (rest, events) = (Array(text.utf8)[...], [Event]())
        while !rest.isEmpty {
            events += try reader.read(Array(rest.prefix(step)))
            rest = rest.dropFirst(step)
        }
        return events
    }

    /// Comments, fields without a colon, the one space after it, unknown fields, all three ends of a line, events without
    /// data, and one that the end of the stream cuts.
    @Test func theRuleOfTheStandard() throws {
        let text =
            "\u{FEFF}: comment\n\ndata: a\ndata:b\ndata:  c\n\n"
            + "event: x\r\ndata: {}\r\n\r\nevent: y\rdata\r\rid: 1\nretry: 5\nunknown\n\nevent: z\n\ndata: last\n\ndata: cut"
        let expected: [Event] = [
            .init(data: "a\nb\n c"), .init(name: "x", data: "{}"), .init(name: "y", data: ""),
            .init(data: "last", id: "1"),
        ]
        for step in [1, 2, 3, 10, .max] { #expect(try read(text, step: step) == expected) }
    }

    /// What the end of a line is does not change with the pieces in which it comes.
    @Test func linesEndWithEither() throws {
        var random = SeededGenerator("linesEndWithEither")
        for _ in 0..<200 {
            let lines = ["data: 1", "data: 2", "", "event: e", ":", "data", "data:", "", "", "data: é", ""]
            let ends = lines.map { _ in ["\n", "\r", "\r\n"].randomElement(using: &random) ?? "\n" }
            // An empty line after CR must not begin with LF: that would be the same end of line.
            let text = zip(lines, ends).reduce("") { text, line in
                text + (text.last == "\r" && line.0.isEmpty && line.1 == "\n" ? "\r" : line.0 + line.1)
            }
            let step = Int.random(in: 1...9, using: &random)
            let expected: [Event] = [.init(data: "1\n2"), .init(name: "e", data: "\n"), .init(data: "é")]
            #expect(try read(text, step: step) == expected, "\(text.debugDescription) by \(step)")
        }
    }

    @Test func theByteOrderMarkIsOneAtTheStartAlone() throws {
        #expect(try read("\u{FEFF}\u{FEFF}data: a\n\ndata: b\n\n\u{FEFF}data: c\n\n") == [.init(data: "b")])
    }

    @Test func idsStayAndRetriesAreNumbers() throws {
        var reader = ServerSentEventReader(limit: 100)
        #expect(
            try read("id: a\ndata: 1\n\ndata: 2\n\nid: b\0c\ndata: 3\n\nid\ndata: 4\n\n", &reader).map(\.id)
                == ["a", "a", "a", ""])
        #expect(reader.retry == nil)
        for (text, retry) in [("retry: 20\n", 20), ("retry: +3\n", 20), ("retry: 3s\n", 20), ("retry\n", 20)] {
            #expect(try read(text, &reader).isEmpty)
            #expect(reader.retry == .milliseconds(retry), "\(text)")
        }
    }

    @Test func eventsAtBelowAndAboveTheLimit() throws {
        let limit = 1_000
        for step in [7, .max] {
            for (size, fits) in [(limit - 7, true), (limit - 6, true), (limit - 5, false)] {
                let line = "data: " + String(repeating: "x", count: size)
                if fits {
                    #expect(try read(line + "\n\n", limit: limit, step: step).count == 1)
                } else {
                    #expect(throws: CoreError(.invalid, "")) { try read(line, limit: limit, step: step) }
                }
            }
            let lines = String(repeating: "data: \(String(repeating: "x", count: 10))\n", count: limit / 10)
            #expect(throws: CoreError(.invalid, "")) { try read(lines, limit: limit, step: step) }
        }
    }
}
