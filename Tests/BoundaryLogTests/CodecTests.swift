import AgentProto
import AgentTestSupport
import Foundation
import SwiftProtobuf
import Testing

@testable import BoundaryLog

@Suite struct CodecTests {
    struct Vectors: Decodable {
        struct Vector: Decodable {
            var description: String
            var hex: String?
            var first_64_hex: String?
            var length: Int?
            var decoded: [Message]?
            var server: String
        }
        struct Message: Decodable { var message: String }
        var vectors: [Vector]
    }

    static func vectors() throws -> [Vectors.Vector] {
        let path = #filePath.replacingOccurrences(of: "CodecTests.swift", with: "Vectors/boundary_frames.json")
        let file = try Data(contentsOf: URL(fileURLWithPath: path))
        return try JSONDecoder().decode(Vectors.self, from: file).vectors
    }

    /// What a connection did with all bytes, fed in pieces.
    struct Run: Equatable {
        var contents: [FrameContent?] = []
        var payloads: [[UInt8]] = []
        var violation: FrameCodec.Violation?
        var pending = 0
    }

    static func run(_ bytes: [UInt8], step: Int) -> Run {
        var codec = FrameCodec()
        var run = Run()
        for start in stride(from: 0, to: bytes.count, by: step) {
            do {
                try bytes[start..<min(start + step, bytes.count)].withUnsafeBytes { piece in
                    try codec.feed(piece) { tag, payload in
                        run.contents.append(try? BatchScanner.scan(tag, payload))
                        run.payloads.append(Array(payload))
                    }
                }
            } catch {
                run.violation = error as? FrameCodec.Violation
                break
            }
            #expect(codec.pending <= FrameCodec.headerBytes + BoundaryLimits.frameBytes)
        }
        run.pending = codec.pending
        return run
    }

