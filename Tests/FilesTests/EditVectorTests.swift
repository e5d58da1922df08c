import AgentCore
import AgentTestSupport
import Foundation
import Testing

@testable import Files

/// The edits that were recorded from the reference.
@Suite(.timeLimit(.minutes(10)), .blocking) struct EditVectorTests {
    struct Vectors: Decodable {
        struct Edit: Decodable {
            var search: String
            var replace: String
            var replace_all: Bool?
        }

        struct Answer: Decodable {
            var status: Int
            var result: String?
            var message: String?
        }

        struct Case: Decodable {
            var name: String
            var content: String?
            var content_hex: String?
            var edits: [Edit]
            var status: Int
            var result: String?
            var result_hex: String?
            var diff: String?
            var message: String?
            /// What is right where the reference isn't.
            var ours: Answer?

            var before: [UInt8] { content_hex.map(bytes) ?? Array((content ?? "").utf8) }
            var after: [UInt8]? {
                if let ours { return ours.result.map { Array($0.utf8) } }
                return result_hex.map(bytes) ?? result.map { Array($0.utf8) }
            }
            var problem: String? { ours.map(\.message) ?? message }

            private func bytes(_ hex: String) -> [UInt8] {
                let digits = hex.map { UInt8($0.hexDigitValue ?? 0) }
                return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
            }
        }

        var cases: [Case]

        static func cases() throws -> [Case] {
            let path = #filePath.replacingOccurrences(of: "EditVectorTests.swift", with: "Vectors/edit_files.json")
            let json = try Data(contentsOf: URL(filePath: path))
            return try JSONDecoder().decode(Vectors.self, from: json).cases
        }
    }

    @Test func everyRecordedEditHasItsResult() throws {
        let cases = try Vectors.cases()
        #expect(cases.count == 379)
        for vector in cases { try check(vector) }
    }

    private func check(_ vector: Vectors.Case) throws {
        let edits = vector.edits.map {
            FileEdit(.replace(search: $0.search, replace: $0.replace, all: $0.replace_all ?? false))
        }
        let change = Self.ours[vector.name]
        let outcome: EditOutcome
        do throws(EditFailure) {
            outcome = try EditEngine.apply(edits, to: vector.before)
        } catch {
            let expected = change == nil ? vector.problem : "edit $ROOT/f.txt: \(EditFailure.untranslatable.text)"
            // Strings are equal when they only look so: compared by bytes.
            #expect(Array("edit $ROOT/f.txt: \(error.text)".utf8) == Array((expected ?? "").utf8), "\(vector.name)")
            #expect(change?.result == nil, "\(vector.name)")
            return
        }
        let after = change == nil ? vector.after : change?.result.map { Array($0.utf8) }
        #expect(outcome.bytes == after, "\(vector.name): \(String(decoding: outcome.bytes, as: UTF8.self))")
        #expect(outcome.matches.count == edits.count, "\(vector.name)")
        let diff = UnifiedDiff.text(
            old: vector.before, new: outcome.bytes, oldName: "$ROOT/f.txt", newName: "$ROOT/f.txt")
        var patch = UnifiedPatch(diff)
        #expect(try patch.applied(to: vector.before) == outcome.bytes, "\(vector.name)")
        // Another one is right if it is as short.
        guard vector.ours == nil, change == nil, let recorded = vector.diff,
            Array(String(decoding: diff, as: UTF8.self).utf8) != Array(recorded.utf8)
        else { return }
        let shown = recorded.split(separator: "\n", omittingEmptySubsequences: false).dropFirst(2)
        #expect(patch.changed == shown.filter { $0.hasPrefix("+") || $0.hasPrefix("-") }.count, "\(vector.name)")
    }
}
