import AgentTestSupport
import Glibc
import Testing

@testable import WorkspaceAgent

/// The parts of the proc commands that need no daemon.
@Suite struct ProcCommandUnitTests {
    @Test func tablesFitTheTerminal() {
        let rows = [["ID", "COMMAND"], ["1f3b", "echo 好好好"], ["2", "e\u{301}e\u{301} and more"]]
        let whole = ["ID    COMMAND", "1f3b  echo 好好好", "2     e\u{301}e\u{301} and more"]
        #expect(TextTable.lines(rows, width: nil) == whole)
        for width in 0...20 {
            for line in TextTable.lines(rows, width: width) { #expect(TextTable.columns(of: line) <= width, "\(line)") }
        }
        #expect(TextTable.lines(rows, width: 17)[1] == "1f3b  echo 好好好")
        // A wide character that would stick out by half is left out.
        #expect(TextTable.lines(rows, width: 16)[1] == "1f3b  echo 好好…")
        #expect(TextTable.lines(rows, width: 15)[1] == "1f3b  echo 好…")
    }

    @Test func controlCharactersAreShownAsSigns() {
        let harmless = TextTable.harmless("a\u{1B}[31mb\u{7F}\tc\nd\u{9B}e\u{202E}f 好é")
        #expect(harmless == "a␛[31mb\u{FFFD} c d\u{FFFD}e\u{FFFD}f 好é")
    }

    @Test func idsAreAsLongAsTheyMustBe() {
        #expect(ProcListCommand.shortID([]) == 8)
        #expect(ProcListCommand.shortID(["12345678-0", "22345678-0"]) == 8)
        #expect(ProcListCommand.shortID(["12345678-00", "12345678-01"]) == 11)
        #expect(ProcListCommand.shortID(["same", "same"]) == 36)
    }

    @Test(arguments: [
        (-5, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (86399, "23h"), (172_800, "2d"),
    ])
    func ages(seconds: Int, text: String) { #expect(ProcListCommand.age(seconds) == text) }

    private static let names: [(String, String?)] = [
        ("kill", "kill"), ("KILL", "kill"), ("sigkill", "kill"), ("9", "kill"), ("term", "terminate"),
        ("Terminate", "terminate"), ("SIGTERM", "terminate"), ("15", "terminate"), ("int", "SIGINT"), ("2", "SIGINT"),
        ("usr1", "SIGUSR1"), ("SIGSTOP", "SIGSTOP"), ("19", "SIGSTOP"), ("sigsegv", nil), ("11", nil), ("", nil),
        ("sig", nil), ("0", nil),
    ]

    @Test(arguments: names) func signalNames(typed: String, name: String?) {
        #expect(ProcSignalCommand.name(typed) == name)
    }

    @Test func exitCodesAreThoseOfShells() {
        #expect(ProcessState(running: false, exit_code: 3).shellCode == 3)
        #expect(ProcessState(running: false, exit_code: -1, signal: "SIGKILL").shellCode == 137)
        #expect(ProcessState(running: false, exit_code: -1, signal: "SIGRTMIN+2").shellCode == 128 + 36)
        #expect(ProcessState(running: false, exit_code: 3).status == "exited 3")
        #expect(ProcessState(running: false, exit_code: -1, signal: "SIGINT").status == "killed SIGINT")
        let late = ProcessState(running: false, exit_code: -1, signal: "SIGTERM", reason: "timeout")
        #expect(late.status == "timeout" && late.shellCode == 143)
        #expect(ProcessState(running: true).status == "running")
    }

    @Test func whatIsWaitedForBecomesAQuery() {
        func query(_ text: String) -> String? { ProcWaitFor(argument: text)?.query }
        #expect(query("exit") == "for=exit")
        #expect(query("output:a b+:[é]") == "for=output&pattern=a%20b%2B%3A%5B%C3%A9%5D")
        #expect(query("port:8080") == "for=port&port=8080")
        #expect(query("file:/a b") == "for=file&path=%2Fa%20b")
        #expect(query("file:x")?.hasSuffix("%2Fx") == true)
        for wrong in ["", "exit:", "output:", "output", "port:", "port:0", "port:65536", "port:x", "file:", "x:y"] {
            #expect(query(wrong) == nil, "\(wrong)")
        }
    }

    /// However the keys come in pieces.
    @Test func detachKeysAreFound() {
        func filter(_ pieces: [[UInt8]]) -> (bytes: [UInt8], detach: Bool) {
            var keys = DetachKeys()
            var all: [UInt8] = []
            for piece in pieces {
                let (bytes, detach) = keys.filter(piece)
                all += bytes
                if detach { return (all, true) }
            }
            return (all, false)
        }
        for pieces in [[[1, 16, 17, 2]], [[1], [16], [17]], [[1, 16], [17]]] as [[[UInt8]]] {
            #expect(filter(pieces) == ([1], true), "\(pieces)")
        }
        #expect(filter([[16, 3], [17]]) == ([16, 3, 17], false))
        #expect(filter([[16, 16, 17]]) == ([16], true))
        #expect(filter([[17, 16]]) == ([17], false))
    }

    @Test func screenModesAreUndone() {
        func undoing(_ text: String, pieces: Int = .max) -> String {
            var modes = ScreenModes()
            var bytes = Array(text.utf8)[...]
            while !bytes.isEmpty {
                modes.look(at: Array(bytes.prefix(pieces)))
                bytes = bytes.dropFirst(pieces)
            }
            return modes.undoing
        }
        let none = "\u{1B}[0m"
        #expect(undoing("plain \u{1B}[31mred\u{1B}[?12h") == none)
        let drawn = undoing("\u{1B}[?1049h\u{1B}[?25lx\u{1B}[?1000;1006hy")
        #expect(drawn == "\(none)\u{1B}[?25h\u{1B}[?1000l\u{1B}[?1006l\u{1B}[?1049l")
        #expect(undoing("\u{1B}[?1049h\u{1B}[?25lx\u{1B}[?1049l\u{1B}[?25h") == none)
        // Broken sequences, and one in every place where output may be cut.
        #expect(undoing("\u{1B}[?1049\u{1B}[?h\u{1B}?1049h[?1049h") == none)
        #expect(undoing("a\u{1B}[?1049hb\u{1B}[?2004h", pieces: 1) == "\(none)\u{1B}[?1049l\u{1B}[?2004l")
    }
}
