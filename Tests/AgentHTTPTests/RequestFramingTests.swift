import AgentTestSupport
import Foundation
import Testing

@testable import AgentHTTP

@Suite struct RequestFramingTests {
    /// How the bytes of a connection were split.
    private struct Outcome: Equatable {
        /// What the decoder got.
        var passed = ""
        /// What it had got when a header seemed to end.
        var headers: [Int] = []
        var problem: HTTPProblem?
    }

    private let limit = 1000

    /// - Parameters:
    ///   - text: what comes; a header that contains `chunked` announces chunks, `length N` a length, others
    ///     nothing.
    ///   - pieces: sizes of the reads, used again and again.
    private func follow(_ text: String, pieces: [Int] = [.max], isLast: Bool = false) -> Outcome {
        var framing = RequestFraming()
        var outcome = Outcome()
        var rest = Array(text.utf8)[...]
        for index in 0... {
            var piece = rest.prefix(pieces[index % pieces.count])
            guard !piece.isEmpty else { return outcome }
            rest = rest.dropFirst(piece.count)
            while !piece.isEmpty {
                do {
                    let (count, endsHeader) = try Array(piece).withUnsafeBytes { try framing.take($0) }
                    guard count > 0 else { return outcome }
                    outcome.passed += String(decoding: piece.prefix(count), as: UTF8.self)
                    piece = piece.dropFirst(count)
                    guard endsHeader, let header = newHeader(outcome) else { continue }
                    outcome.headers.append(outcome.passed.utf8.count)
                    framing.begin(body(header), isLast: isLast)
                } catch {
                    outcome.problem = error as? HTTPProblem
                    return outcome
                }
            }
        }
        return outcome
    }

    /// As the decoder, which gives a head for a header and none for blank lines.
    private func newHeader(_ outcome: Outcome) -> String? {
        let new = outcome.passed.utf8.dropFirst(outcome.headers.last ?? 0)
        let text = String(decoding: new, as: UTF8.self)
        return text.range(of: "GET", options: .backwards).map { String(text[$0.lowerBound...]) }
    }

    private func body(_ header: String) -> RequestFraming.Body {
        if header.contains("chunked") { return .chunked(limit: limit) }
        return .length(header.firstRange(of: "length ").flatMap { Int(header[$0.upperBound...].prefix(2)) } ?? 0)
    }

    private func chunked(_ body: String) -> Outcome { follow("GET\r\nchunked\r\n\r\n\(body)") }

    @Test func headersAreFoundBetweenBodies() {
        // Blank lines before a request are no header; a body and trailers may look like one.
        let parts = [
            ("GET\r\n\r\n", true), ("\r\n\r\nGET\r\na: b\r\n\r\n", true), ("GET\r\nlength 11\r\n\r\n", true),
            ("GET\r\n\r\nGET\r", false), ("GET\r\nchunked\r\n\r\n", true),
            ("5;a=b\r\nGET\r\n\r\n0\r\nTrailer: x\r\n\r\n", false), ("GET\r\n\r\n", true),
        ]
        var (text, ends) = ("", [Int]())
        for (part, isHeader) in parts {
            text += part
            if isHeader { ends.append(text.utf8.count) }
        }
        let whole = follow(text)
        #expect(whole == Outcome(passed: text, headers: ends))
        for size in 1...text.utf8.count { #expect(follow(text, pieces: [size]) == whole, "reads of \(size)") }
    }

    @Test func chunkExtensionsAtBelowAndAbove() {
        let most = HTTPLimits.chunkExtensionBytes
        func extended(_ bytes: Int) -> Outcome {
            chunked("1;" + String(repeating: "x", count: bytes - 1) + "\r\na\r\n0\r\n\r\n")
        }
        #expect(extended(most - 1).problem == nil)
        #expect(extended(most).problem == nil)
        #expect(extended(most + 1).problem == .chunkExtensionsTooLarge)
        // All of a body together, and anew for each body.
        let half = "1;" + String(repeating: "x", count: most / 2 - 1) + "\r\na\r\n"
        #expect(chunked("\(half)\(half)0\r\n\r\n").problem == nil)
        #expect(chunked("\(half)\(half)0;\r\n\r\n").problem == .chunkExtensionsTooLarge)
        let twice = "GET\r\nchunked\r\n\r\n\(half)\(half)0\r\n\r\n"
        #expect(follow(twice + twice).problem == nil)
        #expect(follow(twice + twice, pieces: [7, 1, 300]).problem == nil)
    }

    @Test(arguments: [
        ("3e7", nil), ("3e8", nil), ("3E8", nil), ("00000000000003e8", nil), ("3e9", 413), ("100000000", 413),
        ("7fffffffffffffff", 413), ("8000000000000000", 400), ("ffffffffffffffff", 400), ("10000000000000000", 400),
        ("000000000000003e8", 400), ("fffffffffffffffffffffffffffffffff", 400),
    ])
    func chunkSizes(size: String, status: Int?) {
        #expect(chunked("\(size)\r\n").problem?.status.code == status, "\(size)")
        // At the latest with the first byte behind it; the rest of the chunk is not waited for.
        #expect(chunked("\(size);").problem?.status.code == status, "\(size)")
    }

    @Test func chunksTogetherAtBelowAndAbove() {
        func chunks(_ sizes: [Int]) -> Outcome {
            chunked(sizes.map { "\(String($0, radix: 16))\r\n\(String(repeating: "a", count: $0))\r\n" }.joined())
        }
        #expect(chunks([400, 599]).problem == nil)
        #expect(chunks([400, 600]).problem == nil)
        #expect(chunks([400, 601]).problem == .tooLarge(limit: limit))
    }

    @Test func nothingPassesBehindAProblem() throws {
        var framing = RequestFraming()
        framing.begin(.chunked(limit: 10), isLast: false)
        func take(_ text: String) throws -> Int { try Array(text.utf8).withUnsafeBytes { try framing.take($0).count } }
        #expect(throws: HTTPProblem.self) { try take("b\r\n") }
        #expect(try take("GET / HTTP/1.1\r\n\r\n") == 0)
    }

    @Test func anotherProtocolIsNotLookedAt() {
        let frames = "ffffffffffffffffffff\r\n\r\nGET\r\n\r\n"
        let upgrade = follow("GET\r\n\r\n\(frames)", isLast: true)
        #expect(upgrade == Outcome(passed: "GET\r\n\r\n\(frames)", headers: [7]))
        let withBody = follow("GET\r\nchunked\r\n\r\n1\r\na\r\n0\r\n\r\n\(frames)", isLast: true)
        #expect(withBody.problem == nil && withBody.headers == [16])
    }

    /// However it arrives, the decision is the same.
    @Test func randomReads() {
        var random = SeededGenerator("randomReads")
        let parts = [
            "GET\r\nchunked\r\n\r\n", "GET\r\n\r\n", "3\r\nabc\r\n", "0\r\n\r\n", "fff\r\n", "a;b=c\r\n0123456789\r\n",
        ]
        for _ in 0..<500 {
            let count = Int.random(in: 1...6, using: &random)
            let text = (0..<count).map { _ in parts.randomElement(using: &random) ?? "" }.joined()
            let pieces = (0..<5).map { _ in Int.random(in: 1...9, using: &random) }
            let (whole, split) = (follow(text), follow(text, pieces: pieces))
            #expect(whole.problem == split.problem && whole.headers == split.headers, "\(text) \(pieces)")
        }
    }
}
