import FoundationEssentials
import Testing

@testable import AgentProc

@Suite struct ProcessListValueTests {
    @Test func commandsAreCutAtCharacters() {
        let limit = ProcLimits.shownCommandBytes
        func many(_ text: String, _ count: Int) -> String { String(repeating: text, count: count) }
        for (program, text, isCut) in [
            (.shell("echo a"), "echo a", false),
            (.shell(String(repeating: "a", count: limit)), String(repeating: "a", count: limit), false),
            (.shell(String(repeating: "a", count: limit + 1)), String(repeating: "a", count: limit), true),
            (.shell("a" + many("é", limit)), "a" + many("é", limit / 2 - 1), true),
            (.argv(["a", "b c", ""]), "a b c ", false),
            (.argv(Array(repeating: "x", count: limit)), String(repeating: "x ", count: limit / 2), true),
            (.argv(["a", many("b", 3 * limit)]), "a " + many("b", limit - 2), true),
        ] as [(StartRequest.Program, String, Bool)] {
            let shown = StartRequest(program).displayCommand
            #expect(shown.text == text && shown.isCut == isCut)
        }
    }

    @Test func fingerprintsTellRequestsApart() {
        var other = StartRequest(.shell("true"), workdir: "/", environment: ["A": "1"])
        let one = StartRequest.Fingerprint(other)
        #expect(one == StartRequest.Fingerprint(other))
        other.environment["A"] = "2"
        #expect(one != StartRequest.Fingerprint(other))
        #expect(StartRequest.Fingerprint(StartRequest(.shell("a b"))) != .init(StartRequest(.argv(["a b"]))))
    }
}
