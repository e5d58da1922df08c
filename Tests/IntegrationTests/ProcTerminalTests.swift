import AgentCore
import AgentTestSupport
import Foundation
import Testing

/// `proc run --pty` and `proc attach` as a person uses them, in a terminal that tmux draws.
@Suite(.sharedDaemon, .timeLimit(.minutes(5))) struct ProcTerminalTests {
    /// Runs the body between two looks at the terminal's settings, which must not differ.
    private func sameSettings(_ screen: Screen, _ body: () async throws -> Void) async throws {
        let directory = try TemporaryDirectory()
        // Not what an earlier call has left on the screen.
        let marker = UInt32.random(in: 0...UInt32.max)
        try screen.enter("clear; stty -g > \(directory.path)/before; echo noted \(marker)")
        try await screen.shows("\nnoted \(marker)")
        try await body()
        try screen.enter("stty -g > \(directory.path)/after; cmp \(directory.path)/* && echo as before \(marker)")
        try await screen.shows("\nas before \(marker)")
    }

    @Test func aShellHasJobControl() async throws {
        let screen = try await Screen.shell(shared().daemon)
        try await sameSettings(screen) {
            try screen.enter("PS1='in $ ' workspace-agent proc run --pty -- bash --norc --noprofile -i")
            try await screen.shows("bash-")
            try screen.enter("PS1='in $ '; stty size; echo $TERM")
            try await screen.shows("24 80\ntmux-256color\nin $")
            try screen.enter("sh -c 'trap \"echo back\" CONT; echo on; while :; do :; done'")
            try await screen.shows("\non")
            try screen.type("", "C-z")
            try await screen.shows("Stopped")
            try screen.enter("fg")
            try await screen.shows("\nback")
            try screen.type("", "C-c")
            try screen.enter("echo code $?")
            try await screen.shows("code 130")
            try screen.enter("exit 5")
            try await screen.showsPrompt()
            try screen.enter("echo code $?")
            try await screen.shows("code 5")
        }
    }

    /// What an editor draws is, to the last colour, what it draws without the agent between; and a new size reaches it.
    @Test func anEditorLooksAsItDoesWithoutUs() async throws {
        let daemon = try shared().daemon
        let directory = try TemporaryDirectory()
        let lines = (1...200).map { "line \($0) 好 \u{1B}[0m" }.joined(separator: "\n")
        try lines.write(toFile: "\(directory.path)/text.c", atomically: true, encoding: .utf8)
        let vim = "vim -u NONE -i NONE -n --cmd 'syntax on' \(directory.path)/text.c"
        let direct = try await Screen.shell(daemon)
        let through = try await Screen.shell(daemon)
        try direct.enter("clear; \(vim)")
        try await sameSettings(through) {
            try through.enter("clear; workspace-agent proc run --pty -- \(vim)")
            func same(_ what: String, _ text: String) async throws {
                try await direct.shows(text)
                try await eventually("the same picture \(what)", within: .seconds(30)) {
                    try direct.picture == through.picture
                }
            }
            try await same("at first", "line 1 好")
            for screen in [direct, through] { try screen.type("50Gihello \u{1F600} ", "Escape") }
            try await same("after typing", "hello")
            for screen in [direct, through] { try screen.resize(columns: 100, rows: 30) }
            try await same("when larger", "line 64")
            for screen in [direct, through] { try screen.resize(columns: 80, rows: 24) }
            // What is typed while the size changes may scroll one of them otherwise, for good.
            try await same("when small again", "hello")
            // The screen is cut to a size before the editor knows it; one that learns of two sizes at once scrolls otherwise.
            for screen in [direct, through] {
                try await eventually("the editor knows its size", within: .seconds(30)) {
                    try screen.type(":echo &lines &columns", "Enter")
                    return try screen.text.contains("\n24 80")
                }
                try screen.type("zz")
            }
            for screen in [direct, through] { try screen.type(":set number", "Enter") }
            try await same("with numbers", " 50 ")
            for screen in [direct, through] { try screen.type(":q!", "Enter") }
            try await same("after the end", "\n$")
        }
    }

    @Test func aMonitorRuns() async throws {
        let screen = try await Screen.shell(shared().daemon)
        try await sameSettings(screen) {
            try screen.enter("workspace-agent proc run --pty -- htop")
            try await screen.shows("F10Quit")
            try screen.type("", "F10")
            try await screen.showsPrompt()
            try screen.enter("echo code $?")
            try await screen.shows("code 0")
        }
    }

    /// Leaving takes back what the program did to the screen; coming back shows it again.
    @Test func detachAndComeBack() async throws {
        let (daemon, connection) = try shared()
        let screen = try await Screen.shell(daemon)
        let directory = try TemporaryDirectory()
        let file = "\(directory.path)/file"
        let vim = ["vim", "-u", "NONE", "-i", "NONE", "-n", "--cmd", "set mouse=a", file]
        let id = try #require(
            try connection.postStart(["argv": vim, "pty": ["rows": 24, "cols": 80, "term": "tmux-256color"]])
                .json["id"] as? String)
        try await sameSettings(screen) {
            try screen.enter("workspace-agent proc attach \(id.prefix(13))")
            try await screen.shows("\n~\n")
            try screen.type("ihello there")
            try await screen.shows("hello there")
            // The first of the keys alone goes to the program, with the next one.
            try screen.type("", "C-p", "x", "C-p", "C-q")
            try await screen.shows("workspace-agent: detached")
            #expect(try screen.text.contains("~\n") == false)
            #expect(try screen.picture.hasSuffix(" 1 0\n"))
            #expect(try connection.output(id).json["running"] as? Bool == true)
            try screen.enter("clear; workspace-agent proc attach \(id)")
            try await screen.shows("hello there")
            try screen.type("", "Escape")
            try screen.enter(":wq")
            try await screen.showsPrompt()
            try screen.enter("echo code $?")
            try await screen.shows("code 0")
        }
        #expect(readTextFile(file)?.hasPrefix("hello there") == true)
    }

    @Test func ctrlCReachesAProcessWithoutATerminal() async throws {
        let screen = try await Screen.shell(shared().daemon)
        let run = "clear; workspace-agent proc run -- sh -c"
        try screen.enter("\(run) 'trap \"echo got it; exit 9\" INT; echo go; while :; do :; done'")
        try await screen.shows("\ngo")
        try screen.type("", "C-c")
        try screen.enter("echo code $?")
        try await screen.shows("code 9")
        try await screen.shows("got it")

        try screen.enter("\(run) 'trap \"echo goes on\" INT; echo again; while :; do :; done'")
        try await screen.shows("\nagain")
        try screen.type("", "C-c")
        try await screen.shows("\n^Cgoes on")
        try screen.type("", "C-c")
        try screen.enter("echo code $?")
        try await screen.shows("code 130")
    }

    @Test func ctrlZStopsTheCommandAlone() async throws {
        let screen = try await Screen.shell(shared().daemon)
        let directory = try TemporaryDirectory()
        let wait = "echo go; while [ ! -e \(directory.path)/x ]; do sleep 0.02; done; echo its end; exit 3"
        try screen.enter("clear; workspace-agent proc run -- sh -c '\(wait)'")
        try await screen.shows("\ngo")
        try screen.type("", "C-z")
        try await screen.shows("Stopped")
        try screen.enter("touch \(directory.path)/x; clear; fg")
        try await screen.shows("\nits end")
        try screen.enter("echo code $?")
        try await screen.shows("code 3")
    }

    /// The terminal is as it was while the command is stopped, and raw again when it goes on.
    @Test func aStopSignalGivesTheTerminalBack() async throws {
        // One that leaves the terminal's settings alone, which bash does not.
        let screen = try await Screen.shell(shared().daemon, ["dash", "-i"])
        try await sameSettings(screen) {
            let directory = try TemporaryDirectory()
            try screen.enter("sh -c 'echo $$ > \(directory.path)/pid; exec workspace-agent proc run --pty -- cat'")
            try screen.enter("one")
            try await screen.shows("one\none")
            let pid = try #require(readTextFile("\(directory.path)/pid").flatMap { pid_t($0.dropLast()) })
            kill(pid, SIGTSTP)
            try await screen.shows("Stopped")
            try await sameSettings(screen) {}
            try screen.enter("fg")
            try screen.enter("two")
            try await screen.shows("two\ntwo")
            try screen.type("", "C-d")
            try await screen.showsPrompt()
            try screen.enter("echo code $?")
            try await screen.shows("code 0")
        }
    }

    /// Killed while a program draws: the screen and the settings come back.
    @Test(arguments: [SIGTERM, SIGHUP, SIGQUIT]) func aSignalGivesTheTerminalBack(number: Int32) async throws {
        let (daemon, connection) = try shared()
        let screen = try await Screen.shell(daemon)
        let started = try connection.postStart([
            "argv": ["vim", "-u", "NONE", "-n"], "pty": ["rows": 24, "cols": 80, "term": "tmux-256color"],
        ])
        let id = try #require(started.json["id"] as? String)
        try await sameSettings(screen) {
            let directory = try TemporaryDirectory()
            try screen.enter("sh -c 'echo $$ > \(directory.path)/pid; exec workspace-agent proc attach \(id)'")
            try await screen.shows("\n~\n")
            kill(try #require(readTextFile("\(directory.path)/pid").flatMap { pid_t($0.dropLast()) }), number)
            try await screen.showsPrompt()
            #expect(try screen.text.contains("\n~") == false)
            try screen.enter("echo code $?")
            try await screen.shows("code \(128 + number)")
        }
        #expect(try connection.output(id).json["running"] as? Bool == true)
        _ = try connection.signal(id, "kill")
    }
}
