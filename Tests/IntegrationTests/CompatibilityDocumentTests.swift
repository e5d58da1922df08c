import AgentCore
import AgentTestSupport
import Foundation
import Testing

/// docs/compatibility.md names for each line the tests that show it.
@Suite struct CompatibilityDocumentTests {
    @Test func everyLineIsShownByTestsThatThereAre() throws {
        let document = try #require(readTextFile("\(DevProcess.repository)/docs/compatibility.md"))
        let files = FileManager.default.enumerator(atPath: "\(DevProcess.repository)/Tests")
        let suites = Set((files?.compactMap { $0 as? String } ?? []).compactMap { $0.split(separator: "/").last })
        var lines = 0
        for line in document.split(separator: "\n") where line.hasPrefix("| ") && !line.hasPrefix("| |") {
            let cells = line.replacing("\\|", with: "").split(separator: "|", omittingEmptySubsequences: false)
                .map { $0.trimmingCharacters(in: .whitespaces) }
            try #require(cells.count == 6, "\(line)")
            #expect(["same", "more", "different", "not yet"].contains(cells[2]), "\(line)")
            let named = cells[4].matches(of: /`(\w+)`/).map { $0.output.1 }
            #expect(named.isEmpty == (cells[2] == "not yet"), "\(line)")
            for name in named { #expect(suites.contains("\(name).swift"), "\(name)") }
            lines += 1
        }
        #expect(lines > 40)
    }
}
