import AgentTestSupport
import Foundation
import Testing

@testable import GitWatch

/// What git itself stores of generated files is the measure.
@Suite(.timeLimit(.minutes(10))) struct LineEndingTests {
    private static let texts = ["", "text", "-text", "text=auto", "text=input", "text=other"]
    private static let crlfs = ["", "crlf", "-crlf", "crlf=input", "crlf=other"]
    private static let eols = ["", "eol=lf", "eol=crlf", "eol=other"]

    private static func attribute(_ text: String) -> LineEndings.Attribute {
        if text.isEmpty { return .unspecified }
        if text.hasPrefix("-") { return .unset }
        guard let sign = text.firstIndex(of: "=") else { return .set }
        return .value(String(text[text.index(after: sign)...]))
    }

    private struct File {
        var indexed: [UInt8]?
        var content: [UInt8]
        var text: String
        var crlf: String
        var eol: String

        init(_ random: inout SeededGenerator) {
            indexed = Bool.random(using: &random) ? Self.bytes(&random) : nil
            content = Self.bytes(&random)
            text = LineEndingTests.texts.randomElement(using: &random) ?? ""
            crlf = LineEndingTests.crlfs.randomElement(using: &random) ?? ""
            eol = LineEndingTests.eols.randomElement(using: &random) ?? ""
        }

        /// Lines of text with few of the bytes that decide, around the numbers at which they do.
        private static func bytes(_ random: inout SeededGenerator) -> [UInt8] {
            let printable = [0, 3, 126, 127, 128, 129, 255, 256, 400].randomElement(using: &random) ?? 0
            var bytes = [UInt8](repeating: UInt8(ascii: "x"), count: printable)
            func insert(_ some: [UInt8], _ most: Int) {
                for _ in 0..<Int.random(in: 0...most, using: &random) {
                    bytes.insert(contentsOf: some, at: Int.random(in: 0...bytes.count, using: &random))
                }
            }
            if Bool.random(using: &random) { insert([10], 3) }
            if Bool.random(using: &random) { insert([13, 10], 3) }
            switch Int.random(in: 0..<8, using: &random) {
            case 0: insert([13], 1)
            case 1: insert([0], 1)
            case 2: insert([UInt8.random(in: 1...31, using: &random)], 4)
            case 3: insert([127], 3)
            case 4: insert([UInt8.random(in: 128...255, using: &random)], 3)
            case 5: bytes.append(26)
            case 6: insert([[8, 9, 12, 27, 26, 11].randomElement(using: &random) ?? 8], 4)
            default: break
            }
            if Int.random(in: 0..<6, using: &random) == 0 { bytes.append(13) }
            return bytes
        }
    }

    @Test(arguments: ["false", "true", "input"]) func whatGitStores(autocrlf: String) throws {
        let directory = try TemporaryDirectory()
        let (root, expected) = ("\(directory.path)/r", "\(directory.path)/e")
        func git(_ arguments: String...) throws -> String {
            let result = try CommandResult.of(
                ["git", "-C", root, "-c", "core.safecrlf=false", "-c", "core.autocrlf=\(autocrlf)"] + arguments)
            try #require(result.code == 0, "\(arguments.first ?? ""): \(result.errors.prefix(400))")
            return result.output
        }
        for path in [root, expected] { mkdir(path, 0o755) }
        var random = SeededGenerator("line endings \(autocrlf)")
        let files = (0..<600).map { _ in File(&random) }
        func write(_ bytes: [UInt8], _ path: String) throws { try Data(bytes).write(to: URL(filePath: path)) }
        _ = try git("init", "-q")
        // As they are, whatever the configuration says.
        try "* -text\n".write(toFile: "\(root)/.gitattributes", atomically: false, encoding: .utf8)
        for (number, file) in files.enumerated() {
            if let indexed = file.indexed { try write(indexed, "\(root)/f\(number)") }
        }
        _ = try git("add", ".")
        let lines = files.enumerated().map { number, file in "f\(number) \(file.text) \(file.crlf) \(file.eol)\n" }
        try lines.joined().write(toFile: "\(root)/.gitattributes", atomically: false, encoding: .utf8)
        for (number, file) in files.enumerated() {
            // A new file, so that git looks at it, even if it is the same.
            unlink("\(root)/f\(number)")
            try write(file.content, "\(root)/f\(number)")
            let action = LineEndings.action(
                text: Self.attribute(file.text), crlf: Self.attribute(file.crlf), eol: Self.attribute(file.eol),
                autocrlf: autocrlf != "false")
            try write(LineEndings.normalized(file.content, action) { file.indexed }, "\(expected)/f\(number)")
        }
        _ = try git("add", ".")
        var stored: [String: String] = [:]
        for line in try git("ls-files", "-s").split(separator: "\n") {
            let words = line.split(whereSeparator: { $0 == " " || $0 == "\t" })
            stored[String(words[3])] = String(words[1])
        }
        let names = files.indices.map { "f\($0)" }
        let hashes = try CommandResult.of(
            ["git", "hash-object", "--no-filters"] + names.map { "\(expected)/\($0)" }
        ).output.split(separator: "\n")
        try #require(hashes.count == files.count)
        for (number, hash) in hashes.enumerated() {
            let file = files[number]
            #expect(
                stored["f\(number)"] == String(hash),
                "\(file.text) \(file.crlf) \(file.eol), \(file.content.suffix(40)), in the index \(file.indexed?.suffix(40) ?? [])"
            )
        }
    }
}
