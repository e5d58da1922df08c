import AgentTestSupport
import Foundation
import Glibc
import Testing

/// Requests and WebSocket frames that were changed at random, against the built daemon: it answers or hangs
/// up, keeps nothing of them, and serves others meanwhile.
@Suite(.serialized, .blocking, .timeLimit(.minutes(15))) struct MutatedRequestTests {
    private static let upgrade = """
        GET /api/v0/git/watch?chat_id=0f0f0f0f-0f0f-0f0f-0f0f-0f0f0f0f0f0f HTTP/1.1\r\nHost: localhost\r
        Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n
        """
    /// Masked with zeros: a message in two fragments with a ping between them, a close with code 1000.
    private static let frames: [UInt8] =
        [0x01, 0x83, 0, 0, 0, 0] + Array(#"{"t"#.utf8) + [0x89, 0x81, 0, 0, 0, 0, 0x70]
        + [0x80, 0x91, 0, 0, 0, 0] + Array(#"ype":"refresh"}  "#.utf8) + [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]

    private static let start = #"{"command":"true","env":{"A":"b"},"workdir":"/tmp"}"#
    private static let valid: [[UInt8]] =
        [
            "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            "GET /api/v0/processes/list HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
            "GET /api/v0/processes/x/output?wait=false&offset=10&limit=20 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "POST /api/v0/processes/start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                + "Content-Length: \(start.utf8.count)\r\n\r\n\(start)",
            "POST /api/v0/processes/start HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                + "\(String(start.utf8.count, radix: 16))\r\n\(start)\r\n0\r\n\r\n",
            "POST /api/v0/processes/x/signal HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17\r\n\r\n{\"signal\":\"kill\"}",
            "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /debug/prometheus HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ].map { Array($0.utf8) } + [Array(upgrade.utf8) + frames]

    /// What parsers stumble over.
    private static let pieces: [[UInt8]] =
        [
            "\r\n", "\r", "\n", "\r\n\r\n", ":", " ", "\0", "\u{feff}", "%00", "%", "..", "//", "0", "-1",
            "99999999999999999999", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n",
            "Expect: 100-continue\r\n",
            "Host: x\r\n", "Upgrade: websocket\r\n", "{", "}", "\"", "\\u0000", "\\ud800", "[[[[[[[[", "1e999", "null",
        ].map { Array($0.utf8) } + [
            [0xff], [0xc3], [0x80], [0x7f], [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            [UInt8](repeating: 0x61, count: 9_000),
        ]

    private func mutated(using random: inout SeededGenerator) -> [UInt8] {
        var bytes = Self.valid.randomElement(using: &random) ?? []
        for _ in 0..<Int.random(in: 1...4, using: &random) {
            let place = Int.random(in: 0...bytes.count, using: &random)
            switch Int.random(in: 0..<6, using: &random) {
            case 0 where place < bytes.count: bytes[place] ^= 1 << UInt8.random(in: 0...7, using: &random)
            case 1 where place < bytes.count: bytes[place] = UInt8.random(in: .min ... .max, using: &random)
            case 2: bytes.removeSubrange(place..<min(bytes.count, place + Int.random(in: 1...20, using: &random)))
            case 3: bytes.insert(contentsOf: bytes[place...].prefix(40), at: place)
            case 4: bytes = Array(bytes[..<place]) + (Self.valid.randomElement(using: &random) ?? [])
            default: bytes.insert(contentsOf: Self.pieces.randomElement(using: &random) ?? [], at: place)
            }
        }
        return bytes
    }

    @Test func areAnsweredOrHungUpOn() async throws {
        var random = SeededGenerator("mutated requests")
        let daemon = try DaemonProcess()
        let seed = random.seed
        // What is open once a request was answered, without its connection.
        let before: Int
        do {
            let first = try daemon.connect()
            #expect(try first.request("GET", "/").status == 200)
            before = withExtendedLifetime(first) { ProcFS.descriptors(daemon.pid) - 1 }
        }
        for round in 0..<1_500 {
            let bytes = mutated(using: &random)
            func name() -> String { "TEST_SEED=\(seed), round \(round), \(Self.text(bytes))" }
            let connection = try #require(try? daemon.connect(timeout: 100), "before \(name())")
            var rest = bytes[...]
            while !rest.isEmpty {
                let size = Bool.random(using: &random) ? rest.count : Int.random(in: 1...rest.count, using: &random)
                // It may hang up before it has all of it.
                guard (try? connection.send(Data(rest.prefix(size)))) != nil else { break }
                rest = rest.dropFirst(size)
            }
            // Now and then without waiting for an answer.
            if round % 7 == 0 { continue }
            connection.closeSending()
            var answer = Data()
            do {
                while case let more = try connection.receive(), !more.isEmpty { answer += more }
            } catch {
                #expect(!"\(error)".hasSuffix("errno \(EAGAIN)"), "no end of \(name())")
            }
            if answer.isEmpty { continue }
            let status = Int(String(decoding: answer.dropFirst(9).prefix(3), as: UTF8.self)) ?? 0
            #expect(
                answer.starts(with: Data("HTTP/1.".utf8)) && (100..<600).contains(status) && status != 500,
                "\(Self.text([UInt8](answer.prefix(200)))) to \(name())")
            if round % 50 == 0 {
                // A connection of its own: the daemon closes one that rests for long.
                let other = try? daemon.connect().request("GET", "/").status
                #expect(other == 200, "after \(name())")
            }
        }
        let health = try? daemon.connect().request("GET", "/healthz").status
        #expect(health == 200, "TEST_SEED=\(seed)")
        try await eventually("nothing is kept, TEST_SEED=\(seed)") { ProcFS.descriptors(daemon.pid) <= before }
        #expect(try await daemon.stop() == 0, "TEST_SEED=\(seed)")
    }

    /// Every byte, so that it can be sent again.
    private static func text(_ bytes: [UInt8]) -> String {
        bytes.map { Unicode.Scalar($0).escaped(asASCII: true) }.joined()
    }
}
