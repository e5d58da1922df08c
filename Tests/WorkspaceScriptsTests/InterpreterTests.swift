import AgentTestSupport
import FoundationEssentials
import Testing

@testable import WorkspaceScripts

/// Scripts that name their interpreter; texts of metadata are in ``MetadataTests``.
@Suite(.timeLimit(.minutes(5))) struct InterpreterTests {
    /// Users whose login shell is not bash have scripts for bash, and for python.
    @Test func aScriptRunsWithTheInterpreterOfItsFirstLine() async throws {
        try await ScriptFixture.with { fixture in
            try fixture.manifest(scripts: [
                .make("#!/bin/bash -u\na=(1 2 3); echo \"${#a[@]} $-\""),
                .make("\n\n#!/usr/bin/env python3\nimport sys\nprint('py', len(sys.argv))", number: 2),
                .make("echo \"sh ${BASH_VERSION-none}\"", number: 3),
                .make("#!/no/such/interpreter\ntrue", number: 4),
            ])
            #expect(try await fixture.scripts.runStartScripts() == .failed)
            let connection = try await fixture.delivered()
            func output(_ number: UInt8) -> [String] {
                connection.logs.filter { $0.logSourceID == Data(repeating: number, count: 16) }
                    .flatMap(\.logs).filter { $0.level == .info }.map(\.output)
            }
            #expect(output(1).count == 1 && output(1)[0].hasPrefix("3 ") && output(1)[0].contains("u"), "\(output(1))")
            #expect(output(2) == ["py 1"])
            #expect(output(3) == ["sh none"], "dash is what /bin/sh is here")
            let failed = connection.logs.filter { $0.logSourceID == Data(repeating: 4, count: 16) }.flatMap(\.logs)
            #expect(failed.contains { $0.output.contains("/no/such/interpreter") }, "\(failed)")
        }
    }
}
