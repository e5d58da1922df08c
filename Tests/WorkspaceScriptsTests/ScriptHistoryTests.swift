import AgentProto
import Foundation
import Testing

@testable import WorkspaceScripts

@Suite struct ScriptHistoryTests {
    private func id(_ byte: UInt8) -> Data { Data(repeating: byte, count: 16) }

    private func timing(_ id: Data, exitCode: Int32) -> Coder_Agent_V2_Timing {
        .with {
            $0.scriptID = id
            $0.exitCode = exitCode
        }
    }

    @Test func twentyRunsAreKeptNewestFirst() {
        let history = ScriptHistory()
        for code in 0..<Int32(ScriptHistory.runsKept) { history.ended(timing(id(1), exitCode: code)) }
        #expect(history.record(id(1))?.runs.count == 20 && history.record(id(1))?.runs.last?.exitCode == 0)
        history.ended(timing(id(1), exitCode: 20))
        #expect(history.record(id(1))?.runs.count == 20 && history.record(id(1))?.runs.first?.exitCode == 20)
        #expect(history.record(id(1))?.runs.last?.exitCode == 1)
    }

    @Test func aScriptThatRunsIsKnown() {
        let history = ScriptHistory()
        #expect(history.record(id(1)) == nil)
        history.started(id(1), logPath: "/tmp/log")
        history.started(id(1), logPath: "/tmp/log2")
        #expect(history.record(id(1))?.running == 2 && history.record(id(1))?.logPath == "/tmp/log2")
        for _ in 0..<3 { history.ended(timing(id(1), exitCode: 0)) }
        #expect(history.record(id(1))?.running == 0 && history.record(id(1))?.runs.count == 3)
    }

    @Test func aNewManifestForgetsWhatItHasNot() {
        let history = ScriptHistory()
        for byte: UInt8 in 1...3 { history.ended(timing(id(byte), exitCode: 0)) }
        history.started(id(2), logPath: "")
        history.keep([WorkspaceScript(.with { $0.id = id(1) })])
        #expect(history.record(id(1)) != nil && history.record(id(2)) != nil && history.record(id(3)) == nil)
        history.ended(timing(id(2), exitCode: 0))
        history.keep([])
        #expect(history.record(id(1)) == nil && history.record(id(2)) == nil)
    }
}