    @Test func recordedFrames() throws {
        let vectors = try Self.vectors()
        #expect(vectors.count == 21)
        for vector in vectors {
            let bytes: [UInt8]
            if let hex = vector.hex {
                bytes = Bytes.fromHex(hex)
            } else {
                // The long one: 32764 'p's.
                bytes = Bytes.fromHex("010080001afcff01") + [UInt8](repeating: 0x70, count: 32_764)
                #expect(bytes.count == vector.length)
                #expect(Array(bytes.prefix(64)) == Bytes.fromHex(vector.first_64_hex ?? ""))
            }
            let whole = Self.run(bytes, step: bytes.count)
            for step in bytes.count > 1_000 ? [1_000, 32_771] : [1, 2, 3, 5, 7, 100] {
                #expect(Self.run(bytes, step: step) == whole, "\(vector.description) in pieces of \(step)")
            }
            let closes = vector.server.contains("connection closed")
            let skipped = vector.server.contains("frame skipped")
            let cut = vector.server.contains("ends with the connection")
            let comment = Comment(rawValue: vector.description)
            #expect((whole.violation != nil) == closes, comment)
            #expect((whole.pending > 0) == cut, comment)
            #expect(whole.contents.count == (vector.decoded?.count ?? (skipped ? 1 : 0)), comment)
            #expect(whole.contents.contains { $0 == nil } == skipped, comment)
            for (content, message) in zip(whole.contents, vector.decoded ?? []) {
                let variant = vector.server
                switch content {
                case .batch: #expect(variant.contains("forwarded") || variant == "both handled", comment)
                case .status(let channel, let batch):
                    #expect(message.message.hasSuffix("BoundaryMessage"), comment)
                    if vector.description.contains("5, 300") { #expect(channel == 5 && batch == 300) }
                    if vector.description.contains("negative") { #expect(channel == -1 && batch == -2) }
                case .empty: #expect(variant.contains("warning"), comment)
                case nil: Issue.record(comment)
                }
            }
        }
    }

    @Test(arguments: [32_767, 32_768, 32_769]) func lengthLimit(length: Int) {
        for tag: UInt8 in [1, 2] {
            let bytes = [tag, UInt8(length >> 16), UInt8(length >> 8 & 0xFF), UInt8(length & 0xFF)]
            let frame = bytes + [UInt8](repeating: 0, count: length)
            let run = Self.run(frame, step: 10_000)
            if length > BoundaryLimits.frameBytes {
                #expect(run.violation == .tooLarge(length) && run.contents.isEmpty)
            } else {
                #expect(run.violation == nil && run.contents.count == 1)
            }
        }
    }

    @Test func nothingIsTakenAfterAViolation() {
        var codec = FrameCodec()
        for bytes: [UInt8] in [[7], [1, 0, 0, 0]] {
            #expect(throws: FrameCodec.Violation.unknownTag(7)) {
                try bytes.withUnsafeBytes { piece in
                    try codec.feed(piece) { _, _ in Issue.record("a frame") }
                }
            }
        }
        #expect(codec.pending == 0)
    }

    @Test func manyVariantsInOneEnvelope() throws {
        // Quadratic work here would let one writer stop the others.
        let payload = Array(repeating: [0x0A, 0x00] as [UInt8], count: BoundaryLimits.frameBytes / 2).flatMap { $0 }
        guard
            case .batch(let parts, let summary) = try payload.withUnsafeBytes({ try BatchScanner.scan(.envelope, $0) })
        else {
            Issue.record("no batch")
            return
        }
        #expect(parts.count == BoundaryLimits.frameBytes / 2 && summary.logs == 0)
    }

    @Test func sequenceNumbers() {
        func run(_ numbers: UInt64...) -> SequenceRun {
            var run = SequenceRun()
            for number in numbers { run.note(number) }
            return run
        }
        var tracker = SequenceTracker(capacity: 4)
        #expect(tracker.note("a", run(7, 8, 9)) == 0, "a session may be met in its middle")
        #expect(tracker.note("a", run(10)) == 0)
        #expect(tracker.note("a", run(12, 13)) == 1)
        #expect(tracker.note("a", run(14, 16, 20)) == 2)
        #expect(tracker.note("a", run(22, 24)) == 2)
        #expect(tracker.note("a", run(3, 4)) == 0, "what was sent again is no hole")
        #expect(tracker.note("a", run(25)) == 0)
        #expect(tracker.note("", run(1)) == 0)
        #expect(tracker.note("", run(9)) == 0)
        #expect(tracker.note("old", run(0, 0, 0)) == 0)
        #expect(tracker.note("old", run(0, 0)) == 0)
        #expect(tracker.note("max", run(.max)) == 0)
        #expect(tracker.note("max", run(.max)) == 1, "the number after the last is 0, and numbers don't begin again")
        #expect(tracker.note("none", SequenceRun()) == 0)
        #expect(tracker.count == 3)
    }

    @Test(arguments: [7, 8, 9]) func rememberedSessions(count: Int) {
        var tracker = SequenceTracker(capacity: 8)
        var run = SequenceRun()
        run.note(0)
        for number in 0..<count { _ = tracker.note("s\(number)", run) }
        #expect(tracker.count == (count > 8 ? 4 : count))
        var later = SequenceRun()
        later.note(5)
        #expect(tracker.note("s\(count - 1)", later) == 1, "the newest is remembered")
        #expect(tracker.note("s0", later) == (count > 8 ? 0 : 1))
    }
}

/// The scanner against SwiftProtobuf's decoder: it must take what that takes, refuse what that
/// refuses, and find the same.
@Suite struct ScannerTests {
    @Test func agreesWithTheDecoder() async throws {
        var random = SeededGenerator("scanner against decoder")
        var accepted = 0
        for round in 0..<30_000 {
            // Other tests wait for this thread.
            if round % 100 == 0 { await Task.yield() }
            let tag: FrameCodec.Tag = round % 2 == 0 ? .request : .envelope
            var bytes = try Self.sample(tag, &random)
            if round % 3 != 0 { Self.damage(&bytes, &random) }
            if Differential.agree(tag, bytes) == .accepted { accepted += 1 }
        }
        #expect(accepted > 8_000 && accepted < 29_000, "both ways are taken")
    }

