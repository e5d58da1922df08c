import AgentTestSupport
import Foundation
import Testing

@testable import AgentCore

/// Documents name the metrics that there are.
@Suite(.blocking) struct MetricDocumentTests {
    /// All names in a text, without what a histogram's series have behind theirs.
    private static func names(in text: String) -> Set<String> {
        Set(
            text.matches(of: /\b(agent|process)_[a-z_]+/).map { match in
                String(match.output.0).replacing(/_(bucket|sum|count)$/, with: "")
            })
    }

    @Test func documentsNameEveryMetricAndNoOther() async throws {
        let dev = try await DevProcess()
        // What the node counts is there once it is.
        try await eventually("the tailnet node") { try dev.connect().request("GET", "/api/v0/tailnet").status == 200 }
        let exposition = try dev.connect().request("GET", "/debug/prometheus").text
        let types = exposition.split(separator: "\n").filter { $0.hasPrefix("# TYPE ") }
        let served = Set(types.map { String($0.split(separator: " ")[2]) })
        try #require(served.count > 50)
        func document(_ name: String) throws -> String {
            try #require(readTextFile("\(DevProcess.repository)/docs/\(name)"))
        }
        let operations = try document("operations.md")
        let rows = operations.split(separator: "\n").filter {
            $0.hasPrefix("| `") && $0.wholeMatch(of: /\| `(agent|process|coderd_agentstats)_.*/) != nil
        }
        let table = Set(rows.map { String($0.split(separator: "`")[1]) })
        #expect(served.subtracting(table) == [], "not in docs/operations.md")
        #expect(table.subtracting(served) == [], "not there any more")
        let alerts = operations.components(separatedBy: "## Alerts worth having").last ?? ""
        let dashboard = try document("grafana-dashboard.json")
        for (name, text) in [("alerts", alerts), ("dashboard", dashboard)] {
            let named = Self.names(in: text)
            #expect(named.count > 5)
            #expect(named.subtracting(served) == [], "\(name)")
        }
        #expect((try JSONSerialization.jsonObject(with: Data(dashboard.utf8)) as? [String: Any])?["panels"] != nil)
        #expect(dev.stop() == 0)
    }
}
