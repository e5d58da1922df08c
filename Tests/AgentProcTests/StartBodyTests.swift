import AgentHTTP
import Foundation
import Testing

@testable import AgentProc

@Suite struct StartBodyTests {
    private func validated(_ json: String) throws -> StartRequest {
        try JSONDecoder().decode(StartBody.self, from: Data(json.utf8)).validated()
    }

    private func problem(_ body: StartBody) -> HTTPProblem? {
        do {
            _ = try body.validated()
            return nil
        } catch {
            return error as? HTTPProblem
        }
    }

    @Test func commandIsRequired() {
        for body in [StartBody(), StartBody(command: ""), StartBody(argv: [])] {
            #expect(problem(body)?.message == "Command is required.")
            #expect(problem(body)?.status == .badRequest)
        }
    }

    @Test func commandSizeAtBelowAndAbove() {
        let limit = ProcLimits.commandBytes
        #expect(problem(StartBody(command: String(repeating: "a", count: limit - 1))) == nil)
        #expect(problem(StartBody(command: String(repeating: "a", count: limit))) == nil)
        #expect(problem(StartBody(command: String(repeating: "a", count: limit + 1)))?.status == .contentTooLarge)
    }

    @Test func environmentSizeAtBelowAndAbove() {
        func env(_ total: Int) -> [String: String] {
            // Names of 2 bytes and values that stay below the kernel's limit for one string.
            var env: [String: String] = [:]
            var left = total
            var index = 10
            while left > 0 {
                let take = min(left, 100_000)
                env["\(index)"] = String(repeating: "v", count: max(0, take - 2))
                left -= take
                index += 1
            }
            return env
        }
        let limit = ProcLimits.environmentBytes
        #expect(problem(StartBody(command: "true", env: env(limit - 1))) == nil)
        #expect(problem(StartBody(command: "true", env: env(limit))) == nil)
        #expect(problem(StartBody(command: "true", env: env(limit + 1)))?.status == .contentTooLarge)
    }

    @Test func oneVariableAtAndAboveTheKernelsLimit() {
        let fits = ProcLimits.kernelArgumentBytes - 2
        #expect(problem(StartBody(command: "true", env: ["A": String(repeating: "v", count: fits)])) == nil)
        let above = problem(StartBody(command: "true", env: ["A": String(repeating: "v", count: fits + 1)]))
        #expect(above?.status == .contentTooLarge)
    }

    @Test func namesAndNULs() {
        #expect(problem(StartBody(command: "true", env: ["": "x"]))?.validations.first?.field == "env")
        #expect(problem(StartBody(command: "true", env: ["A=B": "x"]))?.validations.first?.field == "env")
        #expect(problem(StartBody(command: "true", env: ["A": "x\0"]))?.validations.first?.field == "env.A")
        #expect(problem(StartBody(command: "a\0b"))?.validations.first?.field == "command")
        #expect(problem(StartBody(argv: ["a", "\0"]))?.validations.first?.field == "argv")
        #expect(problem(StartBody(argv: ["", "a"]))?.validations.first?.field == "argv")
        #expect(problem(StartBody(command: "true", workdir: "/\0"))?.validations.first?.field == "workdir")
        #expect(problem(StartBody(command: "a", argv: ["b"]))?.validations.first?.field == "argv")
    }

    @Test func tokenAndTimeoutBounds() {
        func token(_ count: Int) -> HTTPProblem? {
            problem(StartBody(command: "true", client_token: String(repeating: "t", count: count)))
        }
        #expect(token(0) != nil)
        #expect(token(1) == nil)
        #expect(token(256) == nil)
        #expect(token(257)?.validations.first?.field == "client_token")
        for (value, good) in [(0, false), (1, true), (604_800_000, true), (604_800_001, false), (-1, false)] {
            #expect((problem(StartBody(command: "true", timeout_ms: .init(value))) == nil) == good, "\(value)")
        }
    }

    @Test func unknownKeysAreIgnored() throws {
        let request = try validated(#"{"command":"x","later":{"a":[1]},"background":true}"#)
        #expect(request.program == .shell("x"))
        #expect(request.background)
    }

    @Test func longCommandsAreSplitBetweenCharacters() {
        let command = String(repeating: "é", count: 90_000)
        let arguments = StartRequest(.shell(command)).arguments
        #expect(arguments.dropFirst(4).joined() == command)
        #expect(arguments.allSatisfy { $0.utf8.count <= ProcLimits.kernelArgumentBytes })
        #expect(StartRequest(.shell("true")).arguments == ["/bin/sh", "-c", "true"])
    }

    @Test func waitTimeAtBelowAndAbove() throws {
        func wait(_ value: Int?) throws -> Duration? {
            try StartBody(command: "true", wait_ms: value.map { WholeNumber($0) }).wait()
        }
        #expect(try wait(nil) == nil)
        #expect(try wait(0) == .zero)
        #expect(try wait(300_000) == .seconds(300))
        for bad in [-1, 300_001] {
            #expect(throws: HTTPProblem.invalid("wait_ms", "must be from 0 to 300000")) { try wait(bad) }
        }
    }

    @Test func terminalsAreChecked() throws {
        let request = try validated(#"{"command":"true","pty":{"rows":24,"cols":80}}"#)
        #expect(request.input == .terminal(TerminalSize(rows: 24, cols: 80)))
        #expect(request.environment == ["TERM": "xterm-256color"])
        let named = try validated(
            #"{"command":"true","stdin":true,"env":{"TERM":"vt100","A":"b"},"pty":{"rows":1,"cols":10000,"term":"dumb"}}"#
        )
        #expect(named.input == .terminal(TerminalSize(rows: 1, cols: 10_000)))
        #expect(named.environment == ["TERM": "dumb", "A": "b"])
        #expect(
            try validated(#"{"command":"true","env":{"TERM":"vt100"},"pty":{"rows":1,"cols":1}}"#).environment["TERM"]
                == "vt100")
        #expect(try validated(#"{"command":"true","stdin":true}"#).input == .pipe)
        #expect(try validated(#"{"command":"true","stdin":false}"#).input == .nothing)
        for (field, pty) in [
            ("pty.rows", #"{"cols":80}"#), ("pty.cols", #"{"rows":24}"#), ("pty.rows", #"{"rows":0,"cols":80}"#),
            ("pty.cols", #"{"rows":24,"cols":10001}"#), ("pty.term", #"{"rows":24,"cols":80,"term":""}"#),
            ("pty.term", #"{"rows":24,"cols":80,"term":"../x"}"#),
            ("pty.term", #"{"rows":24,"cols":80,"term":"\#(String(repeating: "a", count: 65))"}"#),
        ] {
            let error = #expect(throws: HTTPProblem.self) { try validated(#"{"command":"true","pty":\#(pty)}"#) }
            #expect(error?.validations.map(\.field) == [field], "\(pty)")
        }
    }
}