    @Test func agreesWithTheDecoderOnNoise() async {
        var random = SeededGenerator("scanner on noise")
        for round in 0..<30_000 {
            if round % 100 == 0 { await Task.yield() }
            // Few values, most of them tags and lengths that mean something.
            let values: [UInt8] = [
                0x0A, 0x12, 0x1A, 0x20, 0x08, 0x10, 0, 1, 2, 3, 4, 0x0B, 0x0C, 0x13, 0x14, 0x80, 0xFF, 0x0D, 0x09, 0xC3,
                0x28,
            ]
            let bytes = (0..<Int.random(in: 0...24, using: &random)).map { _ in
                values.randomElement(using: &random) ?? 0
            }
            _ = Differential.agree(round % 2 == 0 ? .request : .envelope, bytes)
        }
    }

    @Test(arguments: [95, 96, 97, 98, 99, 100, 101]) func depthOfGroups(depth: Int) {
        // Groups inside groups, alone, in a log and in an envelope's log.
        let groups = [UInt8](repeating: 0x7B, count: depth) + [UInt8](repeating: 0x7C, count: depth)
        func inside(_ bytes: [UInt8]) -> [UInt8] {
            [0x0A, UInt8(bytes.count & 0x7F) | 0x80, UInt8(bytes.count >> 7)] + bytes
        }
        for bytes in [groups, inside(groups), inside(inside(groups))] {
            _ = Differential.agree(.request, bytes)
            _ = Differential.agree(.envelope, bytes)
        }
        #expect(Differential.agree(.request, groups) == (depth <= 99 ? .accepted : .refused))
    }

    @Test func oddEncodings() {
        for hex in [
            "",  // nothing
            "8a0000", "8a808000", "8a80808000", "8a8080800000", "8a80808010", "8a8080801f",  // long tags
            "0a80808080808080808000", "0a8080808080808080808000", "0affffffffffffffffff01",  // long lengths
            "220480808000", "2080808080808080808001", "20ffffffffffffffffff7f", "2080808080808080808080",
            "07", "06", "00", "04", "0c", "0b0c", "0b13140c", "0b8b80808080808080000c", "fbffffff0f", "fcffffff0f",
            "0a03220180", "0a0620ffffffff0f", "0a021200", "0a0412022000", "1202c3a9", "1202c328", "1203eda080",
            "1204f48fbfbf", "1204f4908080", "1202c080", "120b6162636465666768c3a978", "0d01020304", "0d010203",
            "090102030405060708", "0901020304050607", "1001", "0801", "0a020801", "0a0308ff", "12ffffffff0f",
        ] {
            _ = Differential.agree(.request, Bytes.fromHex(hex))
            _ = Differential.agree(.envelope, Bytes.fromHex(hex))
        }
    }

    private static func sample(_ tag: FrameCodec.Tag, _ random: inout SeededGenerator) throws -> [UInt8] {
        var request = Coder_Agent_V2_ReportBoundaryLogsRequest()
        for _ in 0..<Int.random(in: 0...3, using: &random) {
            var log = Coder_Agent_V2_BoundaryLog()
            log.allowed = Bool.random(using: &random)
            log.sequenceNumber =
                Bool.random(using: &random)
                ? .random(in: 0...9, using: &random) : .random(in: 0...(.max), using: &random)
            if Bool.random(using: &random) {
                log.time = .init(seconds: .random(in: -9...999_999_999, using: &random), nanos: 5)
            }
            if Bool.random(using: &random) {
                log.httpRequest.method = "GET"
                log.httpRequest.url =
                    ["https://example.com/", "https://exämple.com/日本", "", "x"].randomElement(using: &random) ?? ""
                log.httpRequest.matchedRule = "domain=*"
            }
            request.logs.append(log)
        }
        if Bool.random(using: &random) { request.sessionID = "s\(Int.random(in: 0...3, using: &random))é" }
        if Bool.random(using: &random) { request.confinedProcessName = "claude" }
        guard tag == .envelope else { return try request.serializedBytes() }
        // Variants one after the other, in any number and order.
        var bytes: [UInt8] = []
        for _ in 0..<Int.random(in: 0...3, using: &random) {
            var message = Coder_Boundarylogproxy_Codec_V1_BoundaryMessage()
            if Int.random(in: 0..<3, using: &random) > 0 {
                message.logs = request
            } else {
                message.status.droppedBatchFull = .random(in: -3...3, using: &random)
                if Bool.random(using: &random) {
                    message.status.droppedChannelFull = .random(in: -3...3, using: &random)
                }
            }
            bytes += try message.serializedBytes() as [UInt8]
        }
        return bytes
    }

    private static func damage(_ bytes: inout [UInt8], _ random: inout SeededGenerator) {
        for _ in 0..<Int.random(in: 1...3, using: &random) where !bytes.isEmpty {
            let at = Int.random(in: 0..<bytes.count, using: &random)
            switch Int.random(in: 0..<5, using: &random) {
            case 0: bytes[at] = .random(in: 0...255, using: &random)
            case 1: bytes[at] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            case 2: bytes.remove(at: at)
            case 3: bytes.insert(.random(in: 0...255, using: &random), at: at)
            default: bytes.removeLast(bytes.count - at)
            }
        }
    }
}

enum Differential {
    enum Verdict { case accepted, refused }

    static func agree(_ tag: FrameCodec.Tag, _ bytes: [UInt8]) -> Verdict {
        let content = bytes.withUnsafeBytes { try? BatchScanner.scan(tag, $0) }
        let comment = Comment(rawValue: "tag \(tag) of \(Bytes.hex(bytes))")
        guard let expected = decode(tag, bytes) else {
            #expect(content == nil, comment)
            return .refused
        }
        guard let content else {
            Issue.record("refused \(comment)")
            return .refused
        }
        switch (content, expected) {
        case (.empty, .empty): break
        case (.status(let a, let b), .status(let c, let d)): #expect(a == c && b == d, comment)
        case (.batch(let parts, let summary), .request(let request)):
            #expect(summary.logs == request.logs.count, comment)
            #expect(String(decoding: bytes[summary.session], as: UTF8.self) == request.sessionID, comment)
            var run = SequenceRun()
            for log in request.logs { run.note(log.sequenceNumber) }
            #expect(summary.sequence == run, comment)
            let joined = parts.flatMap { bytes[$0] }
            #expect((try? Coder_Agent_V2_ReportBoundaryLogsRequest(serializedBytes: joined)) == request, comment)
        default: Issue.record("\(content) for \(comment)")
        }
        return .accepted
    }

    enum Expected {
        case request(Coder_Agent_V2_ReportBoundaryLogsRequest)
        case status(Int64, Int64)
        case empty
    }

    static func decode(_ tag: FrameCodec.Tag, _ bytes: [UInt8]) -> Expected? {
        if tag == .request {
            return (try? Coder_Agent_V2_ReportBoundaryLogsRequest(serializedBytes: bytes)).map { .request($0) }
        }
        guard let message = try? Coder_Boundarylogproxy_Codec_V1_BoundaryMessage(serializedBytes: bytes) else {
            return nil
        }
        return switch message.msg {
        case .logs(let request): .request(request)
        case .status(let status): .status(status.droppedChannelFull, status.droppedBatchFull)
        case nil: .empty
        }
    }
}

enum Bytes {
    static func fromHex(_ hex: String) -> [UInt8] {
        let digits = Array(hex.utf8).map { $0 < 0x3A ? $0 - 0x30 : $0 - 0x57 }
        return stride(from: 0, to: digits.count - 1, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }

    static func hex(_ bytes: [UInt8]) -> String { bytes.map { String(format: "%02x", $0) }.joined() }
}
